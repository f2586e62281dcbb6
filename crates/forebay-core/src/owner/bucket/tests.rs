//! Unit tests of the token bucket: the bounds OL2 and OL3, exactness, and the edges of its numbers.

use super::{Bucket, Charged, RetryAt};
use alloc::vec::Vec;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

/// The number of random histories of each property.
const CASES: u32 = 600;

/// Returns the times of `nr` I/Os of one cost that wait from `from_ns` on, each tried when it may
/// start.
fn backlogged(bucket: &Bucket, cost: u64, nr: usize, from_ns: u64) -> Vec<u64> {
    let mut now = from_ns;
    let mut starts = Vec::new();
    while starts.len() < nr {
        match bucket.try_start(cost, now) {
            Ok(_) => starts.push(now),
            Err(RetryAt(at)) => {
                assert!(at > now && bucket.try_start(cost, at - 1).is_err(), "not too early");
                now = at;
            }
        }
    }
    starts
}

#[test]
fn full_bucket_starts_its_burst_and_one_more_io() {
    let bucket = Bucket::new(100, 5, 0);
    assert_eq!((0..9).filter(|_| bucket.try_start(1, 0).is_ok()).count(), 6);
    assert_eq!(bucket.try_start(1, 0), Err(RetryAt(S / 100)));
}

#[test]
fn debt_is_kept_and_paid_by_the_rate() {
    let bucket = Bucket::new(1000, 10, 0);
    assert_eq!(bucket.try_start(3010, 0), Ok(Charged(3010)));
    assert_eq!(bucket.level(0), Some(-3000));
    assert_eq!(bucket.try_start(1, S), Err(RetryAt(3 * S)));
    assert_eq!(bucket.try_start(1, 3 * S - 1), Err(RetryAt(3 * S)));
    assert!(bucket.try_start(1, 3 * S).is_ok());
}

#[test]
fn credit_is_at_most_the_burst() {
    let bucket = Bucket::new(1000, 7, 0);
    assert_eq!(bucket.level(u64::MAX), Some(7));
    assert!(bucket.try_start(20, 100 * S).is_ok());
    assert_eq!(bucket.level(100 * S), Some(-13));
}

#[test]
fn the_nth_io_starts_at_the_exact_time_after_any_number_of_ios() {
    for (rate, cost) in [
        (100 * Bucket::UNITS_PER_IO, Bucket::UNITS_PER_IO),
        (300_000 * Bucket::UNITS_PER_IO, Bucket::UNITS_PER_IO),
        (333_333 * Bucket::UNITS_PER_IO, Bucket::UNITS_PER_IO),
        (100_000_000_000, 1),
        (100_000_000_000, 513),
        (99_999_999_977, 4096),
        (1, 1),
        (Bucket::RATE_MAX, 4096),
    ] {
        // The units of a nanosecond, so that none are lost before an I/O is tried.
        let burst = rate.div_ceil(S);
        let bucket = Bucket::new(rate, burst, 77);
        let nr = 20_000;
        let exact = |nth: u64| {
            let units = (nth * cost).saturating_sub(burst);
            77 + (u128::from(units) * u128::from(S)).div_ceil(u128::from(rate)) as u64
        };
        let starts = backlogged(&bucket, cost, nr, 77);
        let differing = (0..nr).find(|nth| starts[*nth] != exact(*nth as u64));
        assert_eq!(differing, None, "{rate} by {cost}");
        // The same after a year of use.
        let year = 365 * 86_400;
        bucket.spent.fetch_add(rate.wrapping_mul(year), super::Ordering::Relaxed);
        let later = backlogged(&bucket, cost, 1, year * S);
        assert_eq!(later, [exact(nr as u64) + year * S], "{rate} by {cost}");
    }
}

#[test]
fn rate_0_is_no_limit_and_is_not_charged() {
    let bucket = Bucket::new(0, 0, 0);
    for _ in 0..3 {
        assert_eq!(bucket.try_start(u64::MAX, 0), Ok(Charged(0)));
    }
    bucket.refund(Charged(0));
    assert_eq!(bucket.level(5), None);
    bucket.set_rate(10, 4, 1000).expect("no other change");
    assert_eq!((bucket.rate(), bucket.level(1000)), ((10, 4), Some(4)));
}

