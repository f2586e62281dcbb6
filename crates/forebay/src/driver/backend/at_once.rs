//! Requests that have ended inside `submit`, on the thread that calls it.
//!
//! A request that this thread drops while it unwinds has an unclear end. If the panic began inside
//! `submit`, the disk fails, also if the back end catches the panic. If the thread submits in a
//! destructor, because it had panicked before, the drop is an I/O error of one request. `submit`
//! must not ask for that at its start, because the question costs more than the call. So such
//! requests are listed, and the driver decides when `submit` has returned: a thread that still
//! unwinds then has done so before.

use forebay_core::{BlockStatus, Completed, Completions, Tag};
use std::mem;

/// Requests that have ended inside `submit` and were not reaped.
pub(super) struct AtOnce {
    pub(super) ended: Completions,
    /// The number of them when all requests of the batch have ended inside. [`SOME_DROPPED`] if
    /// `dropped` is not empty.
    nr_if_all: usize,
    /// Requests that the thread has dropped inside `submit` while it unwinds. Each is in `ended`
    /// too, with an I/O error.
    dropped: Vec<Tag>,
    /// `nr_if_all` from before the first of them.
    nr_if_all_before: usize,
}

/// More than there are tags.
const SOME_DROPPED: usize = usize::MAX;

impl AtOnce {
    pub(super) fn new(depth: u32) -> AtOnce {
        let ended = Completions::new(depth);
        AtOnce { ended, nr_if_all: 0, dropped: Vec::new(), nr_if_all_before: 0 }
    }

    /// Begins a batch of `nr` requests.
    #[inline]
    pub(super) fn begin(&mut self, nr: usize) {
        self.nr_if_all = self.ended.len() + nr;
    }

    /// Returns whether all requests of the batch have ended inside `submit`, earlier ones have not,
    /// and none was dropped by a thread that unwinds.
    #[inline]
    pub(super) fn is_all(&self) -> bool {
        self.ended.len() == self.nr_if_all
    }

    /// Returns the number of requests of the batch that have not ended inside, less that of earlier
    /// ones that have. Call [`take_dropped`](AtOnce::take_dropped) first.
    pub(super) fn nr_more_out(&self) -> isize {
        self.nr_if_all.wrapping_sub(self.ended.len()).cast_signed()
    }

    /// Ends a request that a thread drops inside `submit` while it unwinds.
    pub(super) fn drop_one(&mut self, tag: Tag) {
        self.ended.push(tag, Err(BlockStatus::Io));
        if self.dropped.is_empty() {
            self.nr_if_all_before = mem::replace(&mut self.nr_if_all, SOME_DROPPED);
        }
        self.dropped.push(tag);
    }

    /// Returns whether requests were dropped so.
    #[inline]
    pub(super) fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Returns the requests that were dropped so, once.
    pub(super) fn take_dropped(&mut self) -> Vec<Tag> {
        if self.has_dropped() {
            self.nr_if_all = self.nr_if_all_before;
        }
        mem::take(&mut self.dropped)
    }

    /// Changes the results of these requests to `Offline`. Returns whether one of them is here.
    pub(super) fn go_offline(&mut self, tags: &[Tag]) -> bool {
        let all: Vec<Completed> = self.ended.drain().collect();
        let mut is_any = false;
        for Completed { tag, result } in all {
            let fails = tags.contains(&tag);
            is_any |= fails;
            self.ended.push(tag, if fails { Err(BlockStatus::Offline) } else { result });
        }
        is_any
    }
}
