//! The scenario of an experiment: a disk on a modelled device, and threads with costs.

use super::costs::Costs;
use crate::cpu_costs::CpuCosts;
use crate::engine::Engine;
use crate::scenario::Scenario;
use crate::scheduler::ThreadTimes;
use forebay_core::Policy;
use forebay_model::Machine;
use forebay_model::machines::Preset;

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

/// Returns the scenario of `nr_threads` threads on a machine with the limits of a preset and with
/// logical blocks of `block` bytes.
pub(super) fn scenario(
    preset: &Preset,
    machine: Box<dyn Machine>,
    policy: Policy,
    times: ThreadTimes,
    nr_threads: u32,
    block: u32,
) -> Scenario {
    let nr_blocks = preset.capacity_bytes / u64::from(block);
    Scenario {
        limits: preset.limits(nr_blocks * u64::from(block), block),
        policy,
        engine: Engine::Machine(machine),
        nr_tasks: FIRST_THREAD + nr_threads as usize,
        preempt: 0,
        nap: 0,
        step_ns: 0,
        times,
        cpu: CpuCosts::default(),
        command_ns: 0,
        worker: None,
        budget: None,
        bound: u64::MAX,
        file: None,
        is_stash_v1: false,
        makes_own_calls: false,
        begins_in_wait: false,
        is_traced: false,
        faults: Vec::new(),
        owners: None,
    }
}
