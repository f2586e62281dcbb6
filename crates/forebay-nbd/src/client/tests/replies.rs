//! Replies that servers may send, in any order and in any pieces.

use super::*;
use crate::client::{Command, Event, Request, Transmission};
use crate::wire::numbers as wire;
use crate::wire::{ChunkHeader, ErrorChunk, Hole, NbdError, RequestHeader, SimpleReply, Sink};
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec;
use alloc::vec::Vec;

const NR_SLOTS: usize = 5;

/// A request, as received by the server.
#[derive(Clone, Copy)]
struct Asked {
    cookie: u64,
    request: Request,
}

/// Returns the byte of the export at an offset; of each 64 KiB, the second half is zero.
fn byte_at(at: u64) -> u8 {
    if at & 0x8000 != 0 { 0 } else { (at as u8) ^ (at >> 8) as u8 | 1 }
}

/// Writes the whole reply to a request. Returns its result.
fn reply(
    framing: Framing,
    asked: Asked,
    numbers: &mut Numbers,
    out: &mut Vec<u8>,
) -> Result<(), NbdError> {
    let Asked { cookie, request } = asked;
    let Request { command, offset, len } = request;
    let fails = numbers.below(4) == 0;
    let is_simple = framing == Framing::Simple
        || framing == Framing::Structured
            && !matches!(command, Command::Read | Command::BlockStatus)
            && numbers.below(2) == 0;
    if is_simple {
        SimpleReply { error: if fails { 28 } else { 0 }, cookie }.emit(out);
        if !fails && command == Command::Read {
            out.extend((offset..offset + len).map(byte_at));
        }
        return if fails { Err(NbdError::NoSpc) } else { Ok(()) };
    }
    let mut chunk = |flags: u16, kind: u16, payload: &[u8]| {
        let len = payload.len() as u64;
        ChunkHeader { flags, kind, cookie, offset, len }.emit(framing, out);
        out.extend(payload);
    };
    let ends_apart = numbers.below(2) == 0;
    match command {
        Command::Read => data(request, numbers, fails, ends_apart, &mut chunk),
        Command::BlockStatus if !fails => extents(framing, len, ends_apart, &mut chunk),
        _ => {}
    }
    let moves = matches!(command, Command::Read | Command::BlockStatus);
    match (fails, moves && !ends_apart) {
        (true, _) => {
            let mut payload = Vec::new();
            ErrorChunk { error: 5, message: b"no", offset: None }.emit(&mut payload);
            let flags = if ends_apart { 0 } else { wire::REPLY_FLAG_DONE };
            chunk(flags, wire::REPLY_ERROR, &payload);
            if ends_apart {
                chunk(wire::REPLY_FLAG_DONE, wire::REPLY_NONE, &[]);
            }
            Err(NbdError::Io)
        }
        (false, true) => Ok(()),
        (false, false) => {
            chunk(wire::REPLY_FLAG_DONE, wire::REPLY_NONE, &[]);
            Ok(())
        }
    }
}

/// Writes a chunk with these flags, type and payload.
type Put<'a> = &'a mut dyn FnMut(u16, u16, &[u8]);

/// Writes the data of a read, or a part of them, in pieces and in any order.
fn data(rq: Request, numbers: &mut Numbers, fails: bool, ends_apart: bool, chunk: Put<'_>) {
    let Request { offset, len, .. } = rq;
    // Pieces, in any order.
    let mut pieces = Vec::new();
    let mut at = offset;
    while at < offset + len {
        let end = (at + 1 + numbers.below(9000)).min(offset + len);
        pieces.push((at, end));
        at = end;
    }
    for nth in (1..pieces.len()).rev() {
        pieces.swap(nth, numbers.below(nth as u64 + 1) as usize);
    }
    let nr = if fails { numbers.below(pieces.len() as u64) as usize } else { pieces.len() };
    for (nth, &(from, to)) in pieces[..nr].iter().enumerate() {
        let is_last = !fails && !ends_apart && nth + 1 == nr;
        let flags = if is_last { wire::REPLY_FLAG_DONE } else { 0 };
        if (from..to).all(|at| byte_at(at) == 0) {
            let mut payload = Vec::new();
            Hole { offset: from, len: (to - from) as u32 }.emit(&mut payload);
            chunk(flags, wire::REPLY_OFFSET_HOLE, &payload);
        } else {
            let mut payload = from.to_be_bytes().to_vec();
            payload.extend((from..to).map(byte_at));
            chunk(flags, wire::REPLY_OFFSET_DATA, &payload);
        }
    }
}

/// Writes two extents, the second of which exceeds the request.
fn extents(framing: Framing, len: u64, ends_apart: bool, chunk: Put<'_>) {
    let mut payload = 7u32.to_be_bytes().to_vec();
    let is_wide = framing == Framing::Extended;
    if is_wide {
        payload.put_u32(2);
    }
    for len in [len / 2, len] {
        match is_wide {
            true => [len, 3].iter().for_each(|&number| payload.put_u64(number)),
            false => [len, 3].iter().for_each(|&number| payload.put_u32(number as u32)),
        }
    }
    let kind = if is_wide { wire::REPLY_BLOCK_STATUS_EXT } else { wire::REPLY_BLOCK_STATUS };
    chunk(if ends_apart { 0 } else { wire::REPLY_FLAG_DONE }, kind, &payload);
}

/// A client with memory for its reads.
struct Client {
    replies: Transmission,
    bufs: Vec<Vec<u8>>,
    extents: Vec<u64>,
    ended: Vec<(usize, Result<(), NbdError>)>,
}

