//! Counters that are cheap enough for every request.
//!
//! There are two kinds, with one writer or several. Both are relaxed: a reader gets a recent value
//! and must not infer anything else from it. Two counters of one request may be read at different
//! times, so code that subtracts them must stop at zero.

use forebay_insight::families::{Buckets, FIRST_SHIFT, NR_BOUNDS, bounds_ns};
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer at a time: a load and a store, without a locked instruction. The
/// writer may change if memory is ordered in between (by a channel or a lock), so that the next
/// writer continues from the last value.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Adds `nr`. Only the one writer may call this.
    #[inline]
    pub(super) fn add(&self, nr: u64) {
        self.0.store(self.get().wrapping_add(nr), Ordering::Relaxed);
    }

    /// Sets the value, for a writer that keeps the sum itself.
    #[inline]
    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the current value.
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter that any thread may write, for rare events.
#[derive(Debug, Default)]
pub(crate) struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds 1.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of times with one writer at a time. The first bucket ends at about a microsecond;
/// each other one is twice as wide as the previous one.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// One per bound, and one for longer times.
    buckets: [Counter; NR_BOUNDS + 1],
    sum_ns: Counter,
}

impl Times {
    /// Records a time `nr` times, ns. Only the one writer may call this.
    #[inline]
    pub(super) fn record(&self, ns: u64, nr: u64) {
        let index = (u64::BITS - (ns.saturating_sub(1) >> FIRST_SHIFT).leading_zeros()) as usize;
        self.buckets[index.min(NR_BOUNDS)].add(nr);
        self.sum_ns.add(ns * nr);
    }

    /// Adds the current values to `sum`.
    pub(super) fn add_to(&self, sum: &mut TimesSum) {
        for (sum, bucket) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.get();
        }
        sum.sum_ns += self.sum_ns.get();
    }
}

/// Sum of several [`Times`].
#[derive(Clone, Debug, Default)]
pub(super) struct TimesSum {
    buckets: [u64; NR_BOUNDS + 1],
    sum_ns: u64,
}

impl TimesSum {
    /// Returns the sum of all times, ns.
    pub(super) fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the upper bound of each bucket, ns, and its count; the last has no bound.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        bounds_ns().map(Some).chain([None]).zip(self.buckets)
    }
}

impl From<&TimesSum> for Buckets {
    fn from(times: &TimesSum) -> Buckets {
        Buckets::new(times.sum_ns(), times.buckets())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_of(ns: u64) -> Option<u64> {
        let times = Times::default();
        times.record(ns, 1);
        let mut sum = TimesSum::default();
        times.add_to(&mut sum);
        assert_eq!(sum.sum_ns(), ns);
        let mut filled = sum.buckets().filter(|(_, count)| *count > 0);
        let (bound, count) = filled.next().unwrap();
        assert_eq!((count, filled.next()), (1, None));
        bound
    }

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for ns in [0, 1, 1023, 1024] {
            assert_eq!(bucket_of(ns), Some(1024));
        }
        for bound in bounds_ns() {
            assert_eq!(bucket_of(bound), Some(bound));
            assert_eq!(bucket_of(bound - 1), Some(bound));
            assert_ne!(bucket_of(bound + 1), Some(bound));
        }
        assert_eq!(bucket_of(1 << 34), Some(1 << 34));
        assert_eq!(bucket_of((1 << 34) + 1), None);
        assert_eq!(bucket_of(u64::MAX), None);
    }

    #[test]
    fn a_counter_that_many_write_loses_nothing() {
        let counter = SharedCounter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counter.count()));
            }
        });
        assert_eq!(counter.get(), 4000);
    }
}
