//! The priorities of a clone's I/Os, from fio's numbers to the library's.

use forebay::Io;
use forebay_fio::generator::Op;
use forebay_fio::job::Job;
use forebay_fio::priority::{Class, Priority, PriorityDrawer};

/// Sets the priorities of a clone's I/Os, one after another.
#[derive(Debug)]
pub(super) struct Prioritiser {
    drawer: PriorityDrawer,
    /// The priority of the I/O in each slot, as in `ioprio_set(2)`; 0 for none.
    of_slots: Vec<u16>,
}

impl Prioritiser {
    /// Returns that of clone number `stream`; `None` if all I/Os have the usual priority.
    pub(super) fn new(job: &Job, stream: u64, chance: u64) -> Option<Self> {
        let drawer = job.priorities.drawer(job.seed(chance), stream);
        drawer.map(|drawer| Self { drawer, of_slots: vec![0; job.iodepth as usize] })
    }

    /// Returns the I/O of a slot with the next priority.
    // Not inlined: most jobs have no priorities.
    #[inline(never)]
    pub(super) fn apply(&mut self, io: Io, op: &Op, slot: u32) -> Io {
        let priority = self.drawer.next(op.direction, op.len);
        self.of_slots[slot as usize] = priority.map_or(0, Priority::number);
        match priority {
            Some(priority) => io.priority(library_class(priority.class), priority.level),
            None => io,
        }
    }

    /// Returns the priority of the last I/O of a slot.
    pub(super) fn of_slot(&self, slot: u32) -> u16 {
        self.of_slots[slot as usize]
    }

    /// Gives the next I/O the last priority again: the layer had no room for it.
    pub(super) fn repeat(&mut self) {
        self.drawer.repeat();
    }
}

fn library_class(class: Class) -> forebay::Class {
    match class {
        Class::RealTime => forebay::Class::RealTime,
        Class::BestEffort => forebay::Class::BestEffort,
        Class::Idle => forebay::Class::Idle,
    }
}
