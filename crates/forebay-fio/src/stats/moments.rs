//! Minimum, maximum, mean and standard deviation, kept in integers.

use std::ops::AddAssign;

/// The moments of a series of whole numbers (nanoseconds, mostly).
///
/// Recording is two additions, one multiplication and two comparisons, no division: the sums are
/// exact, and mean and deviation are computed on request. The sum holds 584 years of nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moments {
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
    sum_of_squares: u128,
}

impl Moments {
    /// Returns the moments of an empty series.
    pub const fn new() -> Self {
        Self { count: 0, min: u64::MAX, max: 0, sum: 0, sum_of_squares: 0 }
    }

    /// Adds a value to the series.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.count += 1;
        // Both are rare, and a comparison in place costs less than a minimum that is stored back.
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
        self.sum = self.sum.wrapping_add(value);
        self.sum_of_squares += u128::from(value) * u128::from(value);
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the smallest value; 0 if there is none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// Returns the largest value; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the arithmetic mean; 0 if there is no value.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Returns the standard deviation of a sample (divided by n - 1), as in fio; 0 below two
    /// values.
    pub fn stddev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // The large terms cancel between integers; only the small rest is rounded.
        let (count, sum) = (u128::from(self.count), u128::from(self.sum));
        let whole = self.sum_of_squares.saturating_sub(sum * sum / count) as f64;
        let squares = whole - (sum * sum % count) as f64 / count as f64;
        (squares.max(0.0) / (self.count - 1) as f64).sqrt()
    }
}

impl Default for Moments {
    fn default() -> Self {
        Self::new()
    }
}

/// The moments of both series together.
impl AddAssign<&Self> for Moments {
    fn add_assign(&mut self, other: &Self) {
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum.wrapping_add(other.sum);
        self.sum_of_squares += other.sum_of_squares;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moments(values: &[u64]) -> Moments {
        let mut moments = Moments::new();
        values.iter().for_each(|&value| moments.record(value));
        moments
    }

    #[test]
    fn an_empty_series_is_all_zero() {
        let empty = moments(&[]);
        assert_eq!((empty.count(), empty.min(), empty.max()), (0, 0, 0));
        assert_eq!((empty.mean(), empty.stddev()), (0.0, 0.0));
    }

    #[test]
    fn known_values() {
        let three = moments(&[978, 978, 976]);
        assert_eq!((three.count(), three.min(), three.max()), (3, 976, 978));
        assert!((three.mean() - 977.333).abs() < 1e-3);
        assert!((three.stddev() - 1.1547).abs() < 1e-4);
        assert_eq!(moments(&[5]).stddev(), 0.0);
    }

    proptest! {
        #[test]
        fn deviation_is_that_of_the_definition(
            values in prop::collection::vec(0_u64..10_000_000_000, 2..100),
        ) {
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
            let squares: f64 = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum();
            let stddev = (squares / (values.len() - 1) as f64).sqrt();
            prop_assert!((moments(&values).stddev() - stddev).abs() <= stddev * 1e-6 + 1e-3);
        }

        #[test]
        fn adding_is_recording_both(
            a in prop::collection::vec(any::<u32>().prop_map(u64::from), 0..50),
            b in prop::collection::vec(any::<u32>().prop_map(u64::from), 0..50),
        ) {
            let mut sum = moments(&a);
            sum += &moments(&b);
            prop_assert_eq!(sum, moments(&[a, b].concat()));
        }
    }
}
