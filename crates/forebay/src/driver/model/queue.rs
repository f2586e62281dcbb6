//! One queue of a modelled device.
//!
//! The data of a request moves when it is issued, and the request completes when the model says so.
//! A request that overlaps it meanwhile is concurrent with it, and may see either state.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::state::State;
use super::store::Store;
use crate::driver::contract::{Answer, BlockingWait, Queue};
use crate::driver::deadline::Deadline;
use crate::driver::timer::Timer;
use forebay_core::{Completions, IssuedRequest, Op, Reap, Tag};
use forebay_model::Command;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct ModelQueue {
    pub(super) state: Arc<State>,
    pub(super) store: Option<Arc<Store>>,
    /// The number of this queue at the device.
    pub(super) queue: usize,
    pub(super) timer: Arc<Timer>,
}

// SAFETY: see the driver.
unsafe impl Queue for ModelQueue {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        let command = Command { op: rq.op, start: rq.start, len: rq.len };
        if !self.state.begin(self.queue, rq.tag, &command) {
            return Answer::Busy;
        }
        // The request is not reaped before this function returns.
        if let Some(store) = &self.store {
            match rq.op {
                Op::Read | Op::Write => store.move_data(rq),
                Op::Discard | Op::WriteZeroes => {
                    rq.ranges().for_each(|(start, len)| store.zero(start, len));
                }
                Op::Flush => {}
            }
        }
        Answer::Queued
    }

    /// Does nothing: a command begins when it is queued.
    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        self.state.reap(self.queue, done);
        self.timer.reaped();
    }

    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    fn has_ready(&self) -> bool {
        false
    }

    fn nr_syscalls(&self) -> Option<u64> {
        Some(self.timer.nr_syscalls())
    }
}

/// The wait of a queue.
#[derive(Debug)]
pub(super) struct ModelWait {
    pub(super) state: Arc<State>,
    pub(super) queue: usize,
    pub(super) timer: Arc<Timer>,
}

impl BlockingWait for ModelWait {
    fn wait(&self, nr_completions: usize, timeout: Option<Duration>) {
        // The timer is due at the next completion of the device, maybe that of another queue.
        let (until, nr) = (Deadline::after(timeout), nr_completions as u32);
        while !self.state.has_done(self.queue, nr) {
            if until.is_over() || self.timer.wait_until_due(until.left()) {
                return self.state.end_wait(self.queue);
            }
        }
    }

    fn kick(&self) {
        self.timer.kick();
    }

    fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        BlockingWait::poll_fd(&*self.timer)
    }
}

impl Drop for ModelQueue {
    fn drop(&mut self) {
        self.state.remove_queue(self.queue);
    }
}
