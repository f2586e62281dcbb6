//! Histogram of latencies, in quarters of a target.

use crate::plant::plants;

/// The number of buckets up to the target, each a quarter of it.
pub(super) const NR_GOOD: u32 = 4;

/// The number of all buckets. The last one has no upper bound.
const NR_BUCKETS: usize = 8;

/// How many samples a percentile needs, unless [`PATIENCE_NS`] passes first.
const NR_SAMPLES: u64 = 500;

/// How long a percentile waits for its samples, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;

/// The latencies since the last percentile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Histogram {
    buckets: [u64; NR_BUCKETS],
    /// When a percentile no longer waits for its samples. `None` before the first attempt.
    ready_at_ns: Option<u64>,
}

impl Histogram {
    /// Adds a latency. A latency equal to the target is within it.
    pub(super) fn add(&mut self, latency_ns: u64, target_ns: u64) {
        let quarter_ns = (target_ns / u64::from(NR_GOOD)).max(1);
        let nth = latency_ns.saturating_sub(1) / quarter_ns;
        self.buckets[nth.min(NR_BUCKETS as u64 - 1) as usize] += 1;
    }

    /// Returns the bucket of a percentile and forgets the samples. Returns `None` while there are
    /// too few.
    pub(super) fn take_percentile(&mut self, percent: u64, now: u64) -> Option<u32> {
        let nr_samples: u64 = self.buckets.iter().sum();
        if nr_samples == 0 {
            return None;
        }
        let ready_at_ns = *self.ready_at_ns.get_or_insert(now.saturating_add(PATIENCE_NS));
        if nr_samples < NR_SAMPLES && now < ready_at_ns {
            return None;
        }
        let rank = (nr_samples * percent).div_ceil(100);
        let up_to = self.buckets.iter().scan(0, |sum, nr| {
            *sum += nr;
            Some(*sum)
        });
        let bucket = up_to.take_while(|sum| *sum < rank).count();
        match plants!(KeepSamples) {
            true => self.ready_at_ns = None,
            false => *self = Histogram::default(),
        }
        Some(bucket as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bucket of one latency.
    fn bucket(latency_ns: u64, target_ns: u64) -> u32 {
        let mut histogram = Histogram::default();
        (0..NR_SAMPLES).for_each(|_| histogram.add(latency_ns, target_ns));
        histogram.take_percentile(50, 0).expect("there are enough samples")
    }

    #[test]
    fn buckets_are_quarters_of_the_target_and_include_their_upper_bound() {
        let latencies = [0, 1, 250, 251, 500, 1000, 1001, 1250, 1750, 1751, u64::MAX];
        let buckets = latencies.map(|latency_ns| bucket(latency_ns, 1000));
        assert_eq!(buckets, [0, 0, 0, 1, 1, 3, 4, 4, 6, 7, 7]);
        // A target below four nanoseconds has buckets of one.
        assert_eq!([0, 1, 2, 3].map(|latency_ns| bucket(latency_ns, 0)), [0, 0, 1, 2]);
    }

    #[test]
    fn percentile_is_the_bucket_of_its_rank() {
        // 1000 samples: 900 in bucket 0, 90 in bucket 2, 10 in bucket 7.
        let mut filled = Histogram::default();
        for (nr, latency_ns) in [(900, 100), (90, 600), (10, 9000)] {
            (0..nr).for_each(|_| filled.add(latency_ns, 1000));
        }
        let percentile = |percent| filled.clone().take_percentile(percent, 0);
        assert_eq!([90, 91, 99, 100].map(percentile), [Some(0), Some(2), Some(2), Some(7)]);
    }

    #[test]
    fn few_samples_wait_for_a_second_after_the_first_attempt() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.take_percentile(90, 5), None);
        histogram.add(300, 1000);
        assert_eq!(histogram.take_percentile(90, 100), None);
        assert_eq!(histogram.take_percentile(90, 100 + PATIENCE_NS - 1), None);
        assert_eq!(histogram.take_percentile(90, 100 + PATIENCE_NS), Some(1));
        // The samples are forgotten, and the wait begins again.
        assert_eq!(histogram.take_percentile(90, 100 + 2 * PATIENCE_NS), None);
        histogram.add(300, 1000);
        assert_eq!(histogram.take_percentile(90, 100 + 9 * PATIENCE_NS), None);
        (1..NR_SAMPLES).for_each(|_| histogram.add(300, 1000));
        assert_eq!(histogram.take_percentile(90, 101 + 9 * PATIENCE_NS), Some(1));
    }
}
