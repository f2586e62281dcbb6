//! Payload of a write that is being received: its progress, piece by piece.

use crate::slots::Key;
use crate::stream::Piece;

/// Progress of a payload.
#[derive(Debug)]
pub(crate) struct Payload<P> {
    flight: Key,
    /// Memory of the current piece. `None`: there is no memory for it yet.
    buf: Option<P>,
    /// Bytes of the piece that were received.
    filled: usize,
    /// Length of the piece, bytes.
    piece_len: usize,
    /// Time when the memory of the piece was lent, ns.
    lent_ns: u64,
    /// Offset of the piece on the disk, bytes.
    at: u64,
    /// Bytes of the payload from the start of the piece on.
    left: u64,
}

impl<P: Piece> Payload<P> {
    /// Returns a payload of `len` bytes for offset `at` of the disk. Its first piece has no memory.
    #[inline]
    pub(super) fn new(flight: Key, at: u64, len: u64) -> Payload<P> {
        Payload { flight, buf: None, filled: 0, piece_len: 0, lent_ns: 0, at, left: len }
    }

    /// Returns the key of the write.
    #[inline]
    pub(super) fn flight(&self) -> Key {
        self.flight
    }

    /// Returns how many bytes the next piece should have, at most `max`. `None`: the current piece
    /// has memory.
    #[inline]
    pub(super) fn wanted(&self, max: usize) -> Option<usize> {
        self.buf.is_none().then(|| self.left.min(max as u64) as usize)
    }

    /// Begins the next piece: `len` bytes in `buf`.
    #[inline]
    pub(super) fn lay_out(&mut self, buf: P, len: usize, now_ns: u64) {
        (self.piece_len, self.filled, self.buf, self.lent_ns) = (len, 0, Some(buf), now_ns);
    }

    /// Copies bytes to the piece, which has memory. Returns how many fitted.
    #[inline]
    pub(super) fn copy(&mut self, bytes: &[u8]) -> usize {
        let Some(buf) = &mut self.buf else { return 0 };
        let now = bytes.len().min(self.piece_len - self.filled);
        buf[self.filled..self.filled + now].copy_from_slice(&bytes[..now]);
        self.filled += now;
        now
    }

    /// Takes the memory of the piece, to receive into it.
    #[inline]
    pub(super) fn take_buf(&mut self) -> Option<P> {
        self.buf.take()
    }

    /// Returns the memory of the piece, or the memory of a complete piece that was refused.
    #[inline]
    pub(super) fn put_buf(&mut self, buf: Option<P>) {
        self.buf = buf;
    }

    /// Returns which bytes of the piece were not received.
    #[inline]
    pub(super) fn missing(&self) -> std::ops::Range<usize> {
        self.filled..self.piece_len
    }

    /// Returns the offset of the piece on the disk, and its length, bytes.
    #[inline]
    pub(super) fn range(&self) -> (u64, usize) {
        (self.at, self.piece_len)
    }

    /// Returns whether the client holds the memory of an incomplete piece for longer than
    /// `limit_ns`.
    pub(super) fn is_stalled(&self, now_ns: u64, limit_ns: u64) -> bool {
        self.buf.is_some() && !self.is_full() && now_ns.saturating_sub(self.lent_ns) >= limit_ns
    }

    /// Records that `nr` bytes were received, of which the first are in the buffer of the piece
    /// already. Returns how many these are.
    #[inline]
    pub(super) fn received(&mut self, nr: usize) -> usize {
        let now = nr.min(self.piece_len - self.filled);
        self.filled += now;
        now
    }

    /// Returns whether the current piece is the last one.
    #[inline]
    pub(super) fn is_last_piece(&self) -> bool {
        self.left == self.piece_len as u64
    }

    /// Returns whether the piece is complete.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.buf.is_some() && self.filled == self.piece_len
    }

    /// Moves on to the next piece, which has no memory yet. Returns whether there is one.
    #[inline]
    pub(super) fn next_piece(&mut self) -> bool {
        self.at += self.piece_len as u64;
        self.left -= self.piece_len as u64;
        self.left > 0
    }
}
