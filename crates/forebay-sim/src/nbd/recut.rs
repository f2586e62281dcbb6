//! A proxy before a client: it sends the replies to reads in every form that the protocol allows.
//!
//! The server that ships sends the data of a read in order, and no holes. Other servers send holes,
//! and data in any order, and a client must handle both. So on some connections the proxy cuts
//! chunks into smaller ones, in any order, sends zeroes as holes, and interleaves the chunks of
//! different replies.

use super::met::Met;
use super::pending::Pending;
use crate::server::{Context, ServerPlant};
use forebay_nbd::wire::numbers::{
    EXTENDED_REPLY_MAGIC, REPLY_FLAG_DONE, REPLY_NONE, REPLY_OFFSET_DATA, REPLY_OFFSET_HOLE,
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
};
use forebay_nbd::wire::{ChunkHeader, Framing, Hole, SimpleReply, reply_magic};
use std::collections::{BTreeMap, VecDeque};

/// The maximum number of cuts of a chunk.
const NR_CUTS_MAX: u64 = 4;

/// The proxy of one connection.
#[derive(Debug)]
pub(crate) struct Recut {
    framing: Framing,
    /// Bytes of an incomplete message.
    raw: Vec<u8>,
}

/// The messages of one reply that are not sent yet.
type Stream = (u64, VecDeque<Vec<u8>>);

impl Recut {
    /// Returns a proxy for a connection with structured replies or extended headers.
    pub(crate) fn new(framing: Framing) -> Recut {
        Recut { framing, raw: Vec::new() }
    }

    /// Returns the bytes of an incomplete message.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Takes bytes of the server, and appends those that the client gets.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        pending: &BTreeMap<u64, Pending>,
        out: &mut Vec<u8>,
        cx: &mut Context,
    ) {
        self.raw.extend_from_slice(bytes);
        let mut streams: Vec<Stream> = Vec::new();
        while let Some(len) = self.message_len() {
            let message: Vec<u8> = self.raw.drain(..len).collect();
            self.take(message, pending, &mut streams, cx);
        }
        send(streams, out, cx);
    }

    fn header_len(&self) -> usize {
        if self.framing == Framing::Extended { 32 } else { 20 }
    }

    fn header(&self, bytes: &[u8]) -> Option<ChunkHeader> {
        match self.framing {
            Framing::Extended => ChunkHeader::parse_extended(bytes),
            _ => ChunkHeader::parse_structured(bytes),
        }
    }

    /// Returns the length of the first message, if all of it has arrived.
    fn message_len(&self) -> Option<usize> {
        let len = match reply_magic(&self.raw)? {
            SIMPLE_REPLY_MAGIC => SimpleReply::LEN,
            STRUCTURED_REPLY_MAGIC | EXTENDED_REPLY_MAGIC => {
                let header = self.header(&self.raw)?;
                self.header_len() + header.len as usize
            }
            // Bytes that are no message go to the client, which reports them.
            _ => self.raw.len(),
        };
        (self.raw.len() >= len).then_some(len)
    }

    /// Adds a message, or the messages that replace it.
    fn take(
        &self,
        message: Vec<u8>,
        pending: &BTreeMap<u64, Pending>,
        streams: &mut Vec<Stream>,
        cx: &mut Context,
    ) {
        let header = self.header(&message);
        let cookie = header.as_ref().map_or(0, |header| header.cookie);
        let is_cut = header.as_ref().is_some_and(|header| {
            // The library does not ask for one chunk.
            let is_one = pending.get(&cookie).is_some_and(|pending| pending.is_one);
            header.kind == REPLY_OFFSET_DATA && header.len > 8 && !is_one
        });
        let messages = match header {
            Some(header) if is_cut => self.cut(&header, &message[self.header_len()..], cx),
            _ => [message].into(),
        };
        match streams.iter_mut().find(|(other, _)| *other == cookie) {
            Some((_, stream)) => stream.extend(messages),
            None => streams.push((cookie, messages)),
        }
    }

    /// Returns the parts of a chunk of data, in any order.
    fn cut(&self, header: &ChunkHeader, payload: &[u8], cx: &mut Context) -> VecDeque<Vec<u8>> {
        let (at, data) = payload.split_at(8);
        let at = u64::from_be_bytes(at.try_into().expect("8 bytes"));
        let nr_cuts = cx.random.below(NR_CUTS_MAX);
        let mut cuts: Vec<usize> =
            (0..nr_cuts).map(|_| cx.random.below(data.len() as u64) as usize).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut parts: Vec<(usize, usize)> =
            cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        for nth in (1..parts.len()).rev() {
            parts.swap(nth, cx.random.below(nth as u64 + 1) as usize);
        }
        let is_last = header.flags & REPLY_FLAG_DONE != 0;
        let ends_alone = is_last && cx.random.chance(1, 4);
        let mut messages = VecDeque::new();
        for (nth, &(from, to)) in parts.iter().enumerate() {
            let is_last = is_last && nth + 1 == parts.len() && !ends_alone;
            messages.push_back(self.part(header, at + from as u64, &data[from..to], is_last, cx));
        }
        if ends_alone {
            messages.push_back(self.chunk(header, REPLY_NONE, &[], true));
        }
        messages
    }

    /// Returns one chunk: data, or possibly a hole if the data is all zeroes.
    fn part(
        &self,
        header: &ChunkHeader,
        at: u64,
        data: &[u8],
        is_last: bool,
        cx: &mut Context,
    ) -> Vec<u8> {
        let is_zero = data.iter().all(|&byte| byte == 0) && cx.random.chance(1, 2);
        if is_zero || cx.plants(ServerPlant::FalseHole) {
            cx.note(Met::Hole, at, data.len() as u64);
            let mut hole = Vec::new();
            Hole { offset: at, len: data.len() as u32 }.emit(&mut hole);
            return self.chunk(header, REPLY_OFFSET_HOLE, &hole, is_last);
        }
        let payload = [&at.to_be_bytes()[..], data].concat();
        self.chunk(header, REPLY_OFFSET_DATA, &payload, is_last)
    }

    fn chunk(&self, of: &ChunkHeader, kind: u16, payload: &[u8], is_last: bool) -> Vec<u8> {
        let flags = if is_last { REPLY_FLAG_DONE } else { 0 };
        let ChunkHeader { cookie, offset, .. } = *of;
        let mut message = Vec::new();
        let len = payload.len() as u64;
        ChunkHeader { flags, kind, cookie, offset, len }.emit(self.framing, &mut message);
        message.extend_from_slice(payload);
        message
    }
}

/// Appends the messages of all replies, interleaved.
fn send(mut streams: Vec<Stream>, out: &mut Vec<u8>, cx: &mut Context) {
    let mut last = None;
    while !streams.is_empty() {
        let nth = cx.random.below(streams.len() as u64) as usize;
        let (cookie, stream) = &mut streams[nth];
        if last.is_some_and(|last| last != *cookie) {
            cx.note(Met::ChunksInterleaved, *cookie, 0);
        }
        out.extend(stream.pop_front().expect("an empty stream is dropped"));
        last = Some(*cookie).filter(|_| !stream.is_empty());
        if stream.is_empty() {
            streams.swap_remove(nth);
        }
    }
}
