//! Size of a disk, which may grow while the disk is open.
//!
//! Each thread has a copy of the size in its software queue, and compares the two only when a bio
//! is behind the end of its copy. So I/O on a disk that has not grown costs nothing more, and a
//! thread needs no message.

use crate::sys::primitive::{AtomicU64, Ordering};

/// The size up to which a disk accepts I/O.
#[derive(Debug)]
pub(crate) struct Size {
    has_end: bool,
    /// Only increases, so a thread that loads an old value refuses a bio that it could accept, as
    /// it would have before the growth. If the growth happens before a submission, the submitting
    /// thread loads the new value: coherence suffices for one word. No other data depends on the
    /// value: the file was that long before the store. So all accesses are relaxed.
    bytes: AtomicU64,
}

impl Size {
    /// Returns the size of a disk. `None`: the disk has no fixed size.
    pub(super) fn new(capacity_bytes: Option<u64>) -> Size {
        Size {
            has_end: capacity_bytes.is_some(),
            bytes: AtomicU64::new(capacity_bytes.unwrap_or(0)),
        }
    }

    pub(crate) fn get(&self) -> Option<u64> {
        self.has_end.then(|| self.bytes.load(Ordering::Relaxed))
    }

    /// Raises the size. A smaller one changes nothing.
    pub(crate) fn grow(&self, bytes: u64) {
        self.bytes.fetch_max(bytes, Ordering::Relaxed);
    }
}
