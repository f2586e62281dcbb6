//! Destination of the ended requests of one queue.
//!
//! The thread that calls `submit` holds the driver. So a request that ends inside that call, on
//! that thread, needs neither a lock nor a wake-up: its completion goes to a list of the driver,
//! which the next reap takes. All others go to the completion list.
//!
//! A request finds out by one load. [`QueueState::submitter`] is the thread inside `submit`, and
//! only that thread writes its own number there, and clears it before it leaves. The load is
//! relaxed: a thread that finds its own number has read its own last write, because it never reads
//! a value older than one that it wrote itself. With any other value, the completion goes to the
//! completion list. A thread may get the number of one that has exited. It cannot find that number
//! here: the other thread has cleared it before its exit, and its exit precedes the reuse of its
//! thread-local memory.
// Access to the list of the driver.
#![allow(unsafe_code)]

use super::at_once::AtOnce;
use super::failure::Failure;
use crate::driver::kit::CompletionList;
use crate::sys::primitive::{AtomicU64, Ordering, UnsafeCell};
use forebay_core::{BlockStatus, Completed, Tag};
use std::sync::Arc;

/// State that the requests of one queue share.
pub(super) struct QueueState {
    /// Requests that the back end has ended outside `submit`.
    pub(super) list: CompletionList<Completed>,
    pub(super) failure: Arc<Failure>,
    /// The size of a logical block, bytes.
    pub(super) block_size: u64,
    /// The number of the thread inside `submit`. 0: there is none.
    submitter: AtomicU64,
    /// Requests that the back end has ended inside `submit`. Only the thread that uses the driver
    /// accesses it: the driver outside the back end's `submit`, and ends inside it.
    at_once: UnsafeCell<AtOnce>,
}

// SAFETY: one thread at a time uses `at_once`, as its rule above says. The rest is `Sync`.
unsafe impl Sync for QueueState {}

impl QueueState {
    pub(super) fn new(depth: u32, failure: &Arc<Failure>, block_size: u32) -> QueueState {
        QueueState {
            list: CompletionList::new(depth),
            failure: Arc::clone(failure),
            block_size: block_size.into(),
            submitter: AtomicU64::new(0),
            at_once: UnsafeCell::new(AtOnce::new(depth)),
        }
    }

    /// Begins a call of `submit` on the thread of this number.
    #[inline]
    pub(super) fn enter(&self, here: u64) {
        self.submitter.store(here, Ordering::Relaxed);
    }

    /// Ends that call.
    #[inline]
    pub(super) fn leave(&self) {
        self.submitter.store(0, Ordering::Relaxed);
    }

    /// Returns whether the thread of this number, which calls this, is inside `submit`.
    #[inline]
    fn is_submitting(&self, here: u64) -> bool {
        self.submitter.load(Ordering::Relaxed) == here
    }

    /// Adds a request that ends on the thread of this number, if that thread is inside `submit`.
    /// Returns whether it is.
    #[inline]
    pub(super) fn push_at_once(
        &self,
        here: u64,
        tag: Tag,
        result: Result<u64, BlockStatus>,
    ) -> bool {
        let is_inside = self.is_submitting(here);
        if is_inside {
            // SAFETY: this thread is inside `submit`, where the driver does not use the list.
            self.at_once.with_mut(|list| unsafe { &mut *list }.ended.push(tag, result));
        }
        is_inside
    }

    /// Ends a request that the thread of this number drops while it unwinds, if that thread is
    /// inside `submit`. Returns whether it is.
    pub(super) fn drop_at_once(&self, here: u64, tag: Tag) -> bool {
        let is_inside = self.is_submitting(here);
        if is_inside {
            // SAFETY: this thread is inside `submit`, where the driver does not use the list.
            self.at_once.with_mut(|list| unsafe { &mut *list }.drop_one(tag));
        }
        is_inside
    }

    /// Calls `work` with the requests that have ended inside `submit`.
    ///
    /// # Safety
    /// The calling thread uses the driver, and is not inside the back end's `submit`. `work` ends
    /// no request.
    #[inline]
    pub(super) unsafe fn with_at_once<T>(&self, work: impl FnOnce(&mut AtOnce) -> T) -> T {
        // SAFETY: the caller's promise.
        self.at_once.with_mut(|list| work(unsafe { &mut *list }))
    }
}

/// Returns the number of the calling thread, which is not 0. No other thread has it at the same
/// time.
#[inline]
pub(super) fn here() -> u64 {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place).addr() as u64)
}

#[cfg(test)]
mod models;
