//! Unit tests of latency goals, beside a naive model.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// The number of random histories.
const CASES: u32 = 500;

const MS: u64 = 1_000_000;

/// Returns the count of I/Os with these latencies, for a goal of 10 ms.
fn samples(latencies_ms: &[u64]) -> Samples {
    let one = |ms: &u64| Samples::one(ms * MS, 10 * MS);
    latencies_ms.iter().map(one).fold(Samples::default(), Samples::plus)
}

#[test]
fn one_slow_io_in_ten_misses_a_goal() {
    let mut latencies = vec![1; 18];
    let end = |latencies: &[u64]| Window::default().end(samples(latencies));
    assert_eq!(end(&latencies), Outcome::KeptWell);
    latencies.extend([5, 6]);
    assert_eq!(end(&latencies), Outcome::KeptWell, "half of the goal is well kept");
    latencies.push(6);
    assert_eq!(end(&latencies), Outcome::KeptWell, "2 of 21");
    latencies[0] = 10;
    assert_eq!(end(&latencies), Outcome::Kept, "3 of 21, and the goal itself is no miss");
    latencies[1] = 11;
    latencies[2] = 11;
    assert_eq!(end(&latencies), Outcome::Kept, "2 of 21");
    latencies[3] = 11;
    assert_eq!(end(&latencies), Outcome::Missed);
    assert_eq!(end(&[11; 5]), Outcome::Missed);
}

#[test]
fn window_with_few_ios_stays_open_for_a_second() {
    let mut window = Window::default();
    assert_eq!(window.end(samples(&[])), Outcome::KeptWell, "no I/O, so none is slow");
    assert_eq!(window, Window::default());
    assert_eq!(window.end(samples(&[11, 11])), Outcome::Kept);
    assert_eq!(window.end(samples(&[11, 11])), Outcome::Kept);
    assert_eq!(window.end(samples(&[1])), Outcome::Missed);
    assert_eq!(window, Window::default(), "the next one begins");
    for nth in 1..WINDOWS_MAX {
        assert_eq!(window.end(samples(if nth == 1 { &[11] } else { &[] })), Outcome::Kept, "{nth}");
    }
    assert_eq!(window.end(samples(&[])), Outcome::Missed, "one I/O, and it was slow");
}

#[test]
fn missed_windows_halve_the_depth_and_good_ones_give_it_back() {
    let mut depth = Depth::default();
    depth.step(Outcome::KeptWell, 64);
    assert_eq!(depth, Depth::default(), "no goal is missed, so there is no limit");
    let mut after = |outcome, nr: usize| -> Vec<u32> {
        let step = |_| {
            depth.step(outcome, 64);
            depth.most
        };
        (0..nr).map(step).collect()
    };
    assert_eq!(after(Outcome::Missed, 8), [32, 16, 8, 4, 2, 1, 1, 1]);
    assert_eq!(after(Outcome::KeptWell, 6), [2, 4, 8, 12, 16, 20]);
    assert_eq!(after(Outcome::Kept, 16)[14..], [20, 24], "a probe");
    assert_eq!(after(Outcome::Missed, 1), [12]);
    assert_eq!(after(Outcome::KeptWell, 14)[11..], [60, 0, 0], "no limit at the full depth");
}

#[test]
fn looser_goals_and_no_goal_give_way_to_a_stricter_one() {
    let mut strictest = Strictest::NONE;
    strictest.add(20, Outcome::Missed);
    strictest.add(30, Outcome::Missed);
    strictest.add(10, Outcome::Kept);
    strictest.add(5, Outcome::KeptWell);
    let above = [5, 10, 11, 20, 21, u64::MAX].map(|target| strictest.above(target));
    let expected = [Outcome::KeptWell, Outcome::KeptWell, Outcome::Kept, Outcome::Kept];
    assert_eq!(above[..4], expected);
    assert_eq!(above[4..], [Outcome::Missed; 2]);
}

#[test]
fn counts_have_a_largest_number() {
    let most = Samples::from_bits(Samples::MASK);
    assert_eq!(most.plus(samples(&[11])).nth(0), Samples::MASK);
    assert_eq!(most.plus(samples(&[11])).nth(2), 1);
}

