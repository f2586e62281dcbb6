//! A run of a load: its scenario, and its tasks.

use super::job::Job;
use crate::coroutine::{Cpu, Task};
use crate::lab::measured::Measured;
use crate::lab::scenario::{INTERRUPTS, METER, scenario, times};
use crate::lab::work::Worker;
use crate::lab::world::{SMALL_BYTES, TagLoad};
use crate::runtime::run_queue::{RunAfter, WorkerSettings};
use crate::scenario::Scenario;
use crate::task::interrupts;
use forebay_core::{Histogram, Policy, SECTOR_SHIFT};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The largest logical block: a checker checks each block.
const BLOCK_MAX: u64 = 256 << 10;

/// A processor and a worker in addition to the jobs' threads.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::lab) struct Extras {
    /// The time that a processor takes to complete a command, one at a time, ns; 0: none.
    pub(in crate::lab) command_ns: u64,
    /// The worker, in place of that of the load.
    pub(in crate::lab) worker: Option<WorkerSettings>,
}

/// State that the jobs share, and the figures.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) load: TagLoad,
    /// The logical block size.
    pub(super) block: u64,
    /// The size of a request, and of a bio of a job's I/O.
    pub(super) request_bytes: u64,
    pub(super) part_bytes: u64,
    /// The number of bios of an I/O, and of I/Os that a job has in flight.
    pub(super) nr_parts: u64,
    pub(super) depth: usize,
    pub(super) measured: RefCell<Measured>,
    /// How often the worker was queued, and pending already, until the end.
    counts: Cell<(u64, u64)>,
}

/// Runs a load to its end. Also returns how often the worker was queued, and how often it was
/// pending already, warm-up included.
pub(in crate::lab) fn run(load: &TagLoad, extras: Extras) -> (Measured, (u64, u64)) {
    let run = Rc::new(Run::new(load));
    let outcome = crate::run(load.seed, run.scenario(extras), None, |world, id| {
        let run = Rc::clone(&run);
        match id {
            INTERRUPTS => Task::new(world, id, interrupts::run),
            METER => Task::new(world, id, move |cpu| run.meter(&cpu)),
            _ => Task::new(world, id, move |cpu| Job::run(run, cpu)),
        }
    });
    outcome.unwrap_or_else(|violation| panic!("{violation}"));
    let measured = run.measured.borrow().clone();
    (measured, run.counts.get())
}

impl Run {
    fn new(load: &TagLoad) -> Run {
        assert!(load.nr_jobs > 0 && load.run_ns > 0, "there is something to measure");
        let request_bytes = u64::from(load.device.max_sectors) << SECTOR_SHIFT;
        let part_bytes = match load.is_thread_waiting() {
            true => load.block_bytes.min(request_bytes),
            false => load.block_bytes,
        };
        assert!(load.block_bytes.is_multiple_of(part_bytes), "an I/O is whole requests");
        let has_equal_parts = !(load.is_mixed && load.is_thread_waiting());
        assert!(has_equal_parts, "each job has its own number of parts");
        let smallest = if load.is_mixed { SMALL_BYTES } else { part_bytes };
        Run {
            load: *load,
            block: (1 << smallest.trailing_zeros()).min(BLOCK_MAX),
            request_bytes,
            part_bytes,
            nr_parts: load.block_bytes / part_bytes,
            depth: (load.depth / load.nr_jobs).max(1) as usize,
            measured: RefCell::new(Measured {
                run_ns: load.run_ns,
                ios_of_jobs: vec![0; load.nr_jobs as usize],
                nr_tag_sleeps: 0,
                nr_completion_sleeps: 0,
                nr_vain_wakes: 0,
                nr_worker_runs: 0,
                tag_waits: Histogram::default(),
                latencies: [Histogram::default(), Histogram::default()],
            }),
            counts: Cell::default(),
        }
    }

    fn scenario(&self, extras: Extras) -> Scenario {
        let &TagLoad { device, nr_tags: queue_depth, wake, tag_need, .. } = &self.load;
        let policy = Policy::default().queue_depth(queue_depth).wake(wake).tag_need(tag_need);
        let worker = match self.load.worker {
            Worker::Behind { device_depth } if self.load.is_thread_waiting() => {
                let after = RunAfter::MoreInFlight(device_depth);
                Some(WorkerSettings { after, ..WorkerSettings::default() })
            }
            _ => None,
        };
        let times = times(&self.load.costs, (0, 0));
        let block = self.block as u32;
        let scenario = scenario(device, device.machine(), policy, times, self.load.nr_jobs, block);
        let worker = extras.worker.or(worker);
        Scenario { command_ns: extras.command_ns, worker, ..scenario }
    }

    /// Counts the runs of the worker.
    fn meter(&self, cpu: &Cpu<'_>) {
        let nr_runs = || {
            let run_queue = cpu.world.run_queue.as_ref();
            run_queue.map_or(0, |run_queue| cpu.world.scheduler.nr_sleeps_of(run_queue.task))
        };
        cpu.spend(self.load.warm_up_ns);
        let nr_before = nr_runs();
        cpu.spend(self.load.run_ns);
        self.measured.borrow_mut().nr_worker_runs = nr_runs() - nr_before;
        self.counts.set(cpu.world.run_queue.as_ref().map_or((0, 0), |queue| queue.counts()));
    }
}
