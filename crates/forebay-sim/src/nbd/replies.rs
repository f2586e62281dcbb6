//! Parser of the replies to a client's requests.

use super::client::{Client, Live, Phase, Shared};
use super::met::Met;
use super::pending::{Expected, Pending};
use super::rules::{N1, N2};
use crate::check::Broken;
use crate::sectors::{End, Kind};
use crate::server::Context;
use forebay_nbd::wire::numbers::*;
use forebay_nbd::wire::{
    ChunkHeader, ErrorChunk, Framing, Hole, SimpleReply, StatusChunk, reply_magic,
};

/// The server sends no longer chunk than this.
const CHUNK_MAX: u64 = 1 << 20;

fn wrong<T>(rule: &'static str, what: String) -> Result<T, Broken> {
    Err(Broken::new(rule, what))
}

impl Client {
    /// Takes one message from the input, if a whole one has arrived.
    pub(super) fn take(&mut self, shared: &mut Shared, cx: &mut Context) -> Result<bool, Broken> {
        let Some(live) = &mut self.live else { return Ok(false) };
        if let Some(handshake) = live.handshake.take() {
            return live.negotiate(handshake, shared, cx);
        }
        if live.library.is_some() {
            return self.take_by_library(shared, cx);
        }
        match live.phase {
            Phase::Greeting => return live.greeted(cx),
            Phase::Options => return live.answered(shared, cx),
            Phase::Ready | Phase::Leaving => {}
            // Replies to the remaining options do not matter any more.
            Phase::Doomed if !live.asks.is_empty() => return Ok(false),
            Phase::Doomed => {}
        }
        if live.input.len() < 4 {
            return Ok(false);
        }
        let over = match (reply_magic(&live.input), live.framing) {
            (Some(SIMPLE_REPLY_MAGIC), Framing::Simple | Framing::Structured) => live.simple()?,
            (Some(STRUCTURED_REPLY_MAGIC), Framing::Structured)
            | (Some(EXTENDED_REPLY_MAGIC), Framing::Extended) => live.chunk()?,
            (magic, framing) => return wrong(N1, format!("magic {magic:x?} where {framing:?}")),
        };
        match over {
            Took::Nothing => Ok(false),
            Took::Part => Ok(true),
            Took::All(pending) => self.finish(*pending, shared, cx).map(|()| true),
        }
    }

    /// Checks and logs a request that has its whole reply.
    pub(super) fn finish(
        &mut self,
        pending: Pending,
        shared: &mut Shared,
        cx: &mut Context,
    ) -> Result<(), Broken> {
        let is_done = pending.over(shared.may_fail)?;
        shared.log.nr_answers += 1;
        if let Some(live) = &mut self.live {
            live.nr_answers += 1;
        }
        let error = pending.error.unwrap_or(0);
        let met = match (is_done, pending.expected) {
            (true, _) => Met::Good,
            (false, Expected::Refused(_)) => Met::Refused,
            (false, _) => Met::Failed,
        };
        cx.note(met, pending.cookie, error.into());
        let parses_itself = self.live.as_ref().is_some_and(|live| live.library.is_none());
        if is_done && parses_itself && pending.nr_chunks() > 1 {
            cx.note(Met::Chunks, pending.offset, pending.nr_chunks().into());
        }
        if met == Met::Failed && pending.nr_chunks() > 0 {
            cx.note(Met::FailedLate, pending.offset, pending.nr_chunks().into());
        }
        cx.trace.bytes(&pending.data);
        let Some(op) = pending.op else { return Ok(()) };
        let op = &mut shared.log.ops[op];
        if is_done {
            if let Kind::Read(values) = &mut op.kind {
                *values = pending.values();
            }
            op.end = End::Ok(cx.mark());
        }
        Ok(())
    }
}

/// Progress in the input.
enum Took {
    /// Nothing: more bytes must arrive.
    Nothing,
    /// A part of a reply.
    Part,
    /// The last part of a reply.
    All(Box<Pending>),
}

