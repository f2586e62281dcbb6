//! What everybody in the world shares: the clock, the events to come, the dice and the trace.

use super::plant::NbdPlant;
use super::trace::{Met, Trace};
use forebay_model::Random;
use std::collections::BTreeMap;

/// How often a planted bug shows: once in so many chances.
const PLANT_OF: u32 = 6;

/// Something that will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A client does something.
    Act(usize),
    /// Bytes come to the end of a pipe: of this connection, to the server or to the client.
    Move(usize, Way),
    /// A worker of the server looks at its sockets.
    Work(usize),
    /// A command is done, at this hardware context.
    Done(usize, usize),
    /// A hardware context at a busy device is run again.
    Again(usize),
}

/// Which of the two pipes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    /// Virtual time, ns.
    pub(crate) now: u64,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    events: BTreeMap<(u64, u64), Event>,
    nr_events: u64,
    /// Orders begins and ends of requests.
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
            events: BTreeMap::new(),
            nr_events: 0,
            clock: 0,
            plant,
            plant_random: Random::new(seed, 2),
        }
    }

    /// Something happens after so many ns.
    pub(crate) fn after(&mut self, delay_ns: u64, event: Event) {
        self.nr_events += 1;
        self.events.insert((self.now + delay_ns, self.nr_events), event);
    }

    /// The same, after a time that is drawn.
    pub(crate) fn soon(&mut self, mean_ns: u64, event: Event) {
        let delay_ns = self.random.exponential(mean_ns);
        self.after(delay_ns, event);
    }

    /// Goes on to the next event.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let ((at, _), event) = self.events.pop_first()?;
        self.now = at;
        self.trace.now = at;
        Some(event)
    }

    /// Nothing of what was to come does.
    pub(crate) fn forget(&mut self) {
        self.events.clear();
    }

    /// A moment later than all that were told before.
    pub(crate) fn mark(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(crate) fn note(&mut self, met: Met, a: u64, b: u64) {
        self.trace.note(met, a, b);
    }

    /// Whether this planted bug shows now.
    pub(crate) fn plants(&mut self, plant: NbdPlant) -> bool {
        let shows = self.plant == Some(plant) && self.plant_random.chance(1, PLANT_OF);
        if shows {
            self.note(Met::Plant, plant as u64, 0);
        }
        shows
    }
}
