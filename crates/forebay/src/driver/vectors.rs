//! Vectors: memory in the kernel's format, `struct iovec`.
// It vouches for addresses that go to other threads.
#![allow(unsafe_code)]

use forebay_core::Segment;

/// One contiguous range of memory.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Vector(libc::iovec);

// SAFETY: an address and a length. Only the kernel follows them, in any thread; the memory stays
// valid until the request's completion is reaped (K2).
unsafe impl Send for Vector {}

impl Vector {
    /// An empty vector.
    pub(super) const EMPTY: Vector =
        Vector(libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 });

    /// Returns a vector of bytes that do not move as long as the kernel may read them.
    #[inline]
    pub(super) fn of(bytes: &[u8]) -> Vector {
        let iov_base = std::ptr::with_exposed_provenance_mut(bytes.as_ptr().expose_provenance());
        Vector(libc::iovec { iov_base, iov_len: bytes.len() })
    }

    /// Returns a vector of bytes that do not move as long as the kernel may write to them.
    #[inline]
    pub(super) fn of_mut(bytes: &mut [u8]) -> Vector {
        let addr = bytes.as_mut_ptr().expose_provenance();
        let iov_base = std::ptr::with_exposed_provenance_mut(addr);
        Vector(libc::iovec { iov_base, iov_len: bytes.len() })
    }

    /// Returns this vector without its first `nr` bytes, and at most `max` bytes of that.
    ///
    /// # Panics
    /// Panics if it has fewer than `nr` bytes.
    #[inline]
    pub(super) fn part(&self, nr: usize, max: usize) -> Vector {
        assert!(nr <= self.0.iov_len);
        let iov_base = self.0.iov_base.wrapping_byte_add(nr);
        Vector(libc::iovec { iov_base, iov_len: (self.0.iov_len - nr).min(max) })
    }

    #[inline]
    pub(super) fn addr(&self) -> *mut libc::c_void {
        self.0.iov_base
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Returns whether this vector ends where `next` begins.
    #[inline]
    fn touches(&self, next: &Vector) -> bool {
        self.0.iov_base.wrapping_byte_add(self.0.iov_len) == next.0.iov_base
    }
}

impl From<Segment> for Vector {
    #[inline]
    fn from(segment: Segment) -> Vector {
        let iov_base = std::ptr::with_exposed_provenance_mut(segment.addr);
        Vector(libc::iovec { iov_base, iov_len: segment.len as usize })
    }
}

/// Fills a list with a request's memory from its beginning on, and merges adjacent segments.
/// Returns the number of vectors.
#[inline]
pub(super) fn fill(list: &mut [Vector], segments: impl Iterator<Item = Segment>) -> usize {
    let mut nr = 0;
    for vector in segments.map(Vector::from) {
        match list[..nr].last_mut() {
            Some(last) if last.touches(&vector) => last.0.iov_len += vector.0.iov_len,
            _ => {
                assert!(nr < list.len(), "a request keeps its limits");
                list[nr] = vector;
                nr += 1;
            }
        }
    }
    nr
}

/// Returns the pointer to a list for the kernel.
#[inline]
pub(super) fn as_ptr(list: &[Vector]) -> *const libc::iovec {
    list.as_ptr().cast()
}

/// The vectors of one request, in a reusable list.
#[derive(Debug)]
pub(super) struct Vectors {
    list: Box<[Vector]>,
    nr: usize,
}

impl Vectors {
    pub(super) fn new(max_segments: u32) -> Vectors {
        Vectors { list: vec![Vector::EMPTY; max_segments as usize].into(), nr: 0 }
    }

    /// Replaces the vectors by those of a request.
    #[inline]
    pub(super) fn fill(&mut self, segments: impl Iterator<Item = Segment>) {
        self.nr = fill(&mut self.list, segments);
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[Vector] {
        &self.list[..self.nr]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_memory_become_one() {
        let segments = |list: &[(usize, u32)]| -> Vec<Segment> {
            list.iter().map(|&(addr, len)| Segment { addr, len }).collect()
        };
        let mut vectors = Vectors::new(2);
        let filled = |vectors: &Vectors| -> Vec<(usize, usize)> {
            vectors.as_slice().iter().map(|one| (one.addr().addr(), one.len())).collect()
        };
        vectors.fill(segments(&[(512, 512), (1024, 512), (4096, 8), (4104, 8)]).into_iter());
        assert_eq!(filled(&vectors), [(512, 1024), (4096, 16)]);
        vectors.fill(segments(&[(4096, 512), (512, 512)]).into_iter());
        assert_eq!(filled(&vectors), [(4096, 512), (512, 512)]);
        vectors.fill(std::iter::empty());
        assert!(vectors.as_slice().is_empty());
    }
}
