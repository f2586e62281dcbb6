//! Memory at the disk: buffers of the front, at addresses that the device uses.
//!
//! Memory of a read is filled with bytes that no client has written. So a reply that is sent before
//! the device has filled the memory is detected.

use forebay_core::Segment;
use std::fmt::Debug;

/// Bits of an address that hold the offset in a memory.
const SHIFT: u32 = 24;
/// The byte that fills the memory of a read.
const FREE: u8 = 0xee;

/// Memory of a read or a write. A driver of the core must be `Send`.
pub(crate) trait Memory: Debug + Send {
    /// Calls `look` with the bytes.
    fn with<R>(&mut self, look: impl FnOnce(&mut [u8]) -> R) -> R;
}

/// A piece of memory that the server has allocated.
pub(crate) type Piece = Box<[u8]>;

impl Memory for Piece {
    fn with<R>(&mut self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        look(self)
    }
}

/// The memories at the disk, by the number of their bio.
#[derive(Debug)]
pub(crate) struct Memories<M>(Vec<Option<M>>);

impl<M> Default for Memories<M> {
    fn default() -> Memories<M> {
        Memories(Vec::new())
    }
}

impl<M: Memory> Memories<M> {
    /// Takes the memory of a bio, of which the first `len` bytes are used.
    pub(crate) fn put(&mut self, number: u32, mut memory: M, len: u64, is_read: bool) -> Segment {
        let nr = memory.with(|bytes| {
            if is_read {
                bytes.fill(FREE);
            }
            bytes.len()
        });
        assert!(nr < 1 << SHIFT, "a memory ends before the address of the next one");
        assert!(len <= nr as u64, "an I/O stays within its memory");
        let number = number as usize;
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        let before = self.0[number].replace(memory);
        assert!(before.is_none(), "a bio has one memory");
        Segment { addr: (number + 1) << SHIFT, len: len as u32 }
    }

    /// Returns the memory of a bio that has ended.
    pub(crate) fn take(&mut self, number: u32) -> Option<M> {
        self.0.get_mut(number as usize)?.take()
    }

    /// Calls `look` with the `len` bytes at an address.
    pub(crate) fn at<R>(
        &mut self,
        addr: usize,
        len: usize,
        look: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let (number, at) = ((addr >> SHIFT) - 1, addr & ((1 << SHIFT) - 1));
        let memory = self.0[number].as_mut().expect("the disk owns the memory of its bios");
        memory.with(|bytes| look(&mut bytes[at..at + len]))
    }
}
