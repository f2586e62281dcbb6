//! The cost of scheduling queue runs: the load, and its measurement.
//!
//! It models the state before and after "blk-mq: avoid repeatedly scheduling the same work to run
//! hardware queue" (2019). While requests wait in the layer, each completion has a worker run the
//! queue. If that work is pending already, the kernel *before* the change removes it from its list
//! and inserts it again, under locks for which all completing processors contend. The kernel
//! *after* the change tests a bit. Work is pending from its queueing until it begins. Work that is
//! queued while it runs is pending until that run is over. A run takes time for each waiting
//! request. So the deeper the queue, the more completions find the work pending.

use super::costs::Costs;
use super::measured::Measured;
use super::tags::{Extras, TagLoad, Worker, run};
use crate::runtime::run_queue::{RunAfter, WorkerSettings};
use forebay_core::{TagNeed, WakePolicy};
use forebay_model::machines::Preset;

/// Jobs that read 4 KiB at a time, on a device that is faster than its processors.
#[derive(Clone, Copy, Debug)]
pub struct RunLoad {
    /// The device.
    pub device: &'static Preset,
    /// The number of jobs.
    pub nr_jobs: u32,
    /// The number of I/Os that all jobs together keep in flight.
    pub depth: u32,
    /// The number of commands that the device takes at once. The others wait in the layer.
    pub nr_tags: u32,
    /// How a completion treats pending work.
    pub run_queue: RunQueue,
    /// The costs of completions.
    pub costs: RunCosts,
    /// The warm-up time, ns, which is not measured.
    pub warm_up_ns: u64,
    /// The measured time after that, ns.
    pub run_ns: u64,
    /// The seed: the same seed draws the same places.
    pub seed: u64,
}

/// Runs a load, with all checkers. Also returns how often completions requested a run, warm-up
/// included.
///
/// # Panics
/// If it has no jobs, tags or time, and if a rule is broken.
pub fn measure_runs(load: &RunLoad) -> (Measured, RunCounts) {
    let &RunLoad { device, nr_jobs, depth, nr_tags, warm_up_ns, run_ns, seed, .. } = load;
    // The threads' work is part of the processors' time for an I/O.
    let costs = Costs { submit_ns: 0, tag_ns: 0, reap_ns: 0, wake_min_ns: 0, wake_max_ns: 0 };
    let load_of_tags = TagLoad {
        constants: &[],
        device,
        nr_jobs,
        depth,
        block_bytes: 4096,
        nr_tags,
        wake: WakePolicy::Fair,
        tag_need: TagNeed::One,
        is_mixed: false,
        costs,
        worker: Worker::Absent,
        warm_up_ns,
        run_ns,
        seed,
    };
    let extras =
        Extras { command_ns: load.costs.base_ns, worker: Some(load.costs.worker(load.run_queue)) };
    let (measured, (nr_queued, nr_redundant)) = run(&load_of_tags, extras);
    (measured, RunCounts { nr_queued, nr_redundant })
}

/// How a completion treats pending work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunQueue {
    /// Queues it again: the state before.
    Always,
    /// Does nothing: the state after.
    Dedupe,
}

impl RunQueue {
    /// Both values.
    pub const ALL: [RunQueue; 2] = [RunQueue::Always, RunQueue::Dedupe];

    /// Returns the setting's value.
    pub const fn name(self) -> &'static str {
        match self {
            RunQueue::Always => "always",
            RunQueue::Dedupe => "dedupe",
        }
    }
}

/// The costs of completions. `base_ns` comes from the published results that no queue run slows
/// down: 250k I/Os per second. The cost of queueing is derived from the other results, which take
/// 1.65 us more at depth 256 and 2.41 us at 1024. It is injected here, since Forebay has no such
/// work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCosts {
    /// The time of all processors for an I/O, one after another, ns.
    pub base_ns: u64,
    /// The time to queue work that is not pending, ns.
    pub queue_ns: u64,
    /// The time to queue pending work again, ns. It includes the wait for the locks, for which 8
    /// processors contend.
    pub requeue_ns: u64,
    /// The time to see that the work is pending, ns.
    pub test_ns: u64,
    /// The time from queueing to the start of the work, ns.
    pub begin_ns: u64,
    /// The time of a run for each waiting request, ns.
    pub look_ns: u64,
}

impl Default for RunCosts {
    fn default() -> RunCosts {
        RunCosts {
            base_ns: 4_000,
            queue_ns: 100,
            requeue_ns: 2_600,
            test_ns: 20,
            begin_ns: 6_000,
            look_ns: 80,
        }
    }
}

impl RunCosts {
    /// Returns the same costs without the cost of queueing.
    #[must_use]
    pub fn without_queueing(self) -> RunCosts {
        RunCosts { queue_ns: 0, requeue_ns: 0, test_ns: 0, ..self }
    }

    /// Returns the times of the worker.
    fn worker(self, run_queue: RunQueue) -> WorkerSettings {
        let RunCosts { queue_ns, requeue_ns, test_ns, begin_ns, look_ns, .. } = self;
        let pending_ns = match run_queue {
            RunQueue::Always => requeue_ns,
            RunQueue::Dedupe => test_ns,
        };
        WorkerSettings { after: RunAfter::AnyWaiting, queue_ns, pending_ns, begin_ns, look_ns }
    }
}

/// How often completions requested a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// The work was not pending.
    pub nr_queued: u64,
    /// The work was pending.
    pub nr_redundant: u64,
}
