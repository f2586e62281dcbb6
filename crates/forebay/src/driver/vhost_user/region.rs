//! Memory shared with the server: one sealed memory file, mapped once.
//!
//! The server can write to all of it at any time, and it is not trusted. So code here never makes a
//! reference to its bytes. Single values are atomic, and blocks of data are copied in and out. Each
//! access is checked against the length of the mapping. The file cannot shrink (`F_SEAL_SHRINK`),
//! so an access never meets a page that is gone. This side closes it once the server has it: the
//! mapping stays, and Landlock has no rule for such files, which `forebay serve` would need.
//!
//! No address of this process reaches the server: an address in a ring is [`BASE`] plus an offset.
// It maps memory, and copies from and to the addresses of segments.
#![allow(unsafe_code)]

use crate::driver::vectors::Vector;
use forebay_core::Segment;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// The address of the first byte in the address space that the server sees. Any number serves that
/// is a multiple of a huge page and is not 0, which some servers take for an error.
pub(super) const BASE: u64 = 1 << 32;

/// The unit of the length: a huge page. Some servers register memory with devices in this unit.
const UNIT: usize = 2 << 20;

#[derive(Debug)]
pub(super) struct Region {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the region owns its mapping, and all accesses are atomic or made by the owner of a part.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` zero bytes, rounded up to the unit. Pages take memory once they are used. Returns
    /// the memory file too, for the server.
    ///
    /// # Errors
    /// The OS error of the call that failed.
    pub(super) fn new(len: usize) -> io::Result<(Region, OwnedFd)> {
        let len = len.next_multiple_of(UNIT);
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a constant string that ends with a zero byte, and a number.
        let fd = unsafe { libc::memfd_create(c"forebay vhost-user".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and no other value owns it.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: numbers only.
        succeed(unsafe { libc::ftruncate(fd, length) })?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: numbers only.
        succeed(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) })?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file of this length replaces nothing.
        let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ptr = NonNull::new(ptr.cast()).expect("a mapping is not at address 0");
        Ok((Region { ptr, len }, file))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns a pointer to `len` bytes at an offset.
    ///
    /// # Panics
    /// Panics if they are not all within the region, or not aligned.
    #[inline]
    fn at(&self, offset: usize, len: usize, align: usize) -> *mut u8 {
        let is_within = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(is_within && offset.is_multiple_of(align), "an access stays within the region");
        // SAFETY: the offset is within the mapping.
        unsafe { self.ptr.as_ptr().add(offset) }
    }

    #[inline]
    pub(super) fn u8_at(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: a mapped byte, as long as `self` is borrowed. This process accesses it through
        // this function only. The server may change it at any time, as another thread may.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1, 1)) }
    }

    #[inline]
    pub(super) fn u16_at(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: as for `u8_at`. The mapping is aligned to pages, and the offset was checked.
        unsafe { AtomicU16::from_ptr(self.at(offset, 2, 2).cast()) }
    }

    #[inline]
    pub(super) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as for `u16_at`.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4, 4).cast()) }
    }

    #[inline]
    pub(super) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as for `u16_at`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8, 8).cast()) }
    }

    /// Copies the memory of segments to `offset`, at most `max` bytes. Returns the number of bytes.
    ///
    /// # Safety
    /// The segments are readable, and nothing writes to them meanwhile.
    #[inline]
    pub(super) unsafe fn gather(
        &self,
        offset: usize,
        max: usize,
        segments: impl Iterator<Item = Segment>,
    ) -> usize {
        let mut nr = 0;
        for segment in segments {
            let len = (segment.len as usize).min(max - nr);
            let from = std::ptr::with_exposed_provenance::<u8>(segment.addr);
            // SAFETY: the caller vouches for the source, and `at` checks the destination. A segment
            // is memory of a caller, so it does not overlap the region. If the server writes to
            // the destination meanwhile, it spoils only its own input.
            unsafe { std::ptr::copy_nonoverlapping(from, self.at(offset + nr, len, 1), len) };
            nr += len;
        }
        nr
    }

    /// Copies `len` bytes at `offset` to the memory of a request.
    ///
    /// # Safety
    /// The vectors are writable, and nothing else uses that memory.
    #[inline]
    pub(super) unsafe fn scatter(&self, offset: usize, len: usize, vectors: &[Vector]) {
        let mut nr = 0;
        for vector in vectors {
            let part = vector.len().min(len - nr);
            let from = self.at(offset + nr, part, 1).cast_const();
            // SAFETY: `at` checks the source, and the caller vouches for the destination. They do
            // not overlap, as above. If the server writes to the source meanwhile, the copy
            // receives other bytes, on which no decision here depends.
            unsafe { std::ptr::copy_nonoverlapping(from, vector.addr().cast(), part) };
            nr += part;
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no reference to it is left.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}

fn succeed(answer: i32) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::atomic::Ordering;

    #[test]
    fn file_cannot_shrink_under_the_mapping() {
        let (region, file) = Region::new(1).expect("memory");
        let file = File::from(file);
        assert!(file.set_len(0).is_err() && file.set_len(region.len() as u64 * 2).is_err());
        region.u64_at(region.len() - 8).store(7, Ordering::Relaxed);
        assert_eq!(region.u8_at(region.len() - 8).load(Ordering::Relaxed), 7u64.to_ne_bytes()[0]);
    }

    #[test]
    #[should_panic(expected = "within the region")]
    fn access_beyond_the_end_panics() {
        let (region, _) = Region::new(1).expect("memory");
        region.u32_at(region.len() - 2);
    }

    #[test]
    fn copies_stay_within_their_lengths() {
        let (region, _) = Region::new(1).expect("memory");
        let (from, mut to) = (*b"abcdef", *b"......");
        let segment = |from: &[u8]| Segment {
            addr: from.as_ptr().expose_provenance(),
            len: from.len() as u32,
        };
        // SAFETY: local memory.
        unsafe {
            let segments = [segment(&from[..2]), segment(&from[3..])];
            assert_eq!(region.gather(10, 4, segments.into_iter()), 4);
            let (left, right) = to.split_at_mut(3);
            let vectors = [Vector::of_mut(&mut left[..1]), Vector::of_mut(right)];
            region.scatter(10, 4, &vectors);
        }
        assert_eq!(&to, b"a..bde");
    }
}
