//! A task that replays the I/Os of a recorded thread at their times.

use crate::coroutine::Cpu;
use crate::runtime::thread::{Ended, Io, Thread};
use crate::task::figures::{self, Figures};
use crate::trace::Kind;
use crate::world::World;
use forebay_core::{BioFlags, Op, Priority};
use forebay_fio::generator::Direction;
use forebay_fio::iolog::{Act, Step};
use forebay_fio::stats::Latency;
use std::rc::Rc;

/// Interval between checks of a range that I/O of another task occupies, ns.
const OCCUPIED_NS: u64 = 1_000;

/// A thread of a recording.
#[derive(Debug)]
pub(crate) struct ReplayTask {
    /// In the order of their times.
    pub(crate) steps: Rc<[Step]>,
    /// The most I/Os in flight.
    pub(crate) iodepth: usize,
    /// The logical block size.
    pub(crate) block: u64,
    /// Whether the steps have times.
    pub(crate) is_timed: bool,
}

/// Replays the thread to its end.
pub(crate) fn run(cpu: Cpu<'_>, task: ReplayTask) {
    let (world, id) = (Rc::clone(&cpu.world), cpu.id);
    world.note(Kind::Start, id as u64, id as u64);
    let (thread, figures) = (Thread::new(cpu), Figures::new(world.now()));
    let lateness = Latency::default();
    let mut replay = Replay { world, id, thread, task, figures, lateness, ended: Vec::new() };
    replay.work();
    replay.finish();
}

/// A replay that runs. Times of steps count from the start of the run, for all threads.
struct Replay<'a> {
    world: Rc<World>,
    id: usize,
    thread: Thread<'a>,
    task: ReplayTask,
    figures: Figures,
    /// By how much I/Os were submitted after they were due.
    lateness: Latency,
    /// Reaped and not counted yet.
    ended: Vec<Ended>,
}

impl Replay<'_> {
    fn work(&mut self) {
        let steps = Rc::clone(&self.task.steps);
        let mut steps = &steps[..];
        while let Some(next) = steps.first() {
            if self.figures.is_device_gone() {
                return;
            }
            self.wait_until(next.due_ns);
            let nr = match next.act {
                Act::Io(_) => {
                    self.wait_for_range(next);
                    self.submit_due(steps)
                }
                Act::Sync | Act::Datasync => {
                    self.sync(*next);
                    1
                }
            };
            steps = &steps[nr..];
        }
    }

    /// Reaps until this time, and until there is room for an I/O.
    fn wait_until(&mut self, due_ns: u64) {
        loop {
            let left_ns = due_ns.saturating_sub(self.world.now());
            let is_full = self.in_flight() >= self.task.iodepth;
            match self.in_flight() {
                _ if left_ns == 0 && !is_full => return,
                0 => self.thread.cpu.sleep(left_ns),
                _ if left_ns == 0 => self.reap(),
                _ => {
                    self.thread.reap_until(due_ns, 1, usize::MAX, &mut self.ended);
                    self.count();
                }
            }
        }
    }

    /// Waits until no I/O overlaps this one, which would become a read ([`Thread::submit`]).
    fn wait_for_range(&mut self, step: &Step) {
        while !self.may_submit(step) {
            match self.in_flight() {
                0 => self.thread.cpu.sleep(OCCUPIED_NS),
                _ => self.reap(),
            }
        }
    }

    /// Returns whether an I/O may be submitted now: no other discard occupies its range.
    fn may_submit(&self, step: &Step) -> bool {
        let (block, nr) = self.blocks_of(step);
        step.act != Act::Io(Direction::Trim) || self.world.checks().bios.is_range_free(block, nr)
    }

    /// Returns the first block of an I/O, and the number of its blocks.
    fn blocks_of(&self, step: &Step) -> (u64, u64) {
        (step.offset / self.task.block, u64::from(step.len) / self.task.block)
    }

    /// Submits the I/Os that are due now and fit into the queue, in a plug. Returns their number.
    /// The first one is due, and there is room for it.
    fn submit_due(&mut self, steps: &[Step]) -> usize {
        let mut nr = 0;
        self.thread.begin_plug();
        for step in steps {
            let Act::Io(direction) = step.act else { break };
            let now_ns = self.world.now();
            let has_room = self.in_flight() < self.task.iodepth;
            if step.due_ns > now_ns || !has_room || !self.may_submit(step) {
                break;
            }
            if self.task.is_timed {
                self.lateness.record(now_ns - step.due_ns);
            }
            let (block, blocks) = self.blocks_of(step);
            let io = Io { op: op_of(direction), block, nr: blocks, ..flush() };
            self.submit(io, step.due_ns, figures::Kind::Io(direction));
            nr += 1;
        }
        self.thread.end_plug();
        self.figures.committed(self.world.now());
        nr
    }

    /// Flushes, and waits for that flush as `fsync` does.
    fn sync(&mut self, step: Step) {
        let serial = self.submit(flush(), step.due_ns, figures::Kind::Sync);
        self.figures.committed(self.world.now());
        while serial.is_some_and(|serial| self.figures.is_in_flight(serial)) {
            self.reap();
        }
    }

    /// Submits an I/O that was due at this time. Returns the serial number of its bio, if it was
    /// accepted.
    fn submit(&mut self, io: Io, due_ns: u64, kind: figures::Kind) -> Option<u64> {
        let start_ns = if self.task.is_timed { due_ns } else { self.world.now() };
        let serial = self.thread.submit(io)?;
        self.figures.submitted(serial, start_ns, kind);
        Some(serial)
    }

    /// Reaps at least one I/O.
    fn reap(&mut self) {
        self.thread.reap(1, usize::MAX, &mut self.ended);
        self.count();
    }

    /// Counts the reaped bios.
    fn count(&mut self) {
        self.figures.reaped(self.world.now(), &self.ended);
        self.world.tally.borrow_mut().add(self.id, &mut self.ended);
    }

    fn in_flight(&self) -> usize {
        self.thread.nr_in_layer + self.thread.ready.len()
    }

    /// Reaps all bios, each as soon as it has ended.
    fn finish(mut self) {
        while self.in_flight() > 0 {
            self.reap();
        }
        self.thread.retire(&mut self.ended);
        self.count();
        let nr_sleeps = self.world.scheduler.nr_sleeps_of(self.id);
        let mut figures = self.figures.finish((self.id, 0), self.world.now(), nr_sleeps);
        figures.lateness = self.task.is_timed.then(|| Box::new(self.lateness));
        self.world.tally.borrow_mut().clones.push(figures);
    }
}

fn op_of(direction: Direction) -> Op {
    match direction {
        Direction::Read => Op::Read,
        Direction::Write => Op::Write,
        Direction::Trim => Op::Discard,
    }
}

fn flush() -> Io {
    Io {
        op: Op::Flush,
        flags: BioFlags::NONE,
        block: 0,
        nr: 0,
        cuts: Vec::new(),
        charge: None,
        point: 0,
        priority: Priority::default(),
    }
}