#[test]
fn refund_takes_back_the_charge_even_after_a_change_of_the_rate() {
    let bucket = Bucket::new(1000, 10, 0);
    let small = bucket.try_start(4, 0).expect("full");
    let large = bucket.try_start(500, 0).expect("not negative");
    assert_eq!(bucket.level(0), Some(-494));
    bucket.set_rate(10, 10, 0).expect("no other change");
    bucket.refund(large);
    assert_eq!(bucket.level(0), Some(6));
    bucket.refund(small);
    assert_eq!((bucket.level(0), bucket.level(S)), (Some(10), Some(10)));
}

#[test]
fn changed_rate_pays_the_debt_and_caps_the_credit() {
    let bucket = Bucket::new(1000, 100, 0);
    assert!(bucket.try_start(2100, 0).is_ok());
    bucket.set_rate(100, 5, S).expect("no other change");
    assert_eq!((bucket.level(S), bucket.level(11 * S)), (Some(-1000), Some(0)));
    assert_eq!(bucket.try_start(1, S), Err(RetryAt(11 * S)));
    assert_eq!(bucket.level(20 * S), Some(5));
    bucket.set_rate(0, 0, 20 * S).expect("no other change");
    bucket.set_rate(1, 3, 21 * S).expect("no other change");
    assert_eq!(bucket.level(21 * S), Some(3));
}

#[test]
fn time_before_the_last_change_counts_as_that_time() {
    let bucket = Bucket::new(1000, 0, 5 * S);
    assert!(bucket.try_start(1000, 3 * S).is_ok());
    assert_eq!(bucket.try_start(1, 0), Err(RetryAt(6 * S)));
    bucket.set_rate(2000, 0, 4 * S).expect("no other change");
    assert_eq!(bucket.try_start(1, 0), Err(RetryAt(5 * S + S / 2)));
}

#[test]
fn clock_that_is_behind_sees_less_credit_and_takes_none_from_others() {
    let bucket = Bucket::new(1000, 50, 0);
    assert!(bucket.try_start(50, 10 * S).is_ok());
    assert_eq!(bucket.level(10 * S), Some(0));
    // Ten milliseconds behind, this is a debt of ten units.
    assert_eq!(bucket.try_start(1, 10 * S - S / 100), Err(RetryAt(10 * S)));
    assert_eq!(bucket.level(10 * S), Some(0));
}

#[test]
fn large_numbers_are_clamped_and_no_sum_overflows() {
    let bucket = Bucket::new(u64::MAX, u64::MAX, 0);
    assert_eq!(bucket.rate(), (Bucket::RATE_MAX, Bucket::BURST_MAX));
    assert_eq!(bucket.try_start(u64::MAX, u64::MAX), Ok(Charged(Bucket::COST_MAX)));
    let bucket = Bucket::new(1, 0, 0);
    assert!(bucket.try_start(u64::MAX, u64::MAX).is_ok());
    assert_eq!(bucket.try_start(1, u64::MAX), Err(RetryAt(u64::MAX)));
    // The positions wrap after half an hour of this.
    let bucket = Bucket::new(Bucket::RATE_MAX, 0, 0);
    for nth in 0..1 << 12 {
        let now = nth * 16 * S;
        assert_eq!(bucket.try_start(Bucket::COST_MAX, now), Ok(Charged(Bucket::COST_MAX)));
        assert_eq!(bucket.try_start(1, now), Err(RetryAt(now + 16 * S)));
    }
}

#[test]
fn bucket_that_was_idle_for_longer_than_its_positions_last_is_full() {
    // 2^64 units at this rate are 2^24 s.
    let bucket = Bucket::new(Bucket::RATE_MAX, 100, 0);
    for seconds in [(1 << 24) - 1000, 1 << 24, (1 << 24) + 1000, 1 << 30] {
        assert!(bucket.level(seconds * S).is_some_and(|level| (0..=100).contains(&level)));
    }
    assert!(bucket.try_start(1, (1 << 30) * S).is_ok());
}

