//! Memory at the disk: pieces that the front has passed to it, at addresses that the device uses.
//!
//! A piece for a read is filled with bytes that no client has written. So a reply that is sent
//! before the device has filled the piece is detected.

use forebay_core::Segment;

/// Bits of an address that hold the offset in a piece.
const SHIFT: u32 = 24;
/// The byte that fills a piece for a read.
const FREE: u8 = 0xee;

/// A piece of memory.
pub(crate) type Piece = Box<[u8]>;

/// The pieces at the disk, by the number of their bio.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Vec<Option<Piece>>);

impl Pieces {
    /// Takes a piece for a bio, with the first `len` bytes as its memory.
    pub(crate) fn put(
        &mut self,
        number: u32,
        mut piece: Piece,
        len: u64,
        is_read: bool,
    ) -> Segment {
        assert!(piece.len() < 1 << SHIFT, "a piece ends before the address of the next one");
        if is_read {
            piece.fill(FREE);
        }
        let number = number as usize;
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        let before = self.0[number].replace(piece);
        assert!(before.is_none(), "a bio has one piece");
        Segment { addr: (number + 1) << SHIFT, len: len as u32 }
    }

    /// Returns the piece of a bio that has ended.
    pub(crate) fn take(&mut self, number: u32) -> Option<Piece> {
        self.0.get_mut(number as usize)?.take()
    }

    /// Returns the bytes at an address.
    pub(crate) fn at(&mut self, addr: usize, len: usize) -> &mut [u8] {
        let (number, at) = ((addr >> SHIFT) - 1, addr & ((1 << SHIFT) - 1));
        let piece = self.0[number].as_mut().expect("the disk owns the memory of its bios");
        &mut piece[at..at + len]
    }
}
