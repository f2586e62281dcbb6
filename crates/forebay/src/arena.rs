//! Arena: memory that a disk's driver has registered with its device. Buffers are taken from it and
//! returned to it.
//!
//! Buffers and drivers share ownership, because rings have registered its addresses. If it were
//! unmapped before a ring is closed, I/O on new memory at its addresses would reach the old pages.
// It maps memory and hands out addresses.
#![allow(unsafe_code)]

use crate::sys::primitive::{Mutex, lock};
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// The alignment of every buffer in bytes: a page, which suits direct I/O on any device.
pub const BUF_ALIGN: usize = 4096;

/// A memory range that is allocated in whole pages.
pub(crate) struct Arena {
    ptr: NonNull<u8>,
    len: usize,
    /// The free ranges in order, never adjacent: (offset, length) in bytes.
    free: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: the arena owns its mapping. One owner at a time uses a part, between `take` and
// `give_back`, which hand it over under the lock.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// Returns the kernel's error if there is no room.
    pub(crate) fn new(len: usize) -> io::Result<Arc<Arena>> {
        let len = len.next_multiple_of(BUF_ALIGN);
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping replaces nothing.
        let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ptr = NonNull::new(ptr.cast()).expect("a mapping is not at address 0");
        Ok(Arc::new(Arena { ptr, len, free: Mutex::new(vec![(0, len)]) }))
    }

    /// Returns the address of the first byte.
    pub(crate) fn addr(&self) -> usize {
        self.ptr.as_ptr().expose_provenance()
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Takes a page-aligned part of `len` bytes. Its contents are those of a former owner. Returns
    /// `None` if no free range is long enough. Uses first fit: short-lived parts stay in front, and
    /// large ranges at the back remain whole.
    pub(crate) fn take(&self, len: usize) -> Option<NonNull<u8>> {
        let len = len.checked_next_multiple_of(BUF_ALIGN)?;
        let mut free = lock(&self.free);
        let at = free.iter().position(|(_, free)| *free >= len)?;
        let (offset, left) = free[at];
        match left - len {
            0 => drop(free.remove(at)),
            left => free[at] = (offset + len, left),
        }
        // SAFETY: the part is within the mapping.
        Some(unsafe { self.ptr.add(offset) })
    }

    /// Returns a part to the arena.
    ///
    /// # Panics
    /// Panics if the part was not taken from this arena.
    pub(crate) fn give_back(&self, part: NonNull<u8>, len: usize) {
        let len = len.next_multiple_of(BUF_ALIGN);
        let offset = part.addr().get() - self.ptr.addr().get();
        let mut free = lock(&self.free);
        let at = free.partition_point(|(other, _)| *other < offset);
        let before = at.checked_sub(1).map(|before| free[before]);
        let after = free.get(at).copied();
        assert!(offset + len <= after.map_or(self.len, |(other, _)| other), "it was taken");
        assert!(before.is_none_or(|(other, len)| other + len <= offset), "it was taken");
        let joins_before = before.is_some_and(|(other, len)| other + len == offset);
        let joins_after = after.is_some_and(|(other, _)| offset + len == other);
        match (joins_before, joins_after) {
            (true, true) => {
                free[at - 1].1 += len + free[at].1;
                free.remove(at);
            }
            (true, false) => free[at - 1].1 += len,
            (false, true) => free[at] = (offset, len + free[at].1),
            (false, false) => free.insert(at, (offset, len)),
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; no part is in use any more.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(miri), not(blk_loom), not(blk_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_come_back_in_any_order() {
        const PAGES: usize = 64;
        let arena = Arena::new(PAGES * BUF_ALIGN - 1).expect("memory");
        let mut random = 7_u64;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let mut taken: Vec<(NonNull<u8>, usize)> = Vec::new();
        for _ in 0..2000 {
            let len = 1 + draw(5 * BUF_ALIGN);
            match (draw(2), arena.take(len)) {
                (1, Some(part)) => taken.push((part, len)),
                (_, part) => {
                    part.into_iter().for_each(|part| arena.give_back(part, len));
                    if !taken.is_empty() {
                        let (part, len) = taken.swap_remove(draw(taken.len()));
                        arena.give_back(part, len);
                    }
                }
            }
            let mut ends: Vec<_> = taken.iter().map(|(at, len)| (at.addr().get(), *len)).collect();
            ends.sort_unstable();
            assert!(ends.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
            assert!(ends.iter().all(|(at, _)| at % BUF_ALIGN == 0));
        }
        taken.into_iter().for_each(|(part, len)| arena.give_back(part, len));
        assert_eq!(*lock(&arena.free), [(0, PAGES * BUF_ALIGN)], "all of it is one stretch again");
        assert!(arena.take(PAGES * BUF_ALIGN + 1).is_none());
    }

    #[test]
    #[should_panic(expected = "it was taken")]
    fn free_piece_cannot_be_returned() {
        let arena = Arena::new(4 * BUF_ALIGN).expect("memory");
        let part = arena.take(BUF_ALIGN).expect("there is room");
        arena.give_back(part, BUF_ALIGN);
        arena.give_back(part, BUF_ALIGN);
    }
}
