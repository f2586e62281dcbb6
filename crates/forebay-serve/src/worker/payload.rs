//! Payload of a write that is being received: its progress, piece by piece.

use super::slots::Key;
use forebay::Buf;

/// Progress of a payload.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) flight: Key,
    /// Buffer of the current piece. `None`: there is no memory for it yet.
    pub(crate) buf: Option<Buf>,
    /// Bytes of the piece that were received.
    pub(crate) filled: usize,
    /// Length of the piece, bytes.
    pub(crate) piece_len: usize,
    /// Time when the memory of the piece was lent, ns.
    pub(crate) lent_ns: u64,
    /// Offset of the piece on the disk, bytes.
    pub(crate) at: u64,
    /// Bytes of the payload from the start of the piece on.
    pub(crate) left: u64,
}

impl Payload {
    /// Begins the next piece: `len` bytes in `buf`.
    #[inline]
    pub(super) fn lay_out(&mut self, buf: Buf, len: usize, now_ns: u64) {
        (self.piece_len, self.filled, self.buf, self.lent_ns) = (len, 0, Some(buf), now_ns);
    }

    /// Returns whether the client holds the memory of an incomplete piece for longer than
    /// `limit_ns`.
    pub(super) fn is_stalled(&self, now_ns: u64, limit_ns: u64) -> bool {
        self.buf.is_some() && !self.is_full() && now_ns.saturating_sub(self.lent_ns) >= limit_ns
    }

    /// Records that `nr` bytes were received, of which the first are in the buffer of the piece
    /// already. Returns how many these are.
    #[inline]
    pub(crate) fn received(&mut self, nr: usize) -> usize {
        let now = nr.min(self.piece_len - self.filled);
        self.filled += now;
        now
    }

    /// Returns whether the current piece is the last one.
    pub(crate) fn is_last_piece(&self) -> bool {
        self.left == self.piece_len as u64
    }

    /// Returns whether the piece is complete.
    pub(crate) fn is_full(&self) -> bool {
        self.buf.is_some() && self.filled == self.piece_len
    }
}