/// One step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    Start(u64),
    /// An I/O that is charged, and refunded at the same time.
    Refuse(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_000_000_000u64).prop_map(Step::Wait),
        2 => (0..2_000u64).prop_map(Step::Wait),
        6 => (1..5000u64).prop_map(Step::Start),
        2 => (1..5000u64).prop_map(Step::Refuse),
    ]
}

/// A bucket with an exact level, in parts of 10^-9 unit.
struct Exact {
    level: i128,
    rate: i128,
    burst: i128,
}

impl Exact {
    fn wait(&mut self, ns: u64) {
        self.level = (self.level + self.rate * i128::from(ns)).min(self.burst);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    /// OL2 in every window between two I/Os.
    #[test]
    fn no_window_has_more_than_burst_rate_and_one_io(
        rate in prop_oneof![1..20u64, 1000..100_000u64, Just(99_999_999_977u64)],
        burst in prop_oneof![Just(0u64), 0..10_000u64],
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let bucket = Bucket::new(rate, burst, 0);
        let (mut now, mut starts) = (0u64, Vec::new());
        for step in steps {
            match step {
                Step::Wait(ns) => now += ns,
                Step::Start(cost) => {
                    starts.extend(bucket.try_start(cost, now).map(|_| (now, cost)));
                }
                Step::Refuse(cost) => {
                    let before = bucket.level(now);
                    if let Ok(charged) = bucket.try_start(cost, now) {
                        bucket.refund(charged);
                    }
                    prop_assert_eq!(bucket.level(now), before);
                }
            }
        }
        for (at, (from, _)) in starts.iter().enumerate() {
            let mut units = 0u128;
            let mut largest = 0u128;
            for (to, cost) in &starts[at..] {
                units += u128::from(*cost);
                largest = largest.max((*cost).into());
                let refilled = u128::from(rate) * u128::from(to - from) / u128::from(S);
                prop_assert!(units <= u128::from(burst) + refilled + largest + 1);
            }
        }
    }

    /// The level never differs by a unit from the exact one, and I/O starts accordingly.
    #[test]
    fn level_is_within_one_unit_of_the_exact_one(
        rate in prop_oneof![1..20u64, 1000..100_000u64, Just(99_999_999_977u64)],
        burst in 0..10_000u64,
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let bucket = Bucket::new(rate, burst, 0);
        let second = i128::from(S);
        let full = i128::from(burst) * second;
        let mut exact = Exact { level: full, rate: rate.into(), burst: full };
        let mut now = 0;
        for step in steps {
            match step {
                Step::Wait(ns) => {
                    now += ns;
                    exact.wait(ns);
                }
                Step::Start(cost) => {
                    let charged = bucket.try_start(cost, now).is_ok();
                    prop_assert!(charged == (exact.level >= 0) || exact.level.abs() < second);
                    exact.level -= if charged { i128::from(cost) * second } else { 0 };
                }
                Step::Refuse(_) => {}
            }
            let level = i128::from(bucket.level(now).expect("there is a limit")) * second;
            prop_assert!((exact.level - level).abs() < second, "{} {}", exact.level, level);
        }
    }

    /// OL3 in every window of a backlog.
    #[test]
    fn backlog_gets_the_rate_less_one_io(
        rate in prop_oneof![1..20u64, 1000..100_000u64, Just(99_999_999_977u64)],
        more in 0..1000u64,
        costs in proptest::collection::vec(1..5000u64, 2..60),
    ) {
        let bucket = Bucket::new(rate, rate.div_ceil(S) + more, 0);
        let mut from = 0;
        let starts: Vec<(u64, u64)> = costs
            .iter()
            .map(|cost| {
                from = backlogged(&bucket, *cost, 1, from)[0];
                (from, *cost)
            })
            .collect();
        let largest = costs.iter().copied().max().map_or(0, u128::from);
        for (at, (from, _)) in starts.iter().enumerate() {
            // The window ends just before a start, and begins just after one.
            let mut units = 0u128;
            for (to, cost) in &starts[at + 1..] {
                let refilled = u128::from(rate) * u128::from(to - from) / u128::from(S);
                // An I/O is tried up to a nanosecond after it may start.
                let late = u128::from(rate.div_ceil(S));
                prop_assert!(units + largest + 1 + late >= refilled);
                units += u128::from(*cost);
            }
        }
    }
}
