//! Replies to requests.

use alloc::vec::Vec;

use super::answers::BASE_ALLOCATION_ID;
use super::extents::each;
use super::transmission::{Command, Request, Transmission};
use crate::wire::numbers::{REPLY_ERROR, REPLY_FLAG_DONE, REPLY_NONE, REPLY_OFFSET_DATA};
use crate::wire::{
    ChunkHeader, ErrorChunk, Framing, Head, NbdError, SimpleReply, Sink, StatusChunk, clip,
};

/// How many extents a reply has at most: a client asks again where they end. It makes half a
/// mebibyte, or one with extended headers.
const NR_EXTENTS_MAX: usize = 1 << 16;

impl Transmission {
    /// It succeeded, and that is all. After [`data`](Self::data) only if none was told to be the
    /// last.
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

    /// What goes before `len` bytes of data, `len` not 0, that stand at `at` on the export. With
    /// simple replies the first has a header and the others have none, and they go out in order.
    /// With DF there is one, which is the first and the last.
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

    /// It failed; the reply is whole. With simple replies the message is not sent. `ENOTSUP`, which
    /// only answers a request to write zeroes fast, is told as `EINVAL` elsewhere.
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

    /// Whether an error may follow [`data`](Self::data). Where it may not, the connection has to be
    /// closed instead.
    #[inline]
    pub fn can_fail_late(&self) -> bool {
        self.framing != Framing::Simple
    }

    /// The whole reply to BLOCK_STATUS: lengths in bytes with `STATE_*` flags, from the request's
    /// offset on. What is beyond the request is cut off, neighbours of one state are joined, and a
    /// block that lies in two of them gets what both have. Extents that cover nothing are told as
    /// data.
    pub fn extents(&self, rq: &Request, extents: &[(u64, u32)], out: &mut Vec<u8>) {
        let nr_max =
            if rq.command == Ok(Command::BlockStatus { one: true }) { 1 } else { NR_EXTENTS_MAX };
        let [end, mask] = [rq.len, self.block_mask()];
        // Counted first, because the header comes first and has the length.
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
