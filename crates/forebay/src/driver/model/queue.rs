//! One queue of a modelled device.
//!
//! The data of a request moves when it is issued, and the request completes when the model says so.
//! A request that overlaps it meanwhile is concurrent with it, and may see either state.

use super::state::State;
use super::store::Store;
use crate::driver::Waiter;
use crate::driver::deadline::Deadline;
use crate::driver::timer::Timer;
use forebay_core::{Completions, Driver, Issue, IssuedRequest, Op, Reap};
use forebay_model::Command;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct ModelDriver {
    pub(super) state: Arc<State>,
    pub(super) store: Option<Arc<Store>>,
    /// The number of this queue at the device.
    pub(super) queue: usize,
    pub(super) timer: Arc<Timer>,
}

impl Driver for ModelDriver {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let command = Command { op: rq.op, start: rq.start, len: rq.len };
        if !self.state.begin(self.queue, rq.tag, &command) {
            return Issue::Busy;
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
        Issue::Queued
    }

    /// Does nothing: a command begins when it is queued.
    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        self.state.reap(self.queue, done);
        self.timer.reaped();
    }

    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        let until = Deadline::after(timeout);
        while !self.state.has_done(self.queue, nr_completions) {
            if until.is_over() {
                return self.state.end_wait(self.queue);
            }
            self.timer.wait(until.left());
        }
    }

    fn kick(&mut self) {
        self.timer.kick();
    }
}

impl Drop for ModelDriver {
    fn drop(&mut self) {
        self.state.remove_queue(self.queue);
    }
}
