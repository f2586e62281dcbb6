//! State that the whole world shares: clock, event queue, random numbers and trace.

use super::plant::{PLANT_OF, ServerPlant};
use super::trace::{Kind, Met, Trace};
use crate::heap::EventHeap;
use forebay_model::Random;

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A client takes its next step.
    Act(usize),
    /// Something arrives at the server or at the client, on this connection.
    Move(usize, Way),
    /// A worker of the server checks its clients.
    Work(usize),
    /// A command of this hardware context completes.
    Done(usize, usize),
    /// A hardware context runs again after the device was busy.
    Again(usize),
    /// The timer of a worker expires.
    Tick(usize),
    /// A query of the contents of a range is answered.
    Answer,
}

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// The shared state of a simulated world.
#[derive(Debug)]
pub(crate) struct Context {
    /// Virtual time, ns: that of the present event.
    pub(crate) now: u64,
    /// Time that the server has spent on the present event so far, ns.
    pub(crate) spent_ns: u64,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    events: EventHeap<Event>,
    /// Orders the starts and ends of requests.
    clock: u64,
    plant: Option<ServerPlant>,
    plant_random: Random,
}

impl Context {
    pub(crate) fn new(seed: u64, plant: Option<ServerPlant>) -> Context {
        Context {
            now: 0,
            spent_ns: 0,
            random: Random::new(seed, 1),
            trace: Trace::new(seed),
            events: EventHeap::default(),
            clock: 0,
            plant,
            plant_random: Random::new(seed, 2),
        }
    }

    /// Schedules an event after so many ns.
    pub(crate) fn after(&mut self, delay_ns: u64, event: Event) {
        self.events.add(self.now + delay_ns, event);
    }

    /// Schedules an event after a random time.
    pub(crate) fn soon(&mut self, mean_ns: u64, event: Event) {
        let delay_ns = self.random.exponential(mean_ns);
        self.after(delay_ns, event);
    }

    /// Advances to the next event.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let at = self.events.next_at()?;
        (self.now, self.spent_ns) = (at, 0);
        self.trace.now = at;
        self.events.pop()
    }

    /// Returns the time at the server, ns.
    pub(crate) fn server_ns(&self) -> u64 {
        self.now + self.spent_ns
    }

    /// Returns the tag of a command of this hardware context that completes next, and by now.
    pub(crate) fn peek_done(&self, hctx: usize) -> Option<usize> {
        match self.events.peek_due(self.server_ns()) {
            Some(&Event::Done(at, tag)) if at == hctx => Some(tag),
            _ => None,
        }
    }

    /// Takes the command that [`peek_done`](Context::peek_done) returns.
    pub(crate) fn take_done(&mut self, hctx: usize) -> Option<usize> {
        let tag = self.peek_done(hctx)?;
        self.events.pop();
        Some(tag)
    }

    /// Removes all scheduled events.
    pub(crate) fn forget(&mut self) {
        self.events.clear();
    }

    /// Returns a time later than all that were returned before.
    pub(crate) fn mark(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(crate) fn note(&mut self, kind: impl Kind, a: u64, b: u64) {
        self.trace.note(kind, a, b);
    }

    /// Shuffles a list.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for nth in (1..list.len()).rev() {
            list.swap(nth, self.random.below(nth as u64 + 1) as usize);
        }
    }

    /// Returns whether this planted bug shows now.
    pub(crate) fn plants(&mut self, plant: ServerPlant) -> bool {
        let shows = self.plant == Some(plant) && self.plant_random.chance(1, PLANT_OF);
        if shows {
            self.note(Met::Plant, 0, 0);
        }
        shows
    }
}
