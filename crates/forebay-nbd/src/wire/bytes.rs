//! Taking numbers off bytes that a peer sent, and putting them on bytes to send.

use alloc::vec::Vec;

/// Bytes of a peer, taken off one after another. What is not there is `None`, and nothing is taken.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Begins with the first of `bytes`.
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

    /// The next two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// A string with its length in four bytes before it. The length of a string that is whole may
    /// still be beyond [`STRING_MAX`](super::numbers::STRING_MAX).
    #[inline]
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let len = usize::try_from(ahead.u32()?).ok()?;
        let string = ahead.take(len)?;
        *self = ahead;
        Some(string)
    }

    /// All that is left.
    #[inline]
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Whether nothing is left.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Where bytes to send are put, one after another.
pub trait Sink {
    /// Puts them behind the others.
    fn put(&mut self, bytes: &[u8]);

    /// Two bytes.
    #[inline]
    fn put_u16(&mut self, number: u16) {
        self.put(&number.to_be_bytes());
    }

    /// Four bytes.
    #[inline]
    fn put_u32(&mut self, number: u32) {
        self.put(&number.to_be_bytes());
    }

    /// Eight bytes.
    #[inline]
    fn put_u64(&mut self, number: u64) {
        self.put(&number.to_be_bytes());
    }

    /// A string, with its length in four bytes before it.
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

/// A length of ours for a field of 32 bits: everything of ours is far shorter.
#[inline]
pub(super) fn len_u32(len: usize) -> u32 {
    debug_assert!(u32::try_from(len).is_ok(), "{len} bytes in one message");
    u32::try_from(len).unwrap_or(u32::MAX)
}
