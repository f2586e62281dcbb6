//! The threads of a load, as tasks of the simulator's world.

use super::super::scenario::{FIRST_THREAD, INTERRUPTS, METER, scenario, times};
use super::shape::{FsyncTask, FsyncTasks};
use super::{FlushCounts, FlushLoad, FlushMeasured};
use crate::coroutine::{Cpu, Task};
use crate::runtime::thread::{Io, Thread};
use crate::task::interrupts;
use crate::world::World;
use forebay_core::{BioFlags, Histogram, Op, Policy, Priority, QueueStats};
use forebay_model::Random;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The number of the random stream of the first thread.
const FIRST_THREAD_STREAM: u64 = 16;

/// The logical block size.
const BLOCK: u32 = 4096;

/// All threads begin within this time.
const START_NS: u64 = 1_000_000;

/// State that the threads share, and the figures.
#[derive(Debug)]
struct Run {
    load: FlushLoad,
    tasks: RefCell<FsyncTasks>,
    nr_writes: Cell<u64>,
    fsyncs: RefCell<Histogram>,
    counts: Cell<FlushCounts>,
}

/// Runs the load to its end.
pub(super) fn run(load: &FlushLoad) -> FlushMeasured {
    assert!(load.nr_threads > 0 && load.run_ns > 0, "there is something to measure");
    assert!(load.range_bytes >= load.block_bytes, "there is a place to write to");
    let &FlushLoad { device, flush, elide, .. } = load;
    let policy = Policy::default().queue_depth(device.queue_depth).flush(flush).elide(elide);
    let times = times(&load.costs, (load.late_per_million, load.late_ns));
    let scenario = scenario(device, device.machine(), policy, times, load.nr_threads, BLOCK);
    let run = Rc::new(Run {
        load: *load,
        tasks: RefCell::new(FsyncTasks::new(load.shape)),
        nr_writes: Cell::new(0),
        fsyncs: RefCell::default(),
        counts: Cell::default(),
    });
    let outcome = crate::run(load.seed, scenario, None, |world, id| {
        let run = Rc::clone(&run);
        match id {
            INTERRUPTS => Task::new(world, id, interrupts::run),
            METER => Task::new(world, id, move |cpu| run.meter(&cpu)),
            _ => Task::new(world, id, move |cpu| run.work(cpu)),
        }
    });
    outcome.unwrap_or_else(|violation| panic!("{violation}"));
    FlushMeasured {
        run_ns: load.run_ns,
        nr_writes: run.nr_writes.get(),
        fsyncs: run.fsyncs.take(),
        counts: run.counts.get(),
    }
}

impl Run {
    /// Counts the flushes of the measurement.
    fn meter(&self, cpu: &Cpu<'_>) {
        cpu.spend(self.load.warm_up_ns);
        let before = counts(&cpu.world);
        cpu.spend(self.load.run_ns);
        self.counts.set(counts(&cpu.world).since(before));
    }

    /// Writes and calls fsync until the end of the measurement.
    fn work(&self, cpu: Cpu<'_>) {
        let (load, world) = (&self.load, Rc::clone(&cpu.world));
        let thread = (cpu.id - FIRST_THREAD) as u64;
        let mut random = Random::new(load.seed, FIRST_THREAD_STREAM + thread);
        cpu.spend(random.below(START_NS));
        let mut thread = Thread::new(cpu);
        let mut ended = Vec::new();
        let mut last = None;
        while world.now() < load.warm_up_ns + load.run_ns {
            let task = self.tasks.borrow_mut().next(last);
            let begun_ns = world.now();
            thread.submit(self.io(task, &mut random));
            thread.reap(1, 1, &mut ended);
            let Some(ended) = ended.pop() else { panic!("a thread waits for each of its bios") };
            assert_eq!(ended.result, Ok(ended.len), "a machine does not fail");
            let costs = load.costs;
            thread.cpu.spend(costs.reap_ns + costs.submit_ns + costs.tag_ns);
            self.record(task, begun_ns, world.now());
            last = Some(task);
        }
        thread.retire(&mut ended);
    }

    fn io(&self, task: FsyncTask, random: &mut Random) -> Io {
        let FlushLoad { block_bytes, range_bytes, .. } = self.load;
        let nr = block_bytes / u64::from(BLOCK);
        let (op, block, nr) = match task {
            FsyncTask::Fsync => (Op::Flush, 0, 0),
            FsyncTask::Write => (Op::Write, random.below(range_bytes / block_bytes) * nr, nr),
        };
        Io {
            op,
            flags: BioFlags::NONE,
            block,
            nr,
            cuts: Vec::new(),
            charge: None,
            point: 0,
            priority: Priority::default(),
        }
    }

    /// Records that a thread has finished an action, and continues.
    fn record(&self, task: FsyncTask, begun_ns: u64, now: u64) {
        let end_ns = self.load.warm_up_ns + self.load.run_ns;
        if now < self.load.warm_up_ns || now >= end_ns {
            return;
        }
        match task {
            FsyncTask::Write => self.nr_writes.set(self.nr_writes.get() + 1),
            FsyncTask::Fsync => self.fsyncs.borrow_mut().record(now - begun_ns),
        }
    }
}

/// Returns the layer's flush counters.
fn counts(world: &World) -> FlushCounts {
    let mut stats = QueueStats::default();
    world.hctxs.iter().for_each(|hctx| stats.add_runs(&hctx.counters));
    FlushCounts::of(&stats)
}
