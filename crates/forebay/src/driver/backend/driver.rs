//! Driver of a back end, and its queues.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::Backend;
use super::failure::Failure;
use super::handle::{Bodies, Handle, HandleList};
use super::queue_state::{QueueState, here};
use super::request::Batch;
use super::stall::Waits;
use crate::driver::Mode;
use crate::driver::contract::{Answer, Driver, Facts, Queue, Wait};
use crate::extent::Extents;
use forebay_core::{BlockStatus, Completed, Completions, IssuedRequest, QueueLimits, Reap, Tag};
use std::any::Any;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

/// A back end, as a driver.
pub(crate) struct BackendDriver<B> {
    backend: Arc<B>,
    limits: QueueLimits,
    failure: Arc<Failure>,
}

impl<B> BackendDriver<B> {
    /// Returns a function that forgets why the back end has failed.
    pub(crate) fn forget_failure(&self) -> impl Fn() + Send + Sync + 'static {
        let failure = Arc::clone(&self.failure);
        move || failure.clear()
    }
}

impl<B: Backend> BackendDriver<B> {
    pub(crate) fn new(backend: B, limits: QueueLimits) -> BackendDriver<B> {
        BackendDriver { backend: Arc::new(backend), limits, failure: Arc::default() }
    }
}

// SAFETY: a request is the only handle of its body, and its end consumes it, so it completes at
// most once (K5), with a count that was checked (K6). The completion goes to a list (K7).
unsafe impl<B: Backend> Driver for BackendDriver<B> {
    type Queue = BackendQueue<B>;

    fn facts(&self) -> Facts {
        Facts { disk: self.backend.facts(), ..Facts::new(self.backend.name(), self.limits) }
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        self.backend.block_status(offset, extents)
    }

    fn size_bytes(&self) -> io::Result<Option<u64>> {
        self.backend.size_bytes()
    }

    fn failure(&self) -> Option<String> {
        self.failure.get().or_else(|| self.backend.failure())
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(BackendQueue<B>, Wait)> {
        let state = Arc::new(QueueState::new(depth, &self.failure, self.limits.logical_block_size));
        let waits = Arc::new(Waits::new(&state, Arc::clone(&self.backend) as Arc<dyn Backend>));
        let queue = BackendQueue {
            backend: Arc::clone(&self.backend),
            bodies: Bodies::new(&state, depth),
            queued: HandleList::new(depth),
            state,
            waits: Arc::clone(&waits),
            finished: Vec::with_capacity(depth as usize),
            nr_out: 0,
            fails: None,
        };
        Ok((queue, Wait::Blocking(waits)))
    }
}

/// A queue of a back end. The type of the back end is known here, so that a `submit` which ends its
/// requests costs no more calls than a driver.
pub(crate) struct BackendQueue<B> {
    backend: Arc<B>,
    state: Arc<QueueState>,
    waits: Arc<Waits>,
    bodies: Bodies,
    /// The requests that the next commit submits.
    queued: HandleList,
    /// Empty between reaps.
    finished: Vec<Completed>,
    /// The number of requests that were submitted, have not ended inside `submit`, and were not
    /// reaped.
    nr_out: usize,
    /// The back end has panicked, and no request of that batch shows it yet. So this one does when
    /// it ends. It is one of `nr_out`.
    fails: Option<Tag>,
}

impl<B: Backend> BackendQueue<B> {
    /// Reaps the requests that have ended inside `submit`.
    #[inline]
    fn reap_ended(&mut self, done: &mut Completions) {
        // SAFETY: this thread uses the driver, outside `submit`.
        unsafe { self.state.with_at_once(|at_once| done.append(&mut at_once.ended)) };
    }

    #[inline(never)]
    fn reap_several(&mut self, done: &mut Completions, how: Reap) {
        if self.nr_ended() > 0 {
            self.fail_ended();
            self.reap_ended(done);
        }
        // Without a request elsewhere the list is empty, and only a descriptor is to be cleared.
        if self.nr_out > 0 || how == Reap::Full && self.state.list.is_watched() {
            self.reap_list(done);
        }
    }

    /// Reaps the requests that have ended outside `submit`.
    fn reap_list(&mut self, done: &mut Completions) {
        self.state.list.reap(&mut self.finished);
        let nr = self.finished.len();
        self.nr_out -= nr;
        self.waits.reaped(nr, self.nr_out);
        for Completed { tag, result } in self.finished.drain(..) {
            let fails = self.fails.take_if(|fails| *fails == tag).is_some();
            done.push(tag, if fails { Err(BlockStatus::Offline) } else { result });
        }
    }

    /// Returns the body for a request.
    #[inline]
    fn lend(&mut self, rq: &IssuedRequest<'_>) -> Handle {
        // SAFETY: the tag is one of the queue's, and the layer issues it again only after its
        // completion was reaped (K1).
        let mut handle = unsafe { self.bodies.lend(rq.tag) };
        handle.body().fill(rq);
        handle
    }

    #[inline]
    fn queue(&mut self, handle: Handle) {
        // SAFETY: the requests of a batch have different tags (K1).
        unsafe { self.queued.push(handle) };
    }

    /// Queues a request whose memory is not one segment. A call of its own, because the usual case
    /// is short.
    #[inline(never)]
    fn queue_any(&mut self, mut handle: Handle, rq: &IssuedRequest<'_>) {
        handle.body().set_memory(rq);
        self.queue(handle);
    }

