//! Reading numbers from received bytes, and writing them to bytes to send.

use alloc::vec::Vec;

/// Reader of received bytes. A read that finds too few bytes returns `None` and consumes none.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Returns a reader that begins with the first of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    #[inline]
    fn array<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (array, rest) = self.0.split_first_chunk::<LEN>()?;
        self.0 = rest;
        Some(*array)
    }

    /// Reads a number of two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a number of four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a number of eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a string with a length of four bytes in front of it. It may be longer than
    /// [`STRING_MAX`](super::numbers::STRING_MAX).
    #[inline]
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let len = usize::try_from(ahead.u32()?).ok()?;
        let string = ahead.take(len)?;
        *self = ahead;
        Some(string)
    }

    /// Returns the bytes that have not been read.
    #[inline]
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Returns whether all bytes have been read.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Buffer for bytes to send.
pub trait Sink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Appends a number of two bytes.
    #[inline]
    fn put_u16(&mut self, number: u16) {
        self.put(&number.to_be_bytes());
    }

    /// Appends a number of four bytes.
    #[inline]
    fn put_u32(&mut self, number: u32) {
        self.put(&number.to_be_bytes());
    }

    /// Appends a number of eight bytes.
    #[inline]
    fn put_u64(&mut self, number: u64) {
        self.put(&number.to_be_bytes());
    }

    /// Appends a string, with a length of four bytes in front of it.
    #[inline]
    fn put_string(&mut self, string: &[u8]) {
        self.put_u32(len_u32(string.len()));
        self.put(string);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Converts a length for a field of 32 bits. All messages of this crate are far shorter.
#[inline]
pub(super) fn len_u32(len: usize) -> u32 {
    debug_assert!(u32::try_from(len).is_ok(), "{len} bytes in one message");
    u32::try_from(len).unwrap_or(u32::MAX)
}