impl Live {
    fn of_cookie(&mut self, cookie: u64) -> Result<&mut Pending, Broken> {
        let conn = self.conn;
        match self.pending.get_mut(&cookie) {
            Some(pending) => Ok(pending),
            None => wrong(N2, format!("connection {conn}: no request has cookie {cookie:x}")),
        }
    }

    fn finished(&mut self, cookie: u64) -> Took {
        let pending = self.pending.remove(&cookie).expect("looked up before");
        Took::All(Box::new(pending))
    }

    fn simple(&mut self) -> Result<Took, Broken> {
        let Some(reply) = self.input.get(..SimpleReply::LEN).and_then(SimpleReply::parse) else {
            return Ok(Took::Nothing);
        };
        let (is_simple, input_len) = (self.framing == Framing::Simple, self.input.len());
        let pending = self.of_cookie(reply.cookie)?;
        let mut end = SimpleReply::LEN;
        if reply.error != 0 {
            pending.failed(reply.error)?;
        } else if pending.is_read && pending.expected == Expected::Good {
            if !is_simple {
                return wrong(N1, "a simple reply to a read, where replies are structured".into());
            }
            end += pending.len as usize;
            if input_len < end {
                return Ok(Took::Nothing);
            }
            let data = self.input[SimpleReply::LEN..end].to_vec();
            let pending = self.of_cookie(reply.cookie)?;
            pending.part(pending.offset, pending.len, Some(&data))?;
        }
        self.input.drain(..end);
        Ok(self.finished(reply.cookie))
    }

    fn chunk(&mut self) -> Result<Took, Broken> {
        let (header, header_len) = match self.framing {
            Framing::Extended => (ChunkHeader::parse_extended(&self.input), 32),
            _ => (ChunkHeader::parse_structured(&self.input), 20),
        };
        let Some(header) = header else { return Ok(Took::Nothing) };
        if header.len > CHUNK_MAX || header.flags & !REPLY_FLAG_DONE != 0 {
            return wrong(N1, format!("{header:?}"));
        }
        let end = header_len + header.len as usize;
        if self.input.len() < end {
            return Ok(Took::Nothing);
        }
        let message: Vec<u8> = self.input.drain(..end).collect();
        let is_extended = self.framing == Framing::Extended;
        let pending = self.of_cookie(header.cookie)?;
        if is_extended && header.offset != pending.offset {
            return wrong(N2, format!("{header:?} of a request at {}", pending.offset));
        }
        let is_last = header.flags & REPLY_FLAG_DONE != 0;
        take_payload(pending, &header, &message[header_len..], is_last)?;
        Ok(if is_last { self.finished(header.cookie) } else { Took::Part })
    }
}

/// Records the contents of a chunk.
fn take_payload(
    pending: &mut Pending,
    header: &ChunkHeader,
    payload: &[u8],
    is_last: bool,
) -> Result<(), Broken> {
    match header.kind {
        REPLY_NONE if payload.is_empty() && is_last => Ok(()),
        REPLY_OFFSET_DATA if payload.len() > 8 => {
            let (at, data) = payload.split_at(8);
            let at = u64::from_be_bytes(at.try_into().expect("8 bytes"));
            pending.part(at, data.len() as u64, Some(data))
        }
        REPLY_OFFSET_HOLE => match Hole::parse(payload) {
            Some(hole) => pending.part(hole.offset, hole.len.into(), None),
            None => wrong(N1, format!("{header:?}")),
        },
        REPLY_BLOCK_STATUS | REPLY_BLOCK_STATUS_EXT => {
            match StatusChunk::parse(header.kind, payload) {
                Some(status) => {
                    let is_zero = |flags: u64| flags & u64::from(STATE_ZERO) != 0;
                    let extents = status.extents.map(|(len, flags)| (len, is_zero(flags)));
                    pending.add_extents(extents.collect())
                }
                None => wrong(N1, format!("{header:?}")),
            }
        }
        kind => match ErrorChunk::parse(kind, payload) {
            Some(error) => pending.failed(error.error),
            None => wrong(N1, format!("{header:?}")),
        },
    }
}
