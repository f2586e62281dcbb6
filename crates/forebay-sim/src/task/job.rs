//! A task that runs a fio job: fio's main loop, in virtual time.

use crate::coroutine::Cpu;
use crate::runtime::thread::{Ended, Io, Thread};
use crate::task::figures::{self, Figures};
use crate::trace::Kind;
use crate::world::World;
use forebay_core::{BioFlags, Class, Op, Priority};
use forebay_fio::generator::{Direction, Ops};
use forebay_fio::job::Job;
use forebay_fio::priority::{Class as JobClass, Priority as JobPriority, PriorityDrawer};
use std::rc::Rc;
use std::time::Duration;

/// One clone of a job.
#[derive(Debug)]
pub(crate) struct JobTask {
    /// In a box, because a coroutine is started with at most 1024 bytes.
    pub(crate) job: Box<Job>,
    /// The index of the job, and the number of the clone.
    pub(crate) place: (usize, u32),
    pub(crate) generator: Ops,
    /// The logical block size.
    pub(crate) block: u64,
    /// The number of the owner of its I/O; 0: none.
    pub(crate) owner: u32,
    /// `None` if all I/O has the usual priority.
    pub(crate) priorities: Option<PriorityDrawer>,
}

/// Runs the job to its end.
pub(crate) fn run(cpu: Cpu<'_>, task: JobTask) {
    let (world, id) = (Rc::clone(&cpu.world), cpu.id);
    world.note(Kind::Start, id as u64, id as u64);
    let (mut thread, figures) = (Thread::new(cpu), Figures::new(world.now()));
    thread.owner = task.owner;
    let mut clone =
        RunningClone { world, id, thread, task, figures, nr_writes: 0, ended: Vec::new() };
    clone.work();
    clone.finish();
}

/// A clone that runs.
struct RunningClone<'a> {
    world: Rc<World>,
    id: usize,
    thread: Thread<'a>,
    task: JobTask,
    figures: Figures,
    nr_writes: u32,
    /// Reaped and not counted yet.
    ended: Vec<Ended>,
}

impl RunningClone<'_> {
    /// Submits and reaps until the job has no more I/O or its time is over.
    fn work(&mut self) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let job = &self.task.job;
        let end_ns = job.runtime.map_or(u64::MAX, ns);
        let depth = job.iodepth as usize;
        let min = (job.iodepth_batch_complete_min as usize).max(1);
        let max = (job.iodepth_batch_complete_max as usize).max(min);
        let low = job.iodepth_low as usize;
        let mut is_over = false;
        while !is_over {
            is_over = self.submit_batch();
            is_over |= self.world.now() >= end_ns || self.figures.is_device_gone();
            // As in fio, a full queue is drained to `iodepth_low`, in batches.
            let low = if is_over { 0 } else { low };
            while self.in_flight() >= depth || self.in_flight() > low && is_over {
                let min = min.min(self.in_flight());
                self.thread.reap(min, max, &mut self.ended);
                self.count();
                if self.in_flight() <= low {
                    break;
                }
            }
        }
    }

    /// Submits a batch, in a plug. Returns whether the job has no more I/O.
    fn submit_batch(&mut self) -> bool {
        let (depth, fsync) = (self.task.job.iodepth as usize, self.task.job.fsync);
        let room = depth.saturating_sub(self.in_flight());
        self.thread.begin_plug();
        let mut is_over = false;
        for _ in 0..room.min(self.task.job.iodepth_batch.max(1) as usize) {
            let Some(next) = self.task.generator.next() else {
                is_over = true;
                break;
            };
            let op = match next.direction {
                Direction::Read => Op::Read,
                Direction::Write => Op::Write,
                Direction::Trim => Op::Discard,
            };
            let (at, nr) = (next.offset / self.task.block, u64::from(next.len) / self.task.block);
            let drawer = self.task.priorities.as_mut();
            let drawn = drawer.and_then(|drawer| drawer.next(next.direction, next.len));
            let priority = drawn.map(priority_of).unwrap_or_default();
            let io = Io { op, block: at, nr, priority, ..flush() };
            self.submit(io, figures::Kind::Io(next.direction));
            if op == Op::Write {
                self.nr_writes += 1;
                if fsync > 0 && self.nr_writes.is_multiple_of(fsync) {
                    self.submit(flush(), figures::Kind::Sync);
                }
            }
        }
        self.thread.end_plug();
        self.figures.committed(self.world.now());
        is_over
    }

    fn submit(&mut self, io: Io, kind: figures::Kind) {
        let start_ns = self.world.now();
        if let Some(serial) = self.thread.submit(io) {
            self.figures.submitted(serial, start_ns, kind);
        }
    }

    /// Flushes at the end if the job asks for it, and waits for all bios.
    fn finish(mut self) {
        if self.task.job.end_fsync && self.nr_writes > 0 {
            self.submit(flush(), figures::Kind::LastSync);
            self.figures.committed(self.world.now());
        }
        self.thread.retire(&mut self.ended);
        self.count();
        let nr_sleeps = self.world.scheduler.nr_sleeps_of(self.id);
        let figures = self.figures.finish(self.task.place, self.world.now(), nr_sleeps);
        self.world.tally.borrow_mut().clones.push(figures);
    }

    /// Counts the reaped bios.
    fn count(&mut self) {
        self.figures.reaped(self.world.now(), &self.ended);
        self.world.tally.borrow_mut().add(self.id, &mut self.ended);
    }

    fn in_flight(&self) -> usize {
        self.thread.nr_in_layer + self.thread.ready.len()
    }
}

/// Returns the priority of fio's numbers.
fn priority_of(priority: JobPriority) -> Priority {
    let class = match priority.class {
        JobClass::RealTime => Class::RealTime,
        JobClass::BestEffort => Class::BestEffort,
        JobClass::Idle => Class::Idle,
    };
    Priority::new(class, priority.level).unwrap_or_default()
}

fn flush() -> Io {
    let (flags, cuts) = (BioFlags::NONE, Vec::new());
    Io {
        op: Op::Flush,
        flags,
        block: 0,
        nr: 0,
        cuts,
        charge: None,
        point: 0,
        priority: Priority::default(),
    }
}
