//! What was received and not looked at yet.

use crate::driver::vectors::Vector;

/// How much is received at once, but for data that go to a request's memory straight away: some
/// dozen small replies with their data. What of a long read is here by chance is copied.
const LEN: usize = 64 << 10;

/// Bytes of a connection, front to back.
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

    /// What was received.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[self.from..self.to]
    }

    /// The first `len` of them were looked at.
    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        assert!(len <= self.to - self.from);
        self.from += len;
    }

    /// Where more can be received: never none. What is here moves to the front.
    pub(super) fn room(&mut self) -> Vector {
        self.buf.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        assert!(self.to < LEN, "what is looked at is shorter");
        Vector::of_mut(&mut self.buf[self.to..])
    }

    /// So many bytes were received there.
    #[inline]
    pub(super) fn received(&mut self, len: usize) {
        assert!(len <= LEN - self.to);
        self.to += len;
    }
}
