//! The cost of scheduling queue runs: the load, and its measurement.

use super::costs::Costs;
use super::measured::Measured;
use super::processor::{Processor, RunCosts, RunCounts, RunQueue};
use super::work::Worker;
use super::world::{TagLoad, World};
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

/// Runs a load. Also returns how often completions requested a run, warm-up included.
///
/// # Panics
/// If it has no jobs, tags or time.
pub fn measure_runs(load: &RunLoad) -> (Measured, RunCounts) {
    let &RunLoad { device, nr_jobs, depth, nr_tags, warm_up_ns, run_ns, seed, .. } = load;
    // The threads' work is part of the processors' time for an I/O.
    let costs = Costs { submit_ns: 0, tag_ns: 0, reap_ns: 0, wake_min_ns: 0, wake_max_ns: 0 };
    let load_of_tags = TagLoad {
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
    let mut world = World::new(&load_of_tags);
    world.complete_by(Processor::new(load.run_queue, load.costs));
    world.run()
}
