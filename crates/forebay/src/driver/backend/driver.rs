//! Driver of a back end, and its queues.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::Backend;
use super::failure::Failure;
use super::home::{Home, here};
use super::lent::{Bodies, Lent, Queued};
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
        let home = Arc::new(Home::new(depth, &self.failure, self.limits.logical_block_size));
        let waits = Arc::new(Waits::new(&home, Arc::clone(&self.backend) as Arc<dyn Backend>));
        let queue = BackendQueue {
            backend: Arc::clone(&self.backend),
            bodies: Bodies::new(&home, depth),
            queued: Queued::new(depth),
            home,
            waits: Arc::clone(&waits),
            finished: Vec::with_capacity(depth as usize),
            nr_out: 0,
            fails_next: false,
        };
        Ok((queue, Wait::Blocking(waits)))
    }
}

/// A queue of a back end. The type of the back end is known here, so that a `submit` which ends its
/// requests costs no more calls than a driver.
pub(crate) struct BackendQueue<B> {
    backend: Arc<B>,
    home: Arc<Home>,
    waits: Arc<Waits>,
    bodies: Bodies,
    /// The requests that the next commit submits.
    queued: Queued,
    /// Empty between reaps.
    finished: Vec<Completed>,
    /// The number of requests that were submitted, have not ended inside `submit`, and were not
    /// reaped.
    nr_out: usize,
    /// The back end has panicked, and no request shows it. So the next one that ends does. Only if
    /// `nr_out` is not 0.
    fails_next: bool,
}

impl<B: Backend> BackendQueue<B> {
    /// Reaps the requests that have ended inside `submit`.
    #[inline]
    fn reap_ended(&mut self, done: &mut Completions) {
        // SAFETY: this thread uses the driver, outside `submit`.
        unsafe { self.home.with_at_once(|ended| done.append(ended)) };
    }

    #[inline(never)]
    fn reap_several(&mut self, done: &mut Completions, how: Reap) {
        if self.nr_ended() > 0 {
            if mem::take(&mut self.fails_next) {
                self.fail_ended();
            }
            self.reap_ended(done);
        }
        // Without a request elsewhere the list is empty, and only a descriptor is to be cleared.
        if self.nr_out > 0 || how == Reap::Full && self.home.list.is_watched() {
            self.reap_list(done);
        }
    }

    /// Reaps the requests that have ended outside `submit`.
    fn reap_list(&mut self, done: &mut Completions) {
        self.home.list.reap(&mut self.finished);
        let nr = self.finished.len();
        self.nr_out -= nr;
        self.waits.reaped(nr, self.nr_out);
        for Completed { tag, result } in self.finished.drain(..) {
            let fails = mem::take(&mut self.fails_next);
            done.push(tag, if fails { Err(BlockStatus::Offline) } else { result });
        }
    }

    /// Returns the body for a request.
    #[inline]
    fn lend(&mut self, rq: &IssuedRequest<'_>) -> Lent {
        // SAFETY: the tag is one of the queue's, and the layer issues it again only after its
        // completion was reaped (K1).
        let mut lent = unsafe { self.bodies.lend(rq.tag) };
        lent.body().fill(rq);
        lent
    }

    #[inline]
    fn queue(&mut self, lent: Lent) {
        // SAFETY: the requests of a batch have different tags (K1).
        unsafe { self.queued.push(lent) };
    }

    /// Queues a request whose memory is not one segment. A call of its own, because the usual case
    /// is short.
    #[inline(never)]
    fn queue_any(&mut self, mut lent: Lent, rq: &IssuedRequest<'_>) {
        lent.body().set_memory(rq);
        self.queue(lent);
    }

    /// Submits the requests that are queued. Inlined, so that the usual commit is one function.
    #[inline(always)]
    fn submit(&mut self) {
        // The number of ended requests when all of these have ended inside `submit`.
        let nr_if_all = self.nr_ended() + self.queued.len();
        let mut batch = Batch::new(self.queued.take());
        self.home.enter(here());
        // The layer is in the middle of a turn, so a panic ends here. The back end may be in any
        // state. If that makes a later call panic, the disk fails again.
        let called = catch_unwind(AssertUnwindSafe(|| self.backend.submit(&mut batch)));
        match called {
            Ok(()) => {
                batch.end();
                self.home.leave();
            }
            Err(payload) => {
                batch.go_offline();
                batch.end();
                self.panicked(payload);
            }
        }
        if self.nr_ended() != nr_if_all {
            self.keep_count(nr_if_all);
        }
    }

    /// Counts the requests that have not ended inside `submit`, and earlier ones that have.
    #[inline(never)]
    fn keep_count(&mut self, nr_if_all: usize) {
        self.nr_out = self.nr_out + nr_if_all - self.nr_ended();
        self.waits.submitted(self.nr_out);
        if self.nr_out == 0 && mem::take(&mut self.fails_next) {
            self.fail_ended();
        }
    }

    /// Ends a `submit` that has panicked. Requests that it has not ended, or that the panic has
    /// dropped, end with `Offline`, so that the disk fails. If there are none, the last that it has
    /// ended does, or the next one that ends.
    #[cold]
    fn panicked(&mut self, payload: Box<dyn Any + Send>) {
        self.home.leave();
        self.home.failure.set(format!("submit of the back end panicked: {}", text_of(payload)));
        match self.nr_ended() {
            0 => self.fails_next = true,
            _ => self.fail_ended(),
        }
    }

    /// Makes requests that have ended inside `submit` end with `Offline`: all that have ended with
    /// an I/O error, as a drop does, or else the last one.
    #[cold]
    fn fail_ended(&mut self) {
        let offline = Err(BlockStatus::Offline);
        // SAFETY: this thread uses the driver, outside `submit`.
        unsafe {
            self.home.with_at_once(|ended| {
                let mut all: Vec<Completed> = ended.drain().collect();
                for one in all.iter_mut().filter(|one| one.result == Err(BlockStatus::Io)) {
                    one.result = offline;
                }
                if !all.iter().any(|one| one.result == offline)
                    && let Some(last) = all.last_mut()
                {
                    last.result = offline;
                }
                all.iter().for_each(|one| ended.push(one.tag, one.result));
            });
        }
    }

    /// Returns the number of requests that have ended inside `submit` and were not reaped.
    #[inline]
    fn nr_ended(&self) -> usize {
        // SAFETY: this thread uses the driver, outside `submit`.
        unsafe { self.home.with_at_once(|ended| ended.len()) }
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
        let mut lent = self.lend(rq);
        match rq.only_segment() {
            Some(segment) => {
                lent.body().set_segment(segment);
                self.queue(lent);
            }
            None => self.queue_any(lent, rq),
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
            && (how == Reap::NoSyscall || !self.home.list.is_watched())
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
