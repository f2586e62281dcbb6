//! Histograms of the times that I/O spends in a stage.
//!
//! Each power of two has 8 buckets, so a percentile is within 1/16 of the time. The greatest time
//! is exact.

use std::sync::atomic::{AtomicU64, Ordering};

/// A stage of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A read is held, until its request is passed on.
    Held,
    /// A request that moves data is at the kernel: from its submission until the library takes its
    /// event, which it does when the program asks for events.
    Kernel,
    /// A sync: for an iocb, as for [`Stage::Kernel`]; for a call, until it returns.
    Sync,
}

impl Stage {
    /// All stages, in the order of an area.
    pub const ALL: [Stage; 3] = [Stage::Held, Stage::Kernel, Stage::Sync];
}

/// log2 of the buckets of a power of two.
const BITS: u32 = 3;
const PER_GROUP: usize = 1 << BITS;

/// The number of buckets. The last one takes all times from about 16 s.
const NR_BUCKETS: usize = 32 * PER_GROUP;

/// Counts of times in nanoseconds.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Histogram {
    max: AtomicU64,
    buckets: [AtomicU64; NR_BUCKETS],
}

impl Histogram {
    pub(super) const fn new() -> Histogram {
        let buckets = [const { AtomicU64::new(0) }; NR_BUCKETS];
        Histogram { max: AtomicU64::new(0), buckets }
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        [&self.max].into_iter().chain(&self.buckets)
    }

    pub(super) fn record(&self, ns: u64) {
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        if self.max.load(Ordering::Relaxed) < ns {
            self.max.fetch_max(ns, Ordering::Relaxed);
        }
    }
}

/// The times of a stage, as a reader of an area sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    max: u64,
    buckets: Vec<u64>,
}

impl Default for Times {
    fn default() -> Times {
        Times { max: 0, buckets: vec![0; NR_BUCKETS] }
    }
}

impl Times {
    /// Adds a time in nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.buckets[bucket_of(ns)] += 1;
        self.max = self.max.max(ns);
    }

    /// Reads the bytes of a histogram.
    pub(super) fn of_bytes(bytes: &[u8]) -> Times {
        let mut words = bytes.chunks_exact(8).map(super::word);
        Times { max: words.next().unwrap_or(0), buckets: words.collect() }
    }

    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the greatest time in nanoseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the time in nanoseconds that `percent` of the times do not exceed: the middle of its
    /// bucket. 0 without times.
    pub fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.count() * percent).div_ceil(100);
        let mut nr = 0;
        let reaches = |count: &u64| {
            nr += count;
            nr >= wanted && nr > 0
        };
        let bucket = self.buckets.iter().position(reaches);
        bucket.map_or(0, |bucket| middle_of(bucket).min(self.max))
    }

    /// Adds the times of another histogram.
    pub fn merge(&mut self, other: &Times) {
        self.max = self.max.max(other.max);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, nr)| *sum += nr);
    }
}

/// Returns the bucket of a time.
fn bucket_of(ns: u64) -> usize {
    // Below 8 ns, each has a bucket.
    let top_bit = (ns | PER_GROUP as u64).ilog2();
    let shift = top_bit - BITS;
    let bucket = shift as usize * PER_GROUP + (ns >> shift) as usize;
    bucket.min(NR_BUCKETS - 1)
}

/// Returns the middle of a bucket.
fn middle_of(bucket: usize) -> u64 {
    if bucket < 2 * PER_GROUP {
        return bucket as u64;
    }
    let shift = bucket / PER_GROUP - 1;
    let start = ((PER_GROUP + bucket % PER_GROUP) as u64) << shift;
    start + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns times that went through an area.
    fn times(all: impl IntoIterator<Item = u64>) -> Times {
        let histogram = Histogram::new();
        all.into_iter().for_each(|ns| histogram.record(ns));
        let words = histogram.words();
        let bytes: Vec<u8> =
            words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        Times::of_bytes(&bytes)
    }

    #[test]
    fn middle_of_a_bucket_is_within_a_sixteenth_of_its_times() {
        for ns in (0..600).chain((10..34).flat_map(|bit| [1 << bit, (1 << bit) + (1 << bit) / 3])) {
            let middle = middle_of(bucket_of(ns));
            assert!(middle.abs_diff(ns) <= ns / 16, "{ns}: {middle}");
            assert_eq!(bucket_of(middle), bucket_of(ns), "{ns}");
        }
        assert_eq!([bucket_of(1 << 40), bucket_of(u64::MAX)], [NR_BUCKETS - 1; 2]);
    }

    #[test]
    fn percentiles_are_those_of_the_times_and_the_maximum_is_exact() {
        let empty = times([]);
        assert_eq!((empty.count(), empty.percentile(50), empty.max()), (0, 0, 0));
        let hundred = times((1..=100).map(|us| us * 1000));
        assert_eq!((hundred.count(), hundred.max()), (100, 100_000));
        let [p50, p99] = [50, 99].map(|percent| hundred.percentile(percent));
        assert!(p50.abs_diff(50_000) <= 50_000 / 16 && p99.abs_diff(99_000) <= 99_000 / 16);
        let one = times([5_000_000]).percentile(99);
        assert!((4_687_500..=5_000_000).contains(&one), "{one}");
    }

    #[test]
    fn merged_times_are_those_of_both() {
        let mut sum = times([10, 20_000]);
        sum.merge(&times([300]));
        sum.add(7);
        assert_eq!(sum, times([7, 10, 300, 20_000]));
    }
}