impl Client {
    /// Parses as much as possible, and leaves the rest.
    fn take(&mut self, input: &mut Vec<u8>) {
        loop {
            let taken = self.replies.take(input).expect("a good server");
            let mut nr = taken.consumed;
            match taken.event {
                Event::More => {
                    input.drain(..nr);
                    return;
                }
                Event::Data { slot, at, len } => {
                    // The owner of the connection waits for the rest of the data.
                    let data = &input[nr..nr + len as usize];
                    self.bufs[slot][at as usize..(at + len) as usize].copy_from_slice(data);
                    nr += len as usize;
                }
                Event::Zeroes { slot, at, len } => {
                    self.bufs[slot][at as usize..(at + len) as usize].fill(0);
                }
                Event::Extent { slot, len, state } => {
                    assert_eq!((slot, state), (4, wire::STATE_HOLE | wire::STATE_ZERO));
                    self.extents.push(len);
                }
                Event::Done { slot, result } => self.ended.push((slot, result)),
            }
            input.drain(..nr);
        }
    }
}

/// Returns the parsed header of a request.
fn parsed(framing: Framing, bytes: &[u8]) -> RequestHeader {
    let header = match framing {
        Framing::Extended => RequestHeader::parse_extended(bytes),
        _ => RequestHeader::parse_compact(bytes),
    };
    header.expect("a header")
}

#[test]
fn each_request_ends_once_with_its_own_data_and_its_own_result() {
    for framing in [Framing::Simple, Framing::Structured, Framing::Extended] {
        let mut numbers = Numbers(11);
        let replies = Transmission::new(&export(framing), NR_SLOTS);
        let bufs = vec![vec![]; NR_SLOTS];
        let mut client = Client { replies, bufs, extents: vec![], ended: vec![] };
        let (mut asked, mut expected) = (Vec::new(), BTreeMap::new());
        let mut stream = Vec::new();
        let mut input = Vec::new();
        let mut nr_ended = 0;
        while nr_ended < 3000 {
            let slot = numbers.below(NR_SLOTS as u64) as usize;
            if let Entry::Vacant(vacant) = expected.entry(slot) {
                let (offset, len) = (numbers.below(1 << 18), 1 + numbers.below(40_000));
                let command = match (slot, numbers.below(4)) {
                    (4, _) if framing != Framing::Simple => Command::BlockStatus,
                    (_, 0) => Command::Write { fua: true },
                    (_, 1) => Command::Trim,
                    _ => Command::Read,
                };
                let request = Request { command, offset, len };
                let mut out = Vec::new();
                client.replies.begin(slot, request, &mut out);
                client.bufs[slot] = vec![0xEE; len as usize];
                let header = parsed(framing, &out);
                assert_eq!((header.offset, header.len), (offset, len));
                asked.push(Asked { cookie: header.cookie, request });
                vacant.insert((request, None));
            }
            if numbers.below(2) == 0 && !asked.is_empty() {
                let nth = numbers.below(asked.len() as u64) as usize;
                let one = asked.swap_remove(nth);
                let result = reply(framing, one, &mut numbers, &mut stream);
                let slot = (one.cookie & 0xFFFF) as usize;
                expected.get_mut(&slot).expect("it was asked").1 = Some(result);
                // Feed whole replies: the owner of the connection waits for the data. The test
                // below feeds headers in pieces.
                input.append(&mut stream);
                client.take(&mut input);
            }
            for (slot, result) in client.ended.drain(..) {
                let (request, told) = expected.remove(&slot).expect("it is under way");
                assert_eq!(Some(result), told);
                nr_ended += 1;
                if request.command == Command::Read && result.is_ok() {
                    let range = request.offset..request.offset + request.len;
                    assert!(client.bufs[slot].iter().copied().eq(range.map(byte_at)));
                }
                if request.command == Command::BlockStatus {
                    let Request { len, .. } = request;
                    let told = core::mem::take(&mut client.extents);
                    assert!(told.is_empty() && result.is_err() || told == [len / 2, len]);
                }
            }
        }
        assert!(input.is_empty());
    }
}

#[test]
fn headers_that_come_in_pieces_say_the_same() {
    for framing in [Framing::Simple, Framing::Structured, Framing::Extended] {
        let mut numbers = Numbers(5);
        for _ in 0..300 {
            let mut replies = Transmission::new(&export(framing), 1);
            let command = match framing {
                Framing::Simple => Command::Flush,
                _ => [Command::Read, Command::BlockStatus][numbers.below(2) as usize],
            };
            let len = if command == Command::Flush { 0 } else { 20_000 };
            let request = Request { command, offset: 0x7000, len };
            replies.begin(0, request, &mut Vec::new());
            let mut stream = Vec::new();
            let result = reply(framing, Asked { cookie: 0, request }, &mut numbers, &mut stream);
            let (mut from, mut to, mut ended) = (0, 0, None);
            while ended.is_none() {
                let taken = replies.take(&stream[from..to]).expect("a good server");
                from += taken.consumed;
                match taken.event {
                    Event::More => to += 1,
                    Event::Data { len, .. } => {
                        from += len as usize;
                        to = to.max(from);
                    }
                    Event::Done { result, .. } => ended = Some(result),
                    Event::Zeroes { .. } | Event::Extent { .. } => {}
                }
            }
            assert_eq!(ended, Some(result));
            assert_eq!(from, stream.len());
        }
    }
}
