//! fio's latency histogram: exact for small values, within 1/128 of the value for larger ones.
//!
//! The geometry is fio's (HOWTO, "JSON+ output", and what 3.33 prints): 29 groups of 64 buckets.
//! Values below 128 ns have a bucket each; from there on every group covers one power of two with
//! 64 buckets, up to about 17 seconds, and the last bucket takes all longer values. So percentiles
//! have the same bucket values as fio's.

/// log2 of the number of buckets per group.
const GROUP_BITS: u32 = 6;
/// Buckets per group.
const PER_GROUP: usize = 1 << GROUP_BITS;
/// Groups.
const GROUPS: usize = 29;
/// Number of buckets.
pub const BUCKETS: usize = GROUPS * PER_GROUP;
/// The end of the last bucket, ns: a longer latency counts as one in that bucket.
pub const RANGE_NS: u64 = 1 << (GROUP_BITS as usize + GROUPS - 1);

/// The percentiles that fio reports by default.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Counts of latencies in nanoseconds, by bucket.
#[derive(Clone)]
pub struct Histogram {
    /// Nothing until the first latency: most of the histograms of a thousand clones stay empty.
    counts: Box<[u64]>,
}

impl Histogram {
    /// Returns an empty histogram. It takes 15 KiB from the first latency on.
    pub fn new() -> Self {
        Self { counts: Box::new([]) }
    }

    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let bucket = bucket_of(ns);
        match self.counts.get_mut(bucket) {
            Some(count) => *count += 1,
            None => self.record_first(bucket),
        }
    }

    #[cold]
    fn record_first(&mut self, bucket: usize) {
        self.counts = vec![0; BUCKETS].into_boxed_slice();
        self.counts[bucket] = 1;
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
            return;
        }
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
    }

    /// Returns the number of latencies.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the buckets that are not empty, as (bucket value in nanoseconds, count).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let used = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        used.map(|(bucket, &count)| (value_of(bucket), count))
    }

    /// Removes all counts. Returns the buckets that were not empty, with their counts.
    pub(crate) fn take(&mut self) -> Vec<(u16, u64)> {
        let used = (0..).zip(self.counts.iter_mut()).filter(|(_, count)| **count > 0);
        used.map(|(bucket, count)| (bucket, std::mem::take(count))).collect()
    }

    /// Returns the latencies, in nanoseconds, at the given percentiles (0 to 100, ascending).
    ///
    /// fio's rule: the value of the first bucket up to which at least `percent / 100 * total` of
    /// the latencies lie. Empty if nothing was counted.
    pub fn percentiles(&self, percents: &[f64]) -> Vec<u64> {
        let total = self.total();
        if total == 0 {
            return Vec::new();
        }
        let mut values = Vec::with_capacity(percents.len());
        let mut wanted = percents.iter().map(|percent| percent / 100.0 * total as f64).peekable();
        let mut sum = 0;
        for (value, count) in self.iter() {
            sum += count;
            while wanted.next_if(|&wanted| sum as f64 >= wanted).is_some() {
                values.push(value);
            }
        }
        values
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Returns the bucket of a latency, with one bit scan, one shift and a clamp, and no branches.
#[inline]
fn bucket_of(ns: u64) -> usize {
    // The highest bit decides the group; below 64 the lowest group's is assumed, whose shift is 0.
    let top_bit = 63 - (ns | PER_GROUP as u64).leading_zeros();
    let shift = top_bit - GROUP_BITS;
    let bucket = ((shift as usize) << GROUP_BITS) + (ns >> shift) as usize;
    bucket.min(BUCKETS - 1)
}

/// Returns the value that stands for a bucket: its middle.
fn value_of(bucket: usize) -> u64 {
    if bucket < 2 * PER_GROUP {
        return bucket as u64;
    }
    let shift = bucket / PER_GROUP - 1;
    let within = (bucket % PER_GROUP) as u64;
    let width = 1_u64 << shift;
    ((PER_GROUP as u64 + within) << shift) + width / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&ns| histogram.record(ns));
        histogram
    }

    /// Values and bucket values that fio 3.33 printed for them.
    #[test]
    fn bucket_values_are_those_of_fio() {
        for (ns, value) in [(10, 10), (200, 201), (310, 310), (32_920, 33_024), (33_279, 33_024)] {
            assert_eq!(value_of(bucket_of(ns)), value, "{ns}");
        }
        assert_eq!(value_of(bucket_of(1_684_042)), 1_679_360);
        assert_eq!(value_of(bucket_of(105_743_701)), 105_381_888);
    }

    #[test]
    fn the_last_bucket_takes_all_longer_times() {
        assert_eq!(RANGE_NS, 1 << 34);
        assert_eq!(bucket_of(RANGE_NS - 1), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert!(value_of(BUCKETS - 1) < RANGE_NS);
    }

    #[test]
    fn percentiles_follow_the_rule() {
        assert!(histogram(&[]).percentiles(&PERCENTILES).is_empty());
        assert_eq!(histogram(&[7]).percentiles(&[1.0, 50.0, 100.0]), [7, 7, 7]);
        let hundred: Vec<_> = (1..=100).collect();
        assert_eq!(histogram(&hundred).percentiles(&[1.0, 1.5, 50.0, 100.0]), [1, 2, 50, 100]);
    }

    proptest! {
        #[test]
        fn a_bucket_value_is_near_and_stays_in_its_bucket(ns in 0_u64..1 << 34) {
            let value = value_of(bucket_of(ns));
            prop_assert_eq!(bucket_of(value), bucket_of(ns));
            prop_assert!(value.abs_diff(ns) <= ns / 128 + 1);
        }

        #[test]
        fn buckets_are_in_the_order_of_values(a: u64, b: u64) {
            let (small, large) = (a.min(b), a.max(b));
            prop_assert!(bucket_of(small) <= bucket_of(large));
        }

        #[test]
        fn merging_is_recording_both(
            a in prop::collection::vec(any::<u64>(), 0..50),
            b in prop::collection::vec(0_u64..1 << 30, 0..50),
        ) {
            let mut merged = histogram(&a);
            merged.merge(&histogram(&b));
            let both = histogram(&[a, b].concat());
            prop_assert_eq!(merged.iter().collect::<Vec<_>>(), both.iter().collect::<Vec<_>>());
            prop_assert_eq!(merged.percentiles(&PERCENTILES), both.percentiles(&PERCENTILES));
        }
    }
}
