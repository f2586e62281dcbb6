//! End of a ring whose system call is forbidden: the program has installed a seccomp filter after
//! it opened the disk.
//!
//! The kernel takes entries only within `io_uring_enter`. Once that call is refused, the driver no
//! longer submits. The kernel never takes the entries left in the ring. Their requests end as
//! [`Offline`](forebay_core::BlockStatus::Offline), so their memory is free, and all later requests
//! end in the same way. Requests that the kernel has already taken continue, and their completions
//! arrive without a system call. A kick no longer ends a wait that began before: it ends with a
//! completion.
//!
//! Two kinds of rings cannot end like this, so the process aborts. One defers completions to that
//! very call and still has some to come: the kernel goes on to use their memory. The other has
//! `sqpoll=on`: a kernel thread may still take its entries.

use crate::errno;
use forebay_core::{BlockStatus, Tag};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// The sleep between reaps of a ring whose completions no call can wait for.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// Returns whether this error of the system call means that the program forbids it.
pub(super) fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// The reason why rings of a device have ended, for messages; one for all of its queues. Each ring
/// ends separately: a filter may concern a thread that uses only one of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict(Arc<AtomicI32>);

impl Verdict {
    /// Returns the reason, if a ring has ended.
    pub(super) fn text(&self) -> Option<String> {
        // Relaxed, here and below: the number orders no other data.
        let errno = self.0.load(Ordering::Relaxed);
        (errno != 0).then(|| {
            format!(
                "io_uring_enter: {}: a seccomp filter forbids it since the disk was opened; allow \
                 it, or open the disk with engine=psync",
                io::Error::from_raw_os_error(errno)
            )
        })
    }
}

/// The state that a driver keeps in case its ring ends.
#[derive(Debug, Default)]
pub(super) struct Forbidden {
    verdict: Verdict,
    /// User data of the entries in the ring, in order. It covers at least the entries that the
    /// kernel has not taken, and at most as many as the ring has.
    in_ring: Vec<u64>,
    /// The ring has ended.
    is_over: bool,
    /// Requests that ended with the ring and are not reaped.
    failed: Vec<Tag>,
}

impl Forbidden {
    /// Returns the state for a ring of `nr_entries` submission entries. `verdict` is that of the
    /// device.
    pub(super) fn new(verdict: &Verdict, nr_entries: u32) -> Forbidden {
        let in_ring = Vec::with_capacity(nr_entries as usize);
        Forbidden { verdict: verdict.clone(), in_ring, ..Forbidden::default() }
    }

    /// Returns whether the ring has ended.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Removes all but the last `nr` entries: the kernel has taken the others.
    #[inline]
    pub(super) fn keep_last(&mut self, nr: usize) {
        let nr_taken = self.in_ring.len().saturating_sub(nr);
        match nr {
            0 => self.in_ring.clear(),
            _ => drop(self.in_ring.drain(..nr_taken)),
        }
    }

    /// Records a pushed entry, after [`keep_last`](Self::keep_last).
    #[inline]
    pub(super) fn pushed(&mut self, name: u64) {
        self.in_ring.push(name);
    }

    /// Ends the ring.
    pub(super) fn end(&mut self, error: &io::Error) {
        self.is_over = true;
        self.verdict.0.store(error.raw_os_error().unwrap_or(libc::EPERM), Ordering::Relaxed);
    }

    /// Returns whether the ring has ended and [`Forbidden::take_entries`] is due.
    #[inline]
    pub(super) fn has_entries(&self) -> bool {
        self.is_over && !self.in_ring.is_empty()
    }

    /// Returns the user data of the last `nr` entries, which the kernel has not taken and never
    /// will.
    pub(super) fn take_entries(&mut self, nr: usize) -> Vec<u64> {
        self.keep_last(nr);
        std::mem::take(&mut self.in_ring)
    }

    /// Fails a request with the ring.
    #[cold]
    pub(super) fn fail(&mut self, tag: Tag) {
        self.failed.push(tag);
    }

    /// Returns the number of requests that ended with the ring and are not reaped.
    #[inline]
    pub(super) fn nr_failed(&self) -> usize {
        self.failed.len()
    }

    /// Returns these requests with their result, and removes them.
    #[inline]
    pub(super) fn failed(&mut self) -> impl Iterator<Item = (Tag, i32)> + '_ {
        let offline = -errno::of_status(BlockStatus::Offline);
        self.failed.drain(..).map(move |tag| (tag, offline))
    }
}
