//! Receive buffer: bytes received but not parsed yet.

use crate::driver::vectors::Vector;

/// The size of the buffer: several dozen small replies with their data. Other data are received
/// directly into a request's memory. The part of a long read that arrives here is copied.
const LEN: usize = 64 << 10;

/// Bytes of a connection, in order.
#[derive(Debug)]
pub(super) struct Incoming {
    buf: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Incoming {
    pub(super) fn new() -> Incoming {
        Incoming { buf: vec![0; LEN].into(), from: 0, to: 0 }
    }

    /// Returns the received bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[self.from..self.to]
    }

    /// Removes the first `len` bytes, which are parsed.
    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        assert!(len <= self.to - self.from);
        self.from += len;
    }

    /// Returns the free space, which is never empty. Moves the received bytes to the front.
    pub(super) fn room(&mut self) -> Vector {
        self.buf.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        assert!(self.to < LEN, "what is looked at is shorter");
        Vector::of_mut(&mut self.buf[self.to..])
    }

    /// Adds `len` bytes that were received there.
    #[inline]
    pub(super) fn received(&mut self, len: usize) {
        assert!(len <= LEN - self.to);
        self.to += len;
    }
}
