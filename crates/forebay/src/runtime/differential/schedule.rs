//! Schedules for shuttle in which threads run at very different speeds.
//!
//! Shuttle's random scheduler gives all threads the same speed. So a thread that has to pause while
//! others do much is rare, and most outcomes of a script need that. Here each thread has a weight,
//! its chance to run next, and the weights change now and then. A weight of 0 is a pause.

use forebay_model::Random;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, Runner};
use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of weights: threads with the same remainder share one. Scripts have fewer threads.
const NR_WEIGHTS: usize = 8;

const WEIGHTS: [u64; 6] = [0, 0, 1, 1, 8, 64];

/// The steps after which a weight changes, on average. A run has some hundred steps.
const PERIODS: [u32; 4] = [4, 16, 64, 256];

/// Runs `body` with each seed of `next_seed`, until there is none.
pub(super) fn check(
    mut next_seed: impl FnMut() -> Option<u64> + 'static,
    body: impl Fn(u64) + Send + Sync + 'static,
) {
    let seed = Arc::new(AtomicU64::new(0));
    let same = Arc::clone(&seed);
    // Relaxed, here and below: shuttle runs all threads of a model on this one.
    let begin = Box::new(move || {
        let seed = next_seed()?;
        same.store(seed, Ordering::Relaxed);
        Some(seed)
    });
    let (random, period, weights) = (Random::new(0, 0), 1, [0; NR_WEIGHTS]);
    let scheduler = Uneven { begin, random, period, weights };
    Runner::new(scheduler, Config::new()).run(move || body(seed.load(Ordering::Relaxed)));
}

struct Uneven {
    /// Returns the seed of the next run.
    begin: Box<dyn FnMut() -> Option<u64>>,
    random: Random,
    period: u32,
    weights: [u64; NR_WEIGHTS],
}

impl Uneven {
    fn weight(&self, task: &Task) -> u64 {
        self.weights[usize::from(task.id()) % NR_WEIGHTS]
    }
}

impl Scheduler for Uneven {
    fn new_execution(&mut self) -> Option<Schedule> {
        let seed = (self.begin)()?;
        self.random = Random::new(seed, 1);
        self.period = self.random.pick(&PERIODS);
        self.weights = array::from_fn(|_| self.random.pick(&WEIGHTS));
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        _current: Option<TaskId>,
        _is_yielding: bool,
    ) -> Option<TaskId> {
        if let [only] = runnable {
            return Some(only.id());
        }
        if self.random.chance(1, self.period) {
            let task = self.random.pick(runnable);
            self.weights[usize::from(task.id()) % NR_WEIGHTS] = self.random.pick(&WEIGHTS);
        }
        let sum = runnable.iter().map(|task| self.weight(task)).sum();
        if sum == 0 {
            return Some(self.random.pick(runnable).id());
        }
        let mut left = self.random.below(sum);
        for task in runnable {
            let weight = self.weight(task);
            if left < weight {
                return Some(task.id());
            }
            left -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    fn next_u64(&mut self) -> u64 {
        self.random.draw()
    }
}