    /// Submits the requests that are queued. Inlined, so that the usual commit is one function.
    #[inline(always)]
    fn submit(&mut self) {
        let nr = self.queued.len();
        // SAFETY: this thread uses the driver, outside `submit`.
        unsafe { self.state.with_at_once(|at_once| at_once.begin(nr)) };
        let mut batch = Batch::new(self.queued.take());
        self.state.enter(here());
        // The layer is in the middle of a turn, so a panic ends here. The back end may be in any
        // state. If that makes a later call panic, the disk fails again.
        let called = catch_unwind(AssertUnwindSafe(|| self.backend.submit(&mut batch)));
        match called {
            Ok(()) => {
                batch.end();
                self.state.leave();
            }
            Err(payload) => {
                let is_shown = batch.go_offline();
                batch.end();
                self.panicked(payload, is_shown, nr);
            }
        }
        // SAFETY: as above; it has ended.
        if !unsafe { self.state.with_at_once(|at_once| at_once.is_all()) } {
            self.keep_count();
        }
    }

    /// Counts the requests that have not ended inside `submit`, and earlier ones that have.
    #[inline(never)]
    fn keep_count(&mut self) {
        // SAFETY: this thread uses the driver, outside `submit`.
        if unsafe { self.state.with_at_once(|at_once| at_once.has_dropped()) } {
            // The back end has caught a panic of its own, unless this thread unwinds as before.
            if self.fail_dropped(!thread::panicking()) {
                let text = "submit of the back end caught a panic that dropped a request";
                self.state.failure.set(String::from(text));
            }
        }
        // SAFETY: as above.
        let nr = unsafe { self.state.with_at_once(|at_once| at_once.nr_more_out()) };
        self.nr_out =
            self.nr_out.checked_add_signed(nr).expect("no request ends before it is submitted");
        self.waits.submitted(self.nr_out);
        if self.nr_out == 0 {
            self.fail_ended();
        }
    }

    /// Ends a `submit` that has panicked. Requests that it has not ended, or that the panic has
    /// dropped, end with `Offline`, so that the disk fails. If there are none (`is_shown`: there
    /// are), the last one of the `nr` of the batch does, now or when it ends.
    #[cold]
    fn panicked(&mut self, payload: Box<dyn Any + Send>, is_shown: bool, nr: usize) {
        self.state.leave();
        self.state.failure.set(format!("submit of the back end panicked: {}", text_of(payload)));
        if !(self.fail_dropped(true) | is_shown) {
            // SAFETY: the batch had `nr` requests, and at least one.
            self.fails = Some(unsafe { self.queued.taken_tag(nr - 1) });
            self.fail_ended();
        }
    }

    /// Changes the results of requests that the thread has dropped inside `submit` while it unwinds
    /// to `Offline`, if the disk `fails` for that. Returns whether there are any.
    #[cold]
    fn fail_dropped(&mut self, fails: bool) -> bool {
        // SAFETY: this thread uses the driver, outside `submit`.
        unsafe {
            self.state.with_at_once(|at_once| {
                let dropped = at_once.take_dropped();
                fails && !dropped.is_empty() && at_once.go_offline(&dropped)
            })
        }
    }

    /// Changes the result of the request that shows a panic, if it has ended inside `submit`.
    fn fail_ended(&mut self) {
        if let Some(tag) = self.fails {
            // SAFETY: this thread uses the driver, outside `submit`.
            let is_ended = unsafe { self.state.with_at_once(|list| list.go_offline(&[tag])) };
            self.fails.take_if(|_| is_ended);
        }
    }

    /// Returns the number of requests that have ended inside `submit` and were not reaped.
    #[inline]
    fn nr_ended(&self) -> usize {
        // SAFETY: this thread uses the driver, outside `submit`.
        unsafe { self.state.with_at_once(|at_once| at_once.ended.len()) }
    }
}

/// Returns the text of a panic. If the destructor of another payload panics, its payload is leaked.
fn text_of(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(other) => {
                if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(other))) {
                    mem::forget(again);
                }
                String::from("without a text")
            }
        },
    }
}

// SAFETY: as above. After a panic, its drop waits for the requests, or aborts the process.
unsafe impl<B: Backend> Queue for BackendQueue<B> {
    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        let mut handle = self.lend(rq);
        match rq.only_segment() {
            Some(segment) => {
                handle.body().set_segment(segment);
                self.queue(handle);
            }
            None => self.queue_any(handle, rq),
        }
        Answer::Queued
    }

    #[inline]
    fn commit_rqs(&mut self) {
        if self.queued.len() > 0 {
            self.submit();
        }
    }

    #[inline]
    fn reap(&mut self, done: &mut Completions, how: Reap) {
        // The usual case: one request, which has ended inside `submit`.
        if self.nr_out == 0
            && (how == Reap::NoSyscall || !self.state.list.is_watched())
            && self.nr_ended() == 1
        {
            self.reap_ended(done);
        } else {
            self.reap_several(done, how);
        }
    }

    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    #[inline]
    fn has_ready(&self) -> bool {
        self.nr_ended() > 0
    }

    fn nr_syscalls(&self) -> Option<u64> {
        // They are rare, so the wait counts them: turns then do not ask.
        None
    }
}

impl<B> Drop for BackendQueue<B> {
    /// The layer drains a driver before it drops it. After a panic, requests may still be in
    /// flight. Then this waits for them, because their memory may be freed next. If one of them
    /// never ends, this aborts the process.
    fn drop(&mut self) {
        assert!(
            self.nr_out == 0 || std::thread::panicking(),
            "a driver is drained before it is dropped"
        );
        // Requests that were not submitted have no handle outside this queue.
        self.waits.await_after_panic(self.nr_out);
        // SAFETY: all requests have ended, and the list of those that have not begun goes, too.
        unsafe { self.bodies.free() };
    }
}
