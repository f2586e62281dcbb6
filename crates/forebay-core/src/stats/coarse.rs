//! Histogram of times with one bucket per power of two, for any number of writers.
//!
//! It takes a tenth of the memory of a [`SharedHistogram`](super::histogram::SharedHistogram), for
//! objects of which there may be many. A percentile is at most twice the exact value.

use super::counter::SharedCounter;
use super::histogram::Histogram;

/// A bucket for each number of binary digits from 0 to 40. A longer time, of 18 minutes or more,
/// counts in the last one.
const NR_BUCKETS: usize = 41;

/// Counts of times by size, in nanoseconds.
#[derive(Debug)]
pub(crate) struct CoarseHistogram {
    buckets: [SharedCounter; NR_BUCKETS],
    sum: SharedCounter,
    max: SharedCounter,
}

impl Default for CoarseHistogram {
    fn default() -> CoarseHistogram {
        let buckets = [const { SharedCounter::new() }; NR_BUCKETS];
        CoarseHistogram { buckets, sum: SharedCounter::new(), max: SharedCounter::new() }
    }
}

impl CoarseHistogram {
    /// Records one time.
    pub(crate) fn record(&self, ns: u64) {
        self.max.raise_to(ns);
        let nr_digits = (u64::BITS - ns.leading_zeros()) as usize;
        self.buckets[nr_digits.min(NR_BUCKETS - 1)].add(1);
        self.sum.add(ns);
    }

    /// Returns the counts. Each is recent; together they are of no single moment.
    pub(crate) fn snapshot(&self) -> Histogram {
        let counts = self.buckets.iter().enumerate();
        let counts = counts.map(|(nr_digits, count)| ((1 << nr_digits) - 1, count.get()));
        Histogram::of_groups(counts, self.sum.get(), self.max.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_below_the_next_power_of_two_and_their_mean_is_exact() {
        let times = CoarseHistogram::default();
        [0, 1, 2, 3, 1000, 1023, 1024].iter().for_each(|ns| times.record(*ns));
        let found = times.snapshot();
        let buckets: Vec<_> = found.buckets().collect();
        assert_eq!(buckets, [(0, 1), (1, 1), (3, 2), (1023, 2), (2047, 1)]);
        assert_eq!((found.count(), found.sum(), found.max()), (7, 3053, 1024));
        assert_eq!((found.percentile(500_000), found.count_below(1024)), (3, 6));
    }

    #[test]
    fn longest_times_share_the_last_bucket() {
        let times = CoarseHistogram::default();
        [1 << 40, u64::MAX >> 1].iter().for_each(|ns| times.record(*ns));
        assert_eq!(times.snapshot().buckets().collect::<Vec<_>>(), [((1 << 40) - 1, 2)]);
    }

    use alloc::vec::Vec;
}
