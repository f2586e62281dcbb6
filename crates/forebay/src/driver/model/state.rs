//! The machine of a modelled device, and which of its commands belong to whom.
//!
//! All queues share the machine, under one lock: one arm is one arm, however many queues it has.
//! Whoever takes what is done takes it for all: what belongs to another queue is kept for it, and
//! its timer is set to now. Each queue with something in flight has its timer set to when the
//! machine has something done next, whosever that is, so somebody comes to take it.

use crate::driver::timer::Timer;
use crate::runtime::clock;
use forebay_core::{BlockStatus, Completions, Tag};
use forebay_model::{Command, Machine, Random};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bits of a command's name that are its tag; the others are its queue.
const TAG_BITS: u32 = 16;

#[derive(Debug)]
pub(super) struct State(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    machine: Box<dyn Machine>,
    random: Random,
    /// The clock of the machine, which does not go backwards (those of two processors may differ
    /// by a few ticks).
    now_ns: u64,
    queues: Vec<Queue>,
}

#[derive(Debug)]
struct Queue {
    timer: Arc<Timer>,
    /// What is done and was not reaped.
    done: Vec<(Tag, Result<u64, BlockStatus>)>,
    /// With how many of those somebody comes to reap: with the first, unless who waits needs more.
    nr_wanted: u32,
    /// How many commands the machine has of it.
    nr_in_flight: u32,
    /// Nobody uses it any more. Once nothing is in flight another may have its place.
    is_removed: bool,
}

impl State {
    pub(super) fn new(machine: Box<dyn Machine>, random: Random) -> State {
        State(Mutex::new(Inner { machine, random, now_ns: 0, queues: Vec::new() }))
    }

    /// A new queue of `depth` tags. Returns its number.
    pub(super) fn add_queue(&self, timer: Arc<Timer>, depth: u32) -> usize {
        let mut inner = self.lock();
        let done = Vec::with_capacity(depth as usize);
        let queue = Queue { timer, done, nr_wanted: 1, nr_in_flight: 0, is_removed: false };
        let is_free = |queue: &Queue| queue.is_removed && queue.nr_in_flight == 0;
        match inner.queues.iter().position(is_free) {
            Some(at) => {
                inner.queues[at] = queue;
                at
            }
            None => {
                inner.queues.push(queue);
                inner.queues.len() - 1
            }
        }
    }

    /// Nobody reaps from a queue any more.
    pub(super) fn remove_queue(&self, queue: usize) {
        self.lock().queues[queue].is_removed = true;
    }

    /// Begins a command of a queue. False: the device is busy, and does not take it.
    pub(super) fn begin(&self, queue: usize, tag: Tag, command: &Command) -> bool {
        let mut inner = self.lock();
        let id = u32::try_from(queue << TAG_BITS | tag.index()).expect("tags have 16 bits");
        let Inner { machine, random, now_ns, queues } = &mut *inner;
        if !machine.may_begin(command, *now_ns) {
            return false;
        }
        machine.begin(id, command, *now_ns, random);
        queues[queue].nr_in_flight += 1;
        inner.set_timers();
        true
    }

    /// Hands over what is done of a queue.
    pub(super) fn reap(&self, queue: usize, done: &mut Completions) {
        let mut inner = self.lock();
        inner.take_done();
        inner.queues[queue].done.drain(..).for_each(|(tag, result)| done.push(tag, result));
        inner.set_timers();
    }

    /// Whether so many completions of a queue can be reaped. If not, its timer tells when to ask
    /// again: nothing that is done before that is enough.
    pub(super) fn has_done(&self, queue: usize, nr: u32) -> bool {
        let mut inner = self.lock();
        inner.take_done();
        let has_done = inner.queues[queue].done.len() >= nr as usize;
        inner.queues[queue].nr_wanted = if has_done { 1 } else { nr };
        inner.set_timers();
        has_done
    }

    /// The lock, at what is the time then.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now_ns = inner.now_ns.max(clock::now_ns());
        inner
    }
}

impl Inner {
    /// Takes what is done from the machine, for whomever it is.
    fn take_done(&mut self) {
        while let Some(done) = self.machine.take_done(self.now_ns, &mut self.random) {
            let queue = &mut self.queues[(done.id >> TAG_BITS) as usize];
            queue.nr_in_flight -= 1;
            if !queue.is_removed {
                let tag = Tag::from_index((done.id & ((1 << TAG_BITS) - 1)) as usize);
                queue.done.push((tag, done.result));
            }
        }
    }

    /// Tells the waiter of each queue when to come back.
    fn set_timers(&self) {
        let next_at_ns = self.machine.next_at_ns();
        for queue in &self.queues {
            let due_ns = match queue.done.len() >= queue.nr_wanted as usize {
                true => Some(0),
                false => next_at_ns.filter(|_| queue.nr_in_flight > 0),
            };
            queue.timer.set(due_ns);
        }
    }
}
