//! The server's memory: buffers with addresses, which the device uses.
//!
//! A free buffer is full of bytes that no client has written. So a use that is too early or too
//! late is detected.

use forebay_core::Segment;

/// Bits of an address that hold the offset in a buffer.
const SHIFT: u32 = 24;
/// The byte that fills a free buffer.
const FREE: u8 = 0xee;

/// A buffer of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufId(usize);

/// The pool.
#[derive(Debug)]
pub(crate) struct Memory {
    bufs: Vec<Vec<u8>>,
    free: Vec<BufId>,
}

impl Memory {
    pub(crate) fn new(nr_bufs: usize, len: usize) -> Memory {
        assert!(len < 1 << SHIFT, "a buffer ends before the next one's address");
        Memory { bufs: vec![vec![FREE; len]; nr_bufs], free: (0..nr_bufs).map(BufId).collect() }
    }

    pub(crate) fn take(&mut self) -> Option<BufId> {
        self.free.pop()
    }

    pub(crate) fn give(&mut self, buf: BufId) {
        self.bufs[buf.0].fill(FREE);
        self.give_as_it_is(buf);
    }

    /// Frees a buffer with its contents: a planted bug.
    pub(crate) fn give_as_it_is(&mut self, buf: BufId) {
        assert!(!self.free.contains(&buf), "a buffer is given back once");
        self.free.push(buf);
    }

    pub(crate) fn nr_free(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of buffers in use.
    pub(crate) fn nr_taken(&self) -> usize {
        self.bufs.len() - self.free.len()
    }

    pub(crate) fn bytes(&mut self, buf: BufId) -> &mut [u8] {
        &mut self.bufs[buf.0]
    }

    /// Returns a part of a buffer, for the device.
    pub(crate) fn segment(&self, buf: BufId, at: u64, len: u64) -> Segment {
        Segment { addr: ((buf.0 + 1) << SHIFT) + at as usize, len: len as u32 }
    }

    /// Returns the bytes at an address.
    pub(crate) fn at(&mut self, addr: usize, len: usize) -> &mut [u8] {
        let (buf, at) = ((addr >> SHIFT) - 1, addr & ((1 << SHIFT) - 1));
        &mut self.bufs[buf][at..at + len]
    }
}