/// An owner of the naive model: latencies of the window that is open, in lists.
#[derive(Clone, Debug, Default)]
struct Naive {
    target_ms: Option<u64>,
    latencies: Vec<u64>,
    nr_windows: u32,
    /// `None` without a limit.
    depth: Option<u32>,
    nr_kept: u32,
}

impl Naive {
    /// Returns (missed, kept well) of a window that ends. Neither: it is just kept.
    fn end(&mut self) -> (bool, bool) {
        let Some(target) = self.target_ms else { return (false, true) };
        self.nr_windows += 1;
        let nr = self.latencies.len();
        if nr == 0 {
            self.nr_windows = 0;
            return (false, true);
        }
        if nr < 5 && self.nr_windows < 10 {
            return (false, false);
        }
        self.nr_windows = 0;
        let latencies = core::mem::take(&mut self.latencies);
        let part = |nr_bad: usize| nr_bad as f64 / nr as f64 >= 0.1;
        let nr_slow = latencies.iter().filter(|latency| **latency > target).count();
        let nr_near = latencies.iter().filter(|latency| **latency * 2 > target).count();
        (part(nr_slow), !part(nr_near))
    }
}

/// Ends a window of all owners of the naive model.
fn end_naively(owners: &mut [Naive], full: u32) {
    let ended: Vec<_> = owners.iter_mut().map(|owner| (owner.target_ms, owner.end())).collect();
    for owner in owners {
        let is_stricter = |target: &Option<u64>| match (target, owner.target_ms) {
            (Some(target), Some(own)) => *target < own,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let stricter: Vec<_> = ended.iter().filter(|(target, _)| is_stricter(target)).collect();
        let depth = owner.depth.unwrap_or(full);
        if stricter.iter().any(|(_, (is_missed, _))| *is_missed) {
            (owner.depth, owner.nr_kept) = (Some((depth.min(full) / 2).max(1)), 0);
            continue;
        }
        owner.nr_kept += 1;
        let is_good = stricter.iter().all(|(_, (_, is_well))| *is_well);
        if is_good || owner.nr_kept == 16 {
            let more = depth + (full / 16).clamp(1, depth);
            owner.depth = owner.depth.and((more < full).then_some(more));
            owner.nr_kept = 0;
        }
        if owner.depth.is_none() {
            owner.nr_kept = 0;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    /// LG2 to LG4 as in the naive model; and after enough windows without I/O no limit is left.
    #[test]
    fn random_histories_agree_with_the_model(
        targets in proptest::collection::vec(proptest::option::of(1..4_u64), 1..5),
        full in prop_oneof![1..4_u32, 4..300_u32],
        windows in proptest::collection::vec(
            proptest::collection::vec((0..5_usize, 0..6_u64, 1..12_usize), 0..4),
            0..60,
        ),
    ) {
        let mut naive: Vec<Naive> = targets
            .iter()
            .map(|target| Naive { target_ms: target.map(|target| 2 * target), ..Naive::default() })
            .collect();
        let mut own = vec![(Window::default(), Depth::default()); targets.len()];
        let nr_windows = windows.len();
        let silent = core::iter::repeat_n(Vec::new(), WINDOWS_TO_FULL as usize);
        for (nth, window) in windows.into_iter().chain(silent).enumerate() {
            let mut new = vec![Samples::default(); targets.len()];
            for (owner, latency, nr) in window {
                let owner = owner % targets.len();
                let Some(target) = naive[owner].target_ms else { continue };
                for _ in 0..nr {
                    naive[owner].latencies.push(latency);
                    new[owner] = new[owner].plus(Samples::one(latency * MS, target * MS));
                }
            }
            let mut strictest = Strictest::NONE;
            for (at, naive) in naive.iter().enumerate() {
                if let Some(target) = naive.target_ms {
                    strictest.add(target * MS, own[at].0.end(new[at]));
                }
            }
            end_naively(&mut naive, full);
            for (at, naive) in naive.iter().enumerate() {
                let target = naive.target_ms.map_or(u64::MAX, |target| target * MS);
                own[at].1.step(strictest.above(target), full);
                prop_assert_eq!(own[at].1.most, naive.depth.unwrap_or(0), "window {}", nth);
            }
        }
        prop_assert!(own.iter().all(|(_, depth)| depth.most == 0), "after {nr_windows} windows");
    }
}
