//! Driver of a back end, and its queues.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::body::Body;
use super::ended::Call;
use super::failure::Failure;
use super::request::{Batch, Request};
use super::stack::Stack;
use super::stall::Waits;
use super::{Backend, ended};
use crate::driver::Mode;
use crate::driver::contract::{Answer, Driver, Facts, Queue, Wait};
use crate::driver::kit::CompletionList;
use crate::extent::Extents;
use forebay_core::{BlockStatus, Completions, IssuedRequest, QueueLimits, Reap, Tag};
use std::any::Any;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A back end, as a driver.
pub(crate) struct BackendDriver {
    backend: Arc<dyn Backend>,
    limits: QueueLimits,
    failure: Arc<Failure>,
}

impl BackendDriver {
    pub(crate) fn new(backend: Arc<dyn Backend>, limits: QueueLimits) -> BackendDriver {
        BackendDriver { backend, limits, failure: Arc::default() }
    }
}

// SAFETY: a request is a box, which moves to the back end and comes back at most once (K5), with a
// count that was checked (K6), to a list or to the thread that has called `submit` (K7).
unsafe impl Driver for BackendDriver {
    type Queue = BackendQueue;

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

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(BackendQueue, Wait)> {
        let list = Arc::new(CompletionList::new(depth));
        let waits = Arc::new(Waits::new(&list, &self.backend));
        let depth = depth as usize;
        let queue = BackendQueue {
            backend: Arc::clone(&self.backend),
            failure: Arc::clone(&self.failure),
            list,
            waits: Arc::clone(&waits),
            block_size: self.limits.logical_block_size,
            spare: Stack::EMPTY,
            queued: (0..depth).map(|_| Request::NONE).collect(),
            nr_queued: 0,
            ended: Stack::EMPTY,
            finished: Vec::with_capacity(depth),
            nr_out: 0,
            fails_next: false,
        };
        Ok((queue, Wait::Blocking(waits)))
    }
}

/// A queue of a back end.
#[expect(clippy::vec_box, reason = "a box is made once, and the lists pass it on")]
pub(crate) struct BackendQueue {
    backend: Arc<dyn Backend>,
    failure: Arc<Failure>,
    /// Requests that the back end has ended outside `submit`.
    list: Arc<CompletionList<Box<Body>>>,
    waits: Arc<Waits>,
    block_size: u32,
    /// Boxes without a request. There are as many boxes as there were ever requests in flight.
    spare: Stack,
    /// The first `nr_queued` are the requests that the next commit submits. There is a place for
    /// each tag.
    queued: Box<[Request]>,
    nr_queued: usize,
    /// Requests that the back end has ended inside `submit`.
    ended: Stack,
    /// Empty between reaps.
    finished: Vec<Box<Body>>,
    /// The number of requests that were submitted and not reaped.
    nr_out: usize,
    /// The back end has panicked, and no request shows it. So the next ones do.
    fails_next: bool,
}

impl BackendQueue {
    #[cold]
    fn new_body(&self) -> Box<Body> {
        Body::new(&self.list, &self.failure, self.block_size)
    }

    /// Queues a request whose memory is not one segment, or for which there is no box.
    #[inline(never)]
    fn queue(&mut self, rq: &IssuedRequest<'_>) {
        let mut body = self.spare.pop().unwrap_or_else(|| self.new_body());
        body.fill(rq);
        self.put(body);
    }

    #[inline]
    fn put(&mut self, body: Box<Body>) {
        let place = &mut self.queued[self.nr_queued];
        // The place has none: forgetting it spares a check.
        mem::forget(mem::replace(place, Request::new(body)));
        self.nr_queued += 1;
    }

    /// Reaps the requests that have ended outside `submit`.
    #[inline(never)]
    fn reap_list(&mut self, done: &mut Completions) {
        self.list.reap(&mut self.finished);
        let nr = self.finished.len();
        self.nr_out -= nr;
        self.waits.reaped(nr, self.nr_out);
        for body in self.finished.drain(..) {
            done.push(body.tag, body.result);
            self.spare.push(body);
        }
    }

