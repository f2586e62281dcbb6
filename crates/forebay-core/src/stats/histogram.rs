//! Histogram of latencies with 8 buckets per power of two, so a value is accurate to one part in
//! eight.

use crate::stats::counter::Counter;

/// Values below this have a bucket each. Above it, each power of two has this many buckets.
const STEPS: u64 = 8;
const STEPS_SHIFT: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = (64 - STEPS_SHIFT as usize + 1) * STEPS as usize;

/// Counts of values by size. Recording takes a few instructions and never allocates.
#[derive(Clone)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    count: u64,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [0; BUCKETS], count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Records one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// Adds all counts of `other`.
    pub fn add(&mut self, other: &Histogram) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns the histogram of values with this sum and maximum, which are counted in groups: the
    /// largest value that each group may have, and the number of its values.
    pub(crate) fn of_groups(
        counts: impl Iterator<Item = (u64, u64)>,
        sum: u64,
        max: u64,
    ) -> Histogram {
        let mut all = Histogram { sum, max, ..Histogram::default() };
        for (largest, count) in counts.filter(|(_, count)| *count > 0) {
            all.buckets[bucket(largest)] += count;
            all.count += count;
        }
        all
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the values, at most `u64::MAX`.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the number of values below `bound`. Exact if `bound` is a power of two. Otherwise
    /// values up to one part in eight below `bound` may be missing.
    pub fn count_below(&self, bound: u64) -> u64 {
        self.buckets[..bucket(bound)].iter().sum()
    }

    /// Returns the buckets that are not empty: the largest value of each, and its count. The bounds
    /// of one histogram are those of all, so the difference of two snapshots is a histogram too.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, count)| (upper_bound(index), *count))
    }

    /// Returns the mean, rounded down; 0 without values.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// Returns the largest value, exactly.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the smallest bucket bound that at least `per_million` of the values do not exceed;
    /// 500 000 gives the median. Returns 0 without values. The result is at most one part in eight
    /// above the exact value.
    ///
    /// # Panics
    /// Panics if `per_million` exceeds 1 000 000.
    pub fn percentile(&self, per_million: u32) -> u64 {
        assert!(per_million <= 1_000_000);
        let rank = (u128::from(self.count) * u128::from(per_million)).div_ceil(1_000_000) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && *count > 0 {
                return upper_bound(index).min(self.max);
            }
        }
        0
    }
}

/// A histogram with one writer and any number of readers.
#[derive(Debug)]
pub(crate) struct SharedHistogram {
    buckets: [Counter; BUCKETS],
    sum: Counter,
    max: Counter,
}

impl Default for SharedHistogram {
    fn default() -> SharedHistogram {
        SharedHistogram {
            // Created in one step for Miri. A call per bucket would be most of many tests.
            buckets: [const { Counter::new() }; BUCKETS],
            sum: Counter::default(),
            max: Counter::default(),
        }
    }
}

impl SharedHistogram {
    #[inline(always)]
    pub(crate) fn record(&self, value: u64) {
        self.buckets[bucket(value)].add(1);
        self.sum.add(value);
        self.max.raise_to(value);
    }

    /// Records the time from `begin` to `end`; no time if `end` is earlier.
    #[inline(always)]
    pub(crate) fn record_span(&self, begin: u64, end: u64) {
        if end <= begin {
            return self.buckets[0].add(1);
        }
        self.record(end - begin);
    }

    /// Records that a stage took no time, `nr` times.
    #[inline]
    pub(crate) fn record_zeros(&self, nr: u64) {
        self.buckets[0].add(nr);
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        let buckets = core::array::from_fn(|at| self.buckets[at].get());
        let count = buckets.iter().sum();
        Histogram { buckets, count, sum: self.sum.get(), max: self.max.get() }
    }
}

/// Returns the bucket of `value`, which its highest bits determine.
#[inline]
fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - STEPS_SHIFT;
    ((u64::from(shift) << STEPS_SHIFT) + (value >> shift)) as usize
}

/// Returns the largest value of a bucket.
fn upper_bound(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let shift = (index >> STEPS_SHIFT) - 1;
    let top = STEPS + (index & (STEPS - 1));
    let bound = (u128::from(top) + 1) << shift;
    (bound - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_bound_their_values() {
        let samples = (0..64).flat_map(|bit| {
            let power = 1u64 << bit;
            [power.saturating_sub(1), power, power + power / 3, power + (power - 1)]
        });
        for value in samples {
            let index = bucket(value);
            assert!(upper_bound(index) >= value, "{value}");
            assert!(index == 0 || upper_bound(index - 1) < value, "{value}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(upper_bound(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn values_below_a_power_of_two_are_counted_exactly() {
        let mut histogram = Histogram::default();
        (0..5000).for_each(|value| histogram.record(value));
        for shift in 0..13 {
            assert_eq!(histogram.count_below(1 << shift), 1 << shift);
        }
        assert_eq!(histogram.count_below(1 << 63), 5000);
        assert!((4375..=5000).contains(&histogram.count_below(5000)));
        assert_eq!(histogram.sum(), 4999 * 5000 / 2);
    }

    #[test]
    fn filled_buckets_have_their_bounds_and_counts() {
        let mut histogram = Histogram::default();
        [3, 3, 1000, u64::MAX].into_iter().for_each(|value| histogram.record(value));
        let buckets: alloc::vec::Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(3, 2), (1023, 1), (u64::MAX, 1)]);
    }

    #[test]
    fn percentiles_of_a_ramp() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.record(value));
        assert_eq!((histogram.count(), histogram.mean(), histogram.max()), (1000, 500, 1000));
        for (per_million, exact) in [(1_000, 1), (500_000, 500), (990_000, 990), (1_000_000, 1000)]
        {
            let value = histogram.percentile(per_million);
            assert!(value >= exact && value <= exact + exact / 8, "{per_million}: {value}");
        }
        assert_eq!(Histogram::default().percentile(500_000), 0);
        assert_eq!(histogram.percentile(0), 1, "the smallest value");
    }
}
