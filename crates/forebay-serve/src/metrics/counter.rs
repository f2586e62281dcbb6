//! Counters that are cheap enough for every request.
//!
//! Two kinds, by who writes. Both are relaxed: a reader gets a value that was current a moment ago,
//! and concludes nothing from it but its own number. Two counters of one request may be read at
//! moments between which it moved on, so whoever subtracts them stops at zero.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer at a time: a load and a store, no locked instruction. Who hands its
/// writer's part to another thread does so by something that orders memory (a channel, a lock), so
/// the next writer goes on from the last value.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Adds `nr`. By its one writer alone.
    #[inline]
    pub(super) fn add(&self, nr: u64) {
        self.0.store(self.get().wrapping_add(nr), Ordering::Relaxed);
    }

    /// The value so far.
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter that any thread may write, for what is rare.
#[derive(Debug, Default)]
pub(crate) struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Counts one more.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The value so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many bounds a [`Times`] has. The last is about 17 s.
const NR_BOUNDS: usize = 25;
/// The first bound is `1 << FIRST_SHIFT` ns, about a microsecond. Each of the others is twice the
/// one before.
const FIRST_SHIFT: u32 = 10;

/// A histogram of times with one writer at a time: buckets from about a microsecond, each twice as
/// wide as the one before.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// One for each bound, and one for what is longer than all.
    buckets: [Counter; NR_BOUNDS + 1],
    sum_ns: Counter,
}

impl Times {
    /// Counts a time, ns. By its one writer alone.
    #[inline]
    pub(super) fn record(&self, ns: u64) {
        let index = (u64::BITS - (ns.saturating_sub(1) >> FIRST_SHIFT).leading_zeros()) as usize;
        self.buckets[index.min(NR_BOUNDS)].add(1);
        self.sum_ns.add(ns);
    }

    /// Adds what was counted so far to `sum`.
    pub(super) fn add_to(&self, sum: &mut TimesSum) {
        for (sum, bucket) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.get();
        }
        sum.sum_ns += self.sum_ns.get();
    }
}

/// What several [`Times`] have counted.
#[derive(Clone, Debug, Default)]
pub(super) struct TimesSum {
    buckets: [u64; NR_BOUNDS + 1],
    sum_ns: u64,
}

impl TimesSum {
    /// The sum of all times, ns.
    pub(super) fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The upper bound of each bucket, ns, and how many times are in it; the last has none.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        bounds_ns().map(Some).chain([None]).zip(self.buckets)
    }
}

/// The bounds of all histograms, ns.
pub(super) fn bounds_ns() -> impl Iterator<Item = u64> {
    (0..NR_BOUNDS).map(|index| 1 << (FIRST_SHIFT as usize + index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_of(ns: u64) -> Option<u64> {
        let times = Times::default();
        times.record(ns);
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
