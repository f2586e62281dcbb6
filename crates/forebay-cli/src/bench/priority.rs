//! The priorities of a clone's I/Os, from fio's numbers to the library's.

use forebay::Io;
use forebay_fio::generator::Direction;
use forebay_fio::job::Job;
use forebay_fio::priority::{Class, PriorityDrawer};

/// Sets the priorities of a clone's I/Os, one after another.
#[derive(Debug)]
pub(super) struct Prioritiser(PriorityDrawer);

impl Prioritiser {
    /// Returns that of clone number `stream`; `None` if all I/Os have the usual priority.
    pub(super) fn new(job: &Job, stream: u64, chance: u64) -> Option<Self> {
        job.priorities.drawer(job.seed(chance), stream).map(Self)
    }

    /// Returns the I/O with the next priority.
    // Not inlined: most jobs have no priorities.
    #[inline(never)]
    pub(super) fn apply(&mut self, io: Io, direction: Direction) -> Io {
        let priority = self.0.next(direction);
        io.priority(library_class(priority.class), priority.level)
    }

    /// Gives the next I/O the last priority again: the layer had no room for it.
    pub(super) fn repeat(&mut self) {
        self.0.repeat();
    }
}

fn library_class(class: Class) -> forebay::Class {
    match class {
        Class::RealTime => forebay::Class::RealTime,
        Class::BestEffort => forebay::Class::BestEffort,
        Class::Idle => forebay::Class::Idle,
    }
}
