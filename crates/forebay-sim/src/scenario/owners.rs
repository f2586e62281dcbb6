//! The owners of a scenario, with limits and weights.

use super::Scenario;
use forebay_core::{CostModel, Emulation, Limits, Rate, WEIGHT_MAX, WakePolicy, WeightBy};
use forebay_model::Random;

/// The owners of the disk of a scenario, and how they change.
#[derive(Clone, Debug)]
pub(crate) struct OwnerSettings {
    /// The measure in which weights divide the device.
    pub(crate) by: WeightBy,
    /// The cost of I/O, if that is the measure.
    pub(crate) cost: CostModel,
    /// Owners have weights. Those of several contexts have none.
    pub(crate) has_weights: bool,
    /// The first owners.
    pub(crate) first: Vec<NewOwner>,
    /// How often a task changes an owner, adds one or removes one; a percentage of its actions.
    pub(crate) changes: u32,
    /// How often a bio has no owner; a percentage.
    pub(crate) none: u32,
    /// The length of the windows of latency goals.
    pub(crate) goal_window_ns: u64,
}

/// The length of the windows of latency goals in the layer.
pub(crate) const GOAL_WINDOW_NS: u64 = 100_000_000;

/// An owner that is added.
#[derive(Clone, Debug)]
pub(crate) struct NewOwner {
    /// The place of its parent among the first owners.
    pub(crate) parent: Option<usize>,
    pub(crate) weight: Option<u32>,
    pub(crate) limits: Limits,
}

/// The most owners at a time.
pub(crate) const OWNERS_MAX: usize = 4;

/// Draws the owners of a third of the scenarios whose policies do not emulate others.
pub(crate) fn draw(random: &mut Random, scenario: &Scenario) -> Option<OwnerSettings> {
    let emulation = scenario.policy.emulation;
    let is_usual = emulation == Emulation::default().wake(WakePolicy::Fair);
    if !is_usual || !random.chance(1, 3) {
        return None;
    }
    let has_weights = scenario.policy.nr_hw_queues == 1;
    let nr = random.between(1, OWNERS_MAX as u64) as usize;
    let block = scenario.limits.logical_block_size;
    let first = (0..nr).map(|nth| NewOwner {
        parent: (nth > 0 && random.chance(1, 3)).then(|| random.below(nth as u64) as usize),
        weight: has_weights.then(|| weight(random)),
        limits: limits(random, block),
    });
    let first = first.collect();
    Some(OwnerSettings {
        by: random.pick(&WeightBy::ALL),
        cost: CostModel::default(),
        has_weights,
        first,
        changes: random.pick(&[0, 1, 5, 20]),
        none: random.pick(&[0, 20, 60]),
        goal_window_ns: 50_000,
    })
}

/// Draws a weight.
pub(crate) fn weight(random: &mut Random) -> u32 {
    random.pick(&[1, 50, 100, 100, 400, WEIGHT_MAX])
}

/// Draws limits for a disk of this block size, and a latency goal. The limits are high enough for a
/// few hundred bios within milliseconds.
pub(crate) fn limits(random: &mut Random, block: u32) -> Limits {
    let mut limits = Limits::default();
    for rates in [&mut limits.both, &mut limits.read, &mut limits.write] {
        if random.chance(1, 4) {
            let per_s = random.pick(&[5_000, 50_000, 333_333, 2_000_000]);
            rates.iops = Rate { per_s, burst: random.pick(&[None, Some(0), Some(1), Some(10)]) };
        }
        if random.chance(1, 6) {
            let block = u64::from(block);
            let per_s = random.pick(&[block * 50_000, block * 1_000_000 + 1]);
            let burst = random.pick(&[None, Some(0), Some(3 * block), Some(40 * block)]);
            rates.bps = Rate { per_s, burst };
        }
    }
    limits.latency_target_us = goal(&mut random.clone());
    limits
}

/// Draws a latency goal. Its numbers are drawn from a copy, so that scenarios are otherwise the
/// same as without goals.
fn goal(random: &mut Random) -> u64 {
    random.below(7);
    random.pick(&[0, 0, 0, 1, 50, 200, 1000])
}
