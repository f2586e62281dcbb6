//! Replies to requests.

use alloc::vec::Vec;

use super::answers::BASE_ALLOCATION_ID;
use super::extents::each;
use super::transmission::{Command, Request, Transmission};
use crate::wire::numbers::{REPLY_ERROR, REPLY_FLAG_DONE, REPLY_NONE, REPLY_OFFSET_DATA};
use crate::wire::{
    ChunkHeader, ErrorChunk, Framing, Head, NbdError, SimpleReply, Sink, StatusChunk, clip,
};

/// Most extents of a reply: a client sends another request for the rest. They take half a mebibyte,
/// or one with extended headers.
const NR_EXTENTS_MAX: usize = 1 << 16;

impl Transmission {
    /// Returns the reply to a request that succeeded, without data. After [`data`](Self::data) it
    /// is sent only if no chunk was marked as the last.
    #[inline]
    pub fn done(&self, rq: &Request) -> Head {
        let mut head = Head::EMPTY;
        let is_read = matches!(rq.command, Ok(Command::Read { .. }));
        // Only reads need chunks, and a simple reply is shorter.
        if self.framing == Framing::Simple || (self.framing == Framing::Structured && !is_read) {
            SimpleReply { error: 0, cookie: rq.cookie }.emit(&mut head);
        } else {
            self.chunk(rq, REPLY_NONE, 0, true).emit(self.framing, &mut head);
        }
        head
    }

    /// Returns the header of `len` bytes of data from offset `at` of the export; `len` is not 0.
    /// With simple replies only the first part has a header, and the parts are sent in order. With
    /// DF there is one part, which is the first and the last.
    #[inline]
    pub fn data(&self, rq: &Request, at: u64, len: u32, is_first: bool, is_last: bool) -> Head {
        let mut head = Head::EMPTY;
        if self.framing != Framing::Simple {
            let payload_len = u64::from(len).saturating_add(8);
            self.chunk(rq, REPLY_OFFSET_DATA, payload_len, is_last).emit(self.framing, &mut head);
            head.put_u64(at);
        } else if is_first {
            SimpleReply { error: 0, cookie: rq.cookie }.emit(&mut head);
        }
        head
    }

    /// Appends the whole reply to a request that failed. Simple replies have no message. `ENOTSUP`
    /// is only allowed for WRITE_ZEROES with FAST_ZERO; for other requests it becomes `EINVAL`.
    pub fn error(&self, rq: &Request, error: NbdError, message: &str, out: &mut Vec<u8>) {
        let is_fast = matches!(rq.command, Ok(Command::WriteZeroes { fast: true, .. }));
        let error = if error == NbdError::NotSup && !is_fast { NbdError::Inval } else { error };
        if self.framing == Framing::Simple {
            SimpleReply { error: error.number(), cookie: rq.cookie }.emit(out);
            return;
        }
        let message = clip(message).as_bytes();
        let payload = ErrorChunk { error: error.number(), message, offset: None };
        self.chunk(rq, REPLY_ERROR, payload.payload_len(), true).emit(self.framing, out);
        payload.emit(out);
    }

    /// Returns whether an error may follow [`data`](Self::data). If not, close the connection
    /// instead.
    #[inline]
    pub fn can_fail_late(&self) -> bool {
        self.framing != Framing::Simple
    }

    /// Appends the whole reply to BLOCK_STATUS. `extents` are lengths in bytes with `STATE_*`
    /// flags, from the offset of the request on. Extents beyond the request are cut off, neighbours
    /// with equal flags are joined, and a block in two extents gets the flags that both have. If
    /// the extents cover no whole block, the reply says that all is data.
    pub fn extents(&self, rq: &Request, extents: &[(u64, u32)], out: &mut Vec<u8>) {
        let nr_max =
            if rq.command == Ok(Command::BlockStatus { one: true }) { 1 } else { NR_EXTENTS_MAX };
        let [end, mask] = [rq.len, self.block_mask()];
        // Count first, since the header contains the length.
        let mut nr_extents: u32 = 0;
        each(extents, end, mask, nr_max, |_, _| nr_extents = nr_extents.saturating_add(1));
        let (kind, payload_len) = StatusChunk::shape(self.framing, nr_extents);
        self.chunk(rq, kind, payload_len, true).emit(self.framing, out);
        StatusChunk::emit_start(self.framing, BASE_ALLOCATION_ID, nr_extents, out);
        each(extents, end, mask, nr_max, |len, flags| {
            StatusChunk::emit_extent(self.framing, len, flags, out);
        });
    }

    #[inline]
    fn chunk(&self, rq: &Request, kind: u16, len: u64, is_last: bool) -> ChunkHeader {
        let flags = if is_last { REPLY_FLAG_DONE } else { 0 };
        ChunkHeader { flags, kind, cookie: rq.cookie, offset: rq.offset, len }
    }
}
