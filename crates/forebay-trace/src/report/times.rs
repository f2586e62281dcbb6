//! Times with their mean and percentiles.

/// The times of one stage, or of all, over many bios.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    all: Vec<u64>,
    sum: u128,
}

impl Times {
    /// Adds a time.
    pub fn add(&mut self, time_ns: u64) {
        self.all.push(time_ns);
        self.sum += u128::from(time_ns);
    }

    /// Sorts the times, which [`percentile_ns`](Self::percentile_ns) needs.
    pub fn sort(&mut self) {
        self.all.sort_unstable();
    }

    /// Returns the mean in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        if self.all.is_empty() { 0.0 } else { self.sum as f64 / self.all.len() as f64 }
    }

    /// Returns the smallest time that is not less than `percent` % of all; the times are sorted.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let nth = (percent / 100.0 * self.all.len() as f64).ceil() as usize;
        self.all.get(nth.clamp(1, self.all.len().max(1)) - 1).copied().unwrap_or(0)
    }

    /// Returns the number of times.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_added() {
        let mut times = Times::default();
        assert_eq!((times.percentile_ns(50.0), times.mean_ns()), (0, 0.0));
        (1..=100).rev().for_each(|time_ns| times.add(time_ns));
        times.sort();
        let all = [0.0, 50.0, 99.0, 100.0].map(|percent| times.percentile_ns(percent));
        assert_eq!((all, times.mean_ns(), times.len()), ([1, 50, 99, 100], 50.5, 100));
    }
}
