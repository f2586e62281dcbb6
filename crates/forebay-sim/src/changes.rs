//! Changes of the scheduler in the middle of a run.
//!
//! They draw from random streams of their own, so a seed makes the same other choices with and
//! without them.

use forebay_core::{BfqParams, MqDeadlineParams, Policy, SchedulerPolicy, Scheduling};
use forebay_model::Random;

/// The random stream of the draw for a seed. Streams below have other uses.
const STREAM: u64 = 6;

/// The random stream of the changes of the first task. The streams of its other choices
/// (`FIRST_TASK_STREAM`) are far below.
const FIRST_CHANGE_STREAM: u64 = 1 << 20;

/// How often a task changes the scheduler, and the choice of the next one.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    seed: u64,
    percent: u32,
    queue_depth: u32,
    random: Random,
}

impl Changes {
    /// Draws whether the scheduler of a disk changes. A disk with a scheduler has one context.
    pub(crate) fn draw(seed: u64, policy: &Policy) -> Option<Changes> {
        let mut random = Random::new(seed, STREAM);
        let percent = random.pick(&[0, 2, 10, 30]);
        let Policy { nr_hw_queues, queue_depth, .. } = *policy;
        let changes = Changes { seed, percent, queue_depth, random };
        (percent > 0 && nr_hw_queues == 1).then_some(changes)
    }

    /// Returns those of a task.
    pub(crate) fn of_task(&self, id: usize) -> Changes {
        let random = Random::new(self.seed, FIRST_CHANGE_STREAM + id as u64);
        Changes { random, ..self.clone() }
    }

    /// Draws whether the task changes the scheduler now, and to which one.
    pub(crate) fn next(&mut self) -> Option<Scheduling> {
        let random = &mut self.random;
        if !random.chance(self.percent, 100) {
            return None;
        }
        let expire = [0, 2_000, 100_000, 500_000_000];
        let params = MqDeadlineParams::default()
            .fifo_batch(random.pick(&[1, 2, 16]))
            .read_expire_ns(random.pick(&expire))
            .write_expire_ns(random.pick(&expire))
            .front_merges(random.chance(1, 2));
        let device_depth = random.pick(&[1, 2, 8]).min(self.queue_depth);
        let scheduling = Scheduling::default()
            .device_depth(random.chance(3, 4).then_some(device_depth))
            .mq_deadline(params);
        let scheduling = scheduling.bfq(bfq(random));
        let schedulers = [
            SchedulerPolicy::None,
            SchedulerPolicy::MqDeadline,
            SchedulerPolicy::Kyber,
            SchedulerPolicy::Bfq,
        ];
        Some(scheduling.scheduler(random.pick(&schedulers)))
    }
}

/// Draws parameters of `bfq`, which depend on the times and sizes of the simulated devices.
pub(crate) fn bfq(random: &mut Random) -> BfqParams {
    let expire = [0, 2_000, 100_000, 500_000_000];
    BfqParams::default()
        .slice_idle_ns(random.pick(&[0, 2_000, 100_000, 8_000_000]))
        .max_budget(random.pick(&[0, 1, 16, 256]))
        .timeout_sync_ns(random.pick(&expire))
        .fifo_expire_sync_ns(random.pick(&expire))
        .fifo_expire_async_ns(random.pick(&expire))
}
