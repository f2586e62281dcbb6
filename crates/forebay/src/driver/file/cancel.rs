//! Cancellations of requests in a ring.
//!
//! A cancellation is an entry of its own, which the kernel completes as soon as it is submitted.
//! That completion says only whether the request was found, and is dropped. The request completes
//! too, exactly once: as cancelled, or with its own result if it could not be stopped. The kernel
//! can stop a request that waits, or that a worker of the kernel makes. A device never gives one
//! up. (Before Linux 5.19 the kernel refuses the entry, because it names a file of the ring, as
//! every entry of a restricted ring must.)
//!
//! The entry is submitted before a later request with the same tag, so it never finds that one.

use forebay_core::Tag;
use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};

/// The user data of a cancellation's entry.
pub(super) const CANCEL: u64 = u64::MAX - 1;

/// The cancellations of a ring.
#[derive(Debug)]
pub(super) struct Cancels {
    /// The number whose completions are not reaped.
    nr: u32,
    /// The maximum of `nr`, for which the completion queue has room.
    nr_max: u32,
}

impl Cancels {
    pub(super) fn new(nr_max: u32) -> Cancels {
        Cancels { nr: 0, nr_max }
    }

    /// Returns the entry that cancels the request of a tag. Returns `None` if the completion queue
    /// has no room for another completion now.
    pub(super) fn begin(&mut self, tag: Tag) -> Option<Entry> {
        if self.nr == self.nr_max {
            return None;
        }
        self.nr += 1;
        let entry = opcode::AsyncCancel::new(tag.index() as u64).build();
        Some(entry.flags(Flags::FIXED_FILE).user_data(CANCEL))
    }

    /// Records a completion of a cancellation, or that its entry was not submitted.
    #[cold]
    pub(super) fn end(&mut self) {
        self.nr -= 1;
    }

    /// Returns the number of cancellations whose completions are not reaped.
    #[inline]
    pub(super) fn nr(&self) -> u32 {
        self.nr
    }
}
