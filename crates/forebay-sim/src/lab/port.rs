//! The driver of a machine in virtual time: begins queued commands, and returns completions.

use forebay_core::{Completions, Driver, Issue, IssuedRequest, Look, Tag};
use forebay_model::{Command, Machine, Random};
use std::time::Duration;

/// A machine, as the layer's turn sees it.
#[derive(Debug)]
pub(super) struct Port {
    machine: Box<dyn Machine>,
    random: Random,
    /// The time of the turn.
    pub(super) now: u64,
}

impl Port {
    pub(super) fn new(machine: Box<dyn Machine>, random: Random) -> Port {
        Port { machine, random, now: 0 }
    }

    /// Returns the time of the device's next interrupt, ns.
    pub(super) fn next_at_ns(&self) -> Option<u64> {
        self.machine.next_at_ns()
    }
}

impl Driver for Port {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let command = Command { op: rq.op, start: rq.start, len: rq.len };
        if !self.machine.may_begin(&command, self.now) {
            return Issue::Busy;
        }
        self.machine.begin(rq.tag.index() as u32, &command, self.now, &mut self.random);
        Issue::Queued
    }

    /// Does nothing: a command begins when it is queued, which is at the same time.
    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _look: Look) {
        let Port { machine, random, now } = self;
        let ended = std::iter::from_fn(|| machine.take_done(*now, random));
        ended.for_each(|ended| done.push(Tag::from_index(ended.id as usize), ended.result));
    }

    fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {
        unreachable!("virtual time passes between turns, not in one");
    }
}