    /// Submits the requests that are queued.
    #[inline(never)]
    fn submit(&mut self) {
        let nr = mem::take(&mut self.nr_queued);
        self.nr_out += nr;
        let mut batch = Batch::new(&mut self.queued[..nr]);
        if self.fails_next {
            batch.go_offline();
            self.fails_next = false;
            return;
        }
        let call = ended::enter(Arc::as_ptr(&self.list).cast());
        // The layer is in the middle of a turn, so a panic ends here. The back end may be in any
        // state. If that makes a later call panic, the disk fails again.
        let called = catch_unwind(AssertUnwindSafe(|| self.backend.submit(&mut batch)));
        if let Err(payload) = called {
            batch.go_offline();
            drop(batch);
            return self.panicked(call, payload);
        }
        batch.end();
        self.ended.append(call.leave());
        if self.ended.is_empty() {
            self.waits.submitted(self.nr_out);
        }
    }

    /// Ends a `submit` that has panicked. A request of this batch or of the next one ends with
    /// `Offline`, so that the disk fails.
    #[cold]
    fn panicked(&mut self, call: Call, payload: Box<dyn Any + Send>) {
        self.ended.append(call.leave());
        self.failure.set(format!("submit of the back end panicked: {}", text_of(payload)));
        let is_shown = |body: &Body| body.result == Err(BlockStatus::Offline);
        self.fails_next = !self.ended.iter().any(is_shown);
    }

    /// Reaps several requests that have ended inside `submit`, oldest first.
    #[inline(never)]
    fn reap_ended(&mut self, done: &mut Completions) {
        self.ended.reverse();
        while let Some(body) = self.ended.pop() {
            self.reap_one(body, done);
        }
    }

    #[inline(always)]
    fn reap_one(&mut self, body: Box<Body>, done: &mut Completions) {
        self.nr_out -= 1;
        let (tag, result) = (body.tag, body.result);
        self.spare.push(body);
        done.push(tag, result);
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
unsafe impl Queue for BackendQueue {
    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        match rq.only_segment() {
            Some(segment) if !self.spare.is_empty() && self.nr_queued < self.queued.len() => {
                if let Some(mut body) = self.spare.pop() {
                    body.fill_plain(rq, segment);
                    self.put(body);
                }
            }
            _ => self.queue(rq),
        }
        Answer::Queued
    }

    #[inline]
    fn commit_rqs(&mut self) {
        if self.nr_queued > 0 {
            match std::thread::panicking() {
                true => ended::while_unwinding(|| self.submit()),
                false => self.submit(),
            }
        }
    }

    #[inline]
    fn reap(&mut self, done: &mut Completions, how: Reap) {
        if self.ended.has_several() {
            self.reap_ended(done);
        } else if let Some(body) = self.ended.pop() {
            self.reap_one(body, done);
        }
        // Without a request elsewhere the list is empty, and only a descriptor is to be cleared.
        if self.nr_out > 0 || how == Reap::Full && self.list.is_watched() {
            self.reap_list(done);
        }
    }

    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    #[inline]
    fn has_ready(&self) -> bool {
        !self.ended.is_empty()
    }

    #[inline]
    fn nr_syscalls(&self) -> Option<u64> {
        Some(self.list.nr_syscalls())
    }
}

impl Drop for BackendQueue {
    /// The layer drains a driver before it drops it. After a panic, requests may still be in
    /// flight. Then this waits for them, because their memory may be freed next. If one of them
    /// never ends, this aborts the process.
    fn drop(&mut self) {
        assert!(
            self.nr_out == 0 || std::thread::panicking(),
            "a driver is drained before it is dropped"
        );
        // Requests that were not submitted end here, and are added to the list.
        let nr = self.nr_out - self.ended.iter().count() + self.nr_queued;
        self.queued = Box::default();
        self.waits.await_after_panic(nr);
        // The boxes name their list, so they would keep each other.
        self.list.reap(&mut self.finished);
    }
}
