//! State of a modelled device: its machine, and the owner of each command.
//!
//! All queues share the machine, under one lock: a device has one arm, however many queues it has.
//! A thread that takes completions takes them for all queues. A completion of another queue is kept
//! for it, and that queue's timer is set to now. The timer of each queue with a command in flight
//! is set to the machine's next completion, whatever queue it belongs to, so at least one thread
//! comes to take it.

use crate::driver::timer::Timer;
use crate::sys::clock;
use forebay_core::{BlockStatus, Completions, Tag};
use forebay_model::{Command, Machine, Random};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bits of a command's id that hold its tag; the others hold its queue.
const TAG_BITS: u32 = 16;

#[derive(Debug)]
pub(super) struct State(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    machine: Box<dyn Machine>,
    random: Random,
    /// The clock of the machine, which never goes backwards (the clocks of two processors may
    /// differ by a few ticks).
    now_ns: u64,
    queues: Vec<Queue>,
}

#[derive(Debug)]
struct Queue {
    timer: Arc<Timer>,
    /// Completions that are not reaped.
    done: Vec<(Tag, Result<u64, BlockStatus>)>,
    /// The number of completions at which the timer is due: 1, unless a waiter needs more.
    nr_wanted: u32,
    /// The number of its commands that the machine has.
    nr_in_flight: u32,
    /// The queue is closed. Once nothing is in flight another queue may take its place.
    is_removed: bool,
}

impl State {
    pub(super) fn new(machine: Box<dyn Machine>, random: Random) -> State {
        State(Mutex::new(Inner { machine, random, now_ns: 0, queues: Vec::new() }))
    }

    /// Adds a queue of `depth` tags. Returns its number.
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

    /// Marks a queue as closed: no thread reaps from it any more.
    pub(super) fn remove_queue(&self, queue: usize) {
        self.lock().queues[queue].is_removed = true;
    }

    /// Begins a command of a queue. Returns false if the device is busy and does not accept it.
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

    /// Returns the completions of a queue.
    pub(super) fn reap(&self, queue: usize, done: &mut Completions) {
        let mut inner = self.lock();
        inner.take_done();
        inner.queues[queue].done.drain(..).for_each(|(tag, result)| done.push(tag, result));
        inner.set_timers();
    }

    /// Returns whether `nr` completions of a queue can be reaped. If not, its timer is set to the
    /// time of the next check. Completions before that time are too few.
    pub(super) fn has_done(&self, queue: usize, nr: u32) -> bool {
        let mut inner = self.lock();
        inner.take_done();
        let has_done = inner.queues[queue].done.len() >= nr as usize;
        inner.queues[queue].nr_wanted = if has_done { 1 } else { nr };
        inner.set_timers();
        has_done
    }

    /// Ends a wait that [`State::has_done`] has not ended: the next completion is due again.
    pub(super) fn end_wait(&self, queue: usize) {
        let mut inner = self.lock();
        inner.queues[queue].nr_wanted = 1;
        inner.set_timers();
    }

    /// Takes the lock and updates the clock.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now_ns = inner.now_ns.max(clock::now_ns());
        inner
    }
}

impl Inner {
    /// Takes all completions from the machine, for whatever queue.
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

    /// Sets the timer of each queue to when its waiter must return.
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
