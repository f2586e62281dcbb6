//! State that the whole world shares: clock, event queue, random numbers and trace.

use super::plant::NbdPlant;
use super::trace::{Met, Trace};
use crate::heap::EventHeap;
use forebay_model::Random;

/// How often a planted bug shows: once in so many chances.
pub(super) const PLANT_OF: u32 = 6;

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A client takes its next step.
    Act(usize),
    /// Bytes arrive at the end of a pipe of this connection, at the server or at the client.
    Move(usize, Way),
    /// A worker of the server checks its sockets.
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

/// One of the two pipes of a connection.
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
    /// Virtual time, ns.
    pub(crate) now: u64,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    events: EventHeap<Event>,
    /// Orders the starts and ends of requests.
    clock: u64,
    plant: Option<NbdPlant>,
    plant_random: Random,
}

impl Context {
    pub(crate) fn new(seed: u64, plant: Option<NbdPlant>) -> Context {
        Context {
            now: 0,
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
        self.now = at;
        self.trace.now = at;
        self.events.pop()
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

    pub(crate) fn note(&mut self, met: Met, a: u64, b: u64) {
        self.trace.note(met, a, b);
    }

    /// Returns whether this planted bug shows now.
    pub(crate) fn plants(&mut self, plant: NbdPlant) -> bool {
        let shows = self.plant == Some(plant) && self.plant_random.chance(1, PLANT_OF);
        if shows {
            self.note(Met::Plant, 0, 0);
        }
        shows
    }
}
