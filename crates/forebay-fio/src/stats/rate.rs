//! Bandwidth and IOPS, sampled while a job runs.
//!
//! fio samples both about every 500 ms (its options `bwavgtime` and `iopsavgtime`) and reports
//! minimum, maximum, mean and deviation of the samples. An incomplete window at the end of a job is
//! not counted.

/// Nanoseconds between two samples.
pub const WINDOW_NS: u64 = 500_000_000;

/// The samples of one rate.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RateSamples {
    count: u64,
    min: u64,
    max: u64,
    mean: f64,
    /// Sum of the squared differences from the mean.
    squares: f64,
}

impl RateSamples {
    /// Adds a sample (twice a second: this is no hot path). Welford's method.
    pub fn record(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        let delta = value as f64 - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value as f64 - self.mean);
    }

    /// Adds the samples of a job that ran at the same time. Rates of the same time add up, so
    /// minimum, maximum and mean are summed, as fio does with `group_reporting`.
    pub fn add_parallel(&mut self, other: &Self) {
        self.min += other.min;
        self.max += other.max;
        self.mean += other.mean;
        self.count += other.count;
        self.squares += other.squares;
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the smallest sample.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Returns the largest sample.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean of the samples.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the standard deviation of the samples; 0 below two.
    pub fn stddev(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares / (self.count - 1) as f64).sqrt() }
    }
}

/// A running counter that is turned into rate samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    bytes: u64,
    ios: u64,
}

impl Window {
    /// Returns the rates since the last call, (KiB, I/Os) per second; `None` without any I/O.
    pub(super) fn close(&mut self, bytes: u64, ios: u64, elapsed_ns: u64) -> Option<(u64, u64)> {
        let (new_bytes, new_ios) = (bytes - self.bytes, ios - self.ios);
        *self = Self { bytes, ios };
        let per_second =
            |n: u64| (u128::from(n) * 1_000_000_000 / u128::from(elapsed_ns.max(1))) as u64;
        (new_ios > 0).then(|| (per_second(new_bytes) / 1024, per_second(new_ios)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[u64]) -> RateSamples {
        let mut samples = RateSamples::default();
        values.iter().for_each(|&value| samples.record(value));
        samples
    }

    #[test]
    fn samples_have_the_moments_of_their_values() {
        let three = samples(&[976, 978, 978]);
        assert_eq!((three.count(), three.min(), three.max()), (3, 976, 978));
        assert!((three.mean() - 977.333).abs() < 1e-3);
        assert!((three.stddev() - 1.1547).abs() < 1e-4);
    }

    #[test]
    fn rates_of_parallel_jobs_add_up() {
        let mut group = samples(&[800]);
        group.add_parallel(&samples(&[867]));
        assert_eq!(
            (group.count(), group.min(), group.max(), group.mean()),
            (2, 1667, 1667, 1667.0)
        );
    }

    #[test]
    fn a_window_counts_from_the_last_one() {
        let mut window = Window::default();
        assert_eq!(window.close(1 << 20, 256, WINDOW_NS), Some((2048, 512)));
        assert_eq!(window.close(1 << 20, 256, WINDOW_NS), None);
        assert_eq!(window.close(3 << 20, 257, 1_000_000_000), Some((2048, 1)));
    }
}
