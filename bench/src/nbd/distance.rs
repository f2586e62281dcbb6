//! How far apart the processors are on which client and server run.
//!
//! A virtual machine's processors are at one time two threads of one core, and at another two cores
//! that share nothing, as its host moves them about. A message between two processes costs twice
//! as much then, whatever the server: runs at different distances do not compare. So the distance
//! is measured around each run, and a ratio is of runs at the same one.
//!
//! What is measured: how long a cache line takes to another processor and back.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

/// Round trips of one measurement: some 5 to 20 ms.
const NR_TRIPS: u32 = 40_000;

/// Below this, ns, it is near: within a core it takes about 80 here, across cores about 390.
const NEAR_NS: u128 = 200;

/// How far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distance {
    Near,
    Far,
    /// It changed during the run.
    Changed,
}

impl Distance {
    /// Of a run that began at `self` and ended at `end`.
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

/// How far the processors are from each other now. One processor is near to itself.
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

/// Waits for the ball, and passes it on. Relaxed: nothing is handed over with it.
fn pass(ball: &AtomicU32, at: u32) {
    while ball.load(Ordering::Relaxed) != at {
        std::hint::spin_loop();
    }
    ball.store(at + 1, Ordering::Relaxed);
}

/// The first two processors that this process may use.
fn two_processors() -> [Option<usize>; 2] {
    let mut ours = sched_getaffinity(None)
        .into_iter()
        .flat_map(|set| (0..CpuSet::MAX_CPU).filter(move |&cpu| set.is_set(cpu)));
    [ours.next(), ours.next()]
}

/// A thread that cannot be bound measures all the same, if less exactly.
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
