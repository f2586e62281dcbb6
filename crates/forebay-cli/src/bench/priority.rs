//! The priorities of a clone's I/Os, from fio's numbers to the library's and the kernel's.

use forebay::Io;
use forebay_fio::generator::Op;
use forebay_fio::job::Job;
use forebay_fio::priority::{Class, Priority, PriorityDrawer};
use forebay_fio::report::JobError;
use rustix::io::Errno;

use super::plan::{Target, file_below};
use super::thread_calls::set_io_priority;

/// Gives this thread, which runs a clone on these disks, the priority of the job, as fio does. The
/// kernel copies the priority of a thread to each I/O that the thread submits to a file.
pub(super) fn set_for_thread(job: &Job, targets: &[Target]) -> Result<(), JobError> {
    let is_on_file = targets.iter().any(|target| file_below(&target.spec).is_some());
    let Some(priority) = job.priorities.of_job().filter(|_| is_on_file) else { return Ok(()) };
    set_io_priority(priority).map_err(|error| {
        let remedy = match error {
            Errno::PERM => "the real-time class needs CAP_SYS_NICE or CAP_SYS_ADMIN: run as root",
            _ => "check --prioclass and --prio",
        };
        let (class, level) = (priority.class.number(), priority.level);
        let message = format!(
            "ioprio_set: cannot set the I/O priority of class {class}, level {level}: {error}; \
             {remedy}"
        );
        JobError { errno: error.raw_os_error(), message }
    })
}

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
