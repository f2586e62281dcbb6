//! The scenario of an experiment: a disk on a modelled device, and threads with costs.

use super::costs::Costs;
use crate::engine::Engine;
use crate::scenario::Scenario;
use crate::scheduler::ThreadTimes;
use forebay_core::{Policy, QueueLimits};
use forebay_model::Machine;
use forebay_model::machines::Preset;

/// The logical block size. All sizes of the experiments are multiples of it.
pub(super) const BLOCK: u32 = 4096;

/// The task that stands for the interrupts of the device.
pub(super) const INTERRUPTS: usize = 0;

/// The task that reads the layer's counters at the beginning and at the end of the measurement.
pub(super) const METER: usize = 1;

/// The task of the first thread.
pub(super) const FIRST_THREAD: usize = 2;

/// Returns the times of threads with these costs. They are late `late_per_million` times per
/// million wake-ups, by `late_ns`.
pub(super) fn times(costs: &Costs, (late_per_million, late_ns): (u32, u64)) -> ThreadTimes {
    let &Costs { wake_min_ns, wake_max_ns, .. } = costs;
    let nr_interrupts = FIRST_THREAD;
    ThreadTimes { wake_min_ns, wake_max_ns, late_per_million, late_ns, nr_interrupts }
}

/// Returns the scenario of `nr_threads` threads on a machine with the limits of a preset.
pub(super) fn scenario(
    preset: &Preset,
    machine: Box<dyn Machine>,
    policy: Policy,
    times: ThreadTimes,
    nr_threads: u32,
) -> Scenario {
    let capacity_bytes = Some(preset.capacity_bytes);
    let blocks = QueueLimits::default().logical_block_size(BLOCK).physical_block_size(BLOCK);
    Scenario {
        limits: preset.limits(blocks.capacity_bytes(capacity_bytes)),
        policy,
        engine: Engine::Machine(machine),
        nr_tasks: FIRST_THREAD + nr_threads as usize,
        preempt: 0,
        nap: 0,
        step_ns: 0,
        times,
        budget: None,
        bound: u64::MAX,
        file: None,
        is_stash_v1: false,
        makes_own_calls: false,
        faults: Vec::new(),
    }
}
