//! The driver of the core, over a modelled device, with the checkers.

use super::checks::Checks;
use super::met::Met;
use crate::engine::Engine;
use crate::heap::EventHeap;
use crate::trace::{Kind, code};
use forebay_core::{BlockStatus, Completions, Driver, Issue, IssuedRequest, Op, Reap, Tag};
use forebay_model::{Admission, Command, Random};
use std::time::Duration;

/// A request that the driver accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentRequest {
    /// The time, ns.
    pub at_ns: u64,
    /// The operation.
    pub op: Op,
    /// The first byte.
    pub start: u64,
    /// The number of bytes.
    pub len: u64,
}

/// The result of a request.
type Outcome = Result<u64, BlockStatus>;

/// The device and its driver.
#[derive(Debug)]
pub(super) struct Io {
    /// The present time, ns.
    pub(super) now: u64,
    pub(super) checks: Checks,
    engine: Engine,
    random: Random,
    /// Accepted, and not committed.
    queued: Vec<(Tag, Command)>,
    /// Completions at known times.
    heap: EventHeap<(Tag, Outcome)>,
    /// Completed, and not reaped.
    done: Vec<(Tag, Outcome)>,
    nr_running: u32,
    /// When the last command has completed, if none runs.
    idle_since: Option<u64>,
    sent: Vec<SentRequest>,
}

impl Io {
    pub(super) fn new(engine: Engine, checks: Checks, random: Random) -> Io {
        Io {
            now: 0,
            checks,
            engine,
            random,
            queued: Vec::new(),
            heap: EventHeap::default(),
            done: Vec::new(),
            nr_running: 0,
            idle_since: Some(0),
            sent: Vec::new(),
        }
    }

    /// Returns the time of the next completion.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.next_at().into_iter().chain(self.engine.next_at_ns()).min()
    }

    /// Sets the time. Commands complete.
    pub(super) fn pass_to(&mut self, at: u64) {
        self.checks.pass_to(at, self.idle_since);
        self.now = at;
        while self.heap.is_due(at)
            && let Some(done) = self.heap.pop()
        {
            self.complete(done);
        }
        while let Some((_, tag, result)) = self.engine.take_done(at, &mut self.random) {
            self.complete((Tag::from_index(tag), result));
        }
    }

    fn complete(&mut self, (tag, result): (Tag, Outcome)) {
        self.checks.trace.note(Kind::Done, tag.index() as u64, code(result));
        self.done.push((tag, result));
        self.nr_running -= 1;
        if self.nr_running == 0 {
            self.idle_since = Some(self.now);
        }
    }

    /// Returns whether completions wait to be reaped.
    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Returns whether no command is at the device.
    pub(super) fn is_idle(&self) -> bool {
        self.nr_running == 0 && self.done.is_empty() && self.queued.is_empty()
    }

    /// Returns the number of accepted requests.
    pub(super) fn nr_sent(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn take_sent(&mut self) -> Vec<SentRequest> {
        std::mem::take(&mut self.sent)
    }
}

impl Driver for Io {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let command = Command { op: rq.op, start: rq.start, len: rq.len };
        match self.engine.admit(&command, self.now, &mut self.random) {
            Admission::Busy => {
                self.checks.fault(Met::Busy);
                return Issue::Busy;
            }
            Admission::Refused(status) => {
                self.checks.fault(Met::Fault);
                return Issue::Failed(status);
            }
            Admission::Taken => {}
        }
        self.checks.issue(rq);
        let Command { op, start, len } = command;
        self.sent.push(SentRequest { at_ns: self.now, op, start, len });
        self.queued.push((rq.tag, command));
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        let Io { engine, heap, random, now, .. } = self;
        for (tag, command) in self.queued.drain(..) {
            assert!(engine.may_begin(&command, *now), "these devices take all that they admit");
            let begun = engine.begin((0, tag.index()), &command, *now, random);
            if begun.result != Ok(command.len) {
                self.checks.fault(Met::Fault);
            }
            if let Some(done_at_ns) = begun.done_at_ns {
                heap.add(done_at_ns, (tag, begun.result));
            }
            self.nr_running += 1;
            self.idle_since = None;
        }
    }

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        self.done.drain(..).for_each(|(tag, result)| done.push(tag, result));
    }

    fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {
        unreachable!("commands complete outside of a turn");
    }
}
