//! Distance between the processors on which client and server run.
//!
//! The host of a virtual machine moves its virtual processors: at one time they are two threads of
//! one core, at another two cores that share nothing. Across cores, a message between two processes
//! costs twice as much with any server, so runs at different distances are not comparable. The
//! distance is measured before and after each run, and ratios compare runs at the same distance
//! only.
//!
//! The measured value is the round-trip time of a cache line to another processor.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

/// Round trips in one measurement, which take about 5 to 20 ms.
const NR_TRIPS: u32 = 40_000;

/// Limit for "near", in ns. A round trip takes about 80 ns within a core, and about 390 ns across
/// cores.
const NEAR_NS: u128 = 200;

/// Distance between two processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distance {
    Near,
    Far,
    /// The distance changed during the run.
    Changed,
}

impl Distance {
    /// Returns the distance of a run that began at `self` and ended at `end`.
    pub(crate) fn until(self, end: Distance) -> Distance {
        if self == end { self } else { Distance::Changed }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Distance::Near => "near",
            Distance::Far => "far",
            Distance::Changed => "changed",
        }
    }
}

/// Measures the current distance between the processors. A single processor is near to itself.
pub(crate) fn now() -> Distance {
    let [Some(here), Some(there)] = two_processors() else { return Distance::Near };
    let ball = AtomicU32::new(0);
    let took = thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(there);
            for trip in 0..NR_TRIPS {
                pass(&ball, 2 * trip + 1);
            }
        });
        let player = scope.spawn(|| {
            stay_on(here);
            let started = Instant::now();
            for trip in 0..NR_TRIPS {
                pass(&ball, 2 * trip);
            }
            started.elapsed()
        });
        player.join().expect("it panics nowhere")
    });
    if took.as_nanos() / u128::from(NR_TRIPS) < NEAR_NS { Distance::Near } else { Distance::Far }
}

/// Waits for the ball and passes it on. Relaxed: the ball carries no other data.
fn pass(ball: &AtomicU32, at: u32) {
    while ball.load(Ordering::Relaxed) != at {
        std::hint::spin_loop();
    }
    ball.store(at + 1, Ordering::Relaxed);
}

/// Returns the first two processors that this process may use.
fn two_processors() -> [Option<usize>; 2] {
    let mut ours = sched_getaffinity(None)
        .into_iter()
        .flat_map(|set| (0..CpuSet::MAX_CPU).filter(move |&cpu| set.is_set(cpu)));
    [ours.next(), ours.next()]
}

/// Binds the thread to a processor. If that fails, the measurement is less exact.
fn stay_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_distance_only_if_it_began_and_ended_at_it() {
        assert_eq!(Distance::Near.until(Distance::Near), Distance::Near);
        assert_eq!(Distance::Near.until(Distance::Far), Distance::Changed);
        assert_ne!(now(), Distance::Changed);
    }
}
