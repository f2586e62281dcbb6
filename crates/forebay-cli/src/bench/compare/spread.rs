//! The ratios of pairs: their median, how sure that is, and the verdict.
//!
//! A machine differs from minute to minute, and both runs of a pair share the minute. So ratios are
//! taken pair by pair; the medians of the two sides alone would mix the minutes.
//!
//! A median of few pairs is uncertain, so a verdict rests on a confidence interval of it. The
//! interval assumes nothing about the distribution of the ratios, except that the pairs are
//! independent of each other. In a sorted list of `n` ratios, the `k`-th from below and the `k`-th
//! from above enclose the median of all possible pairs with the probability
//!
//! ```text
//! 1 - 2 * P[B < k], where B is binomial: n draws with probability 1/2
//! ```
//!
//! because the median is below the `k`-th ratio only if fewer than `k` ratios are below the median,
//! and each ratio is below it with probability 1/2. Source: H. A. David and H. N. Nagaraja, Order
//! Statistics, 3rd edition, section 7.1. With 5 pairs the lowest and the highest ratio enclose the
//! median with 1 - 2/32 = 93.75 %.

use std::fmt;

use crate::range::Range;

/// Fewer pairs than these decide nothing: no interval of them reaches [`LEVEL_MIN`].
pub(super) const PAIRS_THAT_DECIDE: usize = 5;

/// The least probability that an interval encloses the median: that of 5 pairs.
const LEVEL_MIN: f64 = 0.9375;

/// Ratios that differ by more than this factor are those of a machine or device that was not quiet.
const NOISY: f64 = 2.0;

/// The median of some ratios, its confidence interval, and the range of the ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// `None` of fewer than [`PAIRS_THAT_DECIDE`].
    pub(super) interval: Option<Interval>,
}

/// A confidence interval of a median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
    /// The probability that it encloses the median of all possible pairs.
    pub(super) level: f64,
}

impl Spread {
    /// Returns the spread of these numbers; `None` if there are none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let Range { median, min, max } = Range::of(values.iter().copied())?;
        Some(Self { median, min, max, interval: Interval::of(&values) })
    }
}

impl Interval {
    /// Returns the narrowest interval of at least [`LEVEL_MIN`]; `None` if there are too few
    /// values.
    fn of(sorted: &[f64]) -> Option<Self> {
        let nr = sorted.len();
        let mut found = None;
        // The number of draws below k, as a probability: P[B = 0] + ... + P[B = k - 1].
        let mut below = 0.0;
        let mut exactly = 0.5_f64.powi(i32::try_from(nr).ok()?);
        for k in 1..=nr.div_ceil(2) {
            below += exactly;
            exactly *= (nr + 1 - k) as f64 / k as f64;
            let level = 1.0 - 2.0 * below;
            if level < LEVEL_MIN {
                break;
            }
            found = Some(Self { low: sorted[k - 1], high: sorted[nr - k], level });
        }
        found
    }
}

/// Returns a ratio for people: with two digits after the point, more if it is small; `inf` for
/// infinity.
pub(super) fn shown(ratio: f64) -> String {
    match ratio {
        10.0.. => format!("{ratio:.1}"),
        0.1.. => format!("{ratio:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{ratio:.4}"),
    }
}

/// Returns a range of ratios for people.
pub(super) fn shown_range(low: f64, high: f64) -> String {
    format!("{}-{}", shown(low), shown(high))
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Higher,
    Lower,
}

/// The limit on the median ratio for "not slower".
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Tolerance {
    AtLeast(f64),
    AtMost(f64),
}

impl Tolerance {
    fn allows(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::AtMost(bound) => ratio <= bound,
        }
    }
}

/// The result of a comparison with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The whole interval keeps the limit.
    Ok,
    /// The whole interval is beyond the limit.
    Worse,
    /// Neither: there are too few pairs, or they differ too much.
    Undecided,
}

impl Verdict {
    /// Returns the verdict on ratios. Ratios of which some are beyond the limit and which differ by
    /// more than [`NOISY`] are never ok, even if the interval leaves the outliers out.
    pub(super) fn of(ratio: Spread, tolerance: Tolerance) -> Self {
        let Some(Interval { low, high, .. }) = ratio.interval else { return Self::Undecided };
        let is_noisy = ratio.max > NOISY * ratio.min;
        let all_keep = tolerance.allows(ratio.min) && tolerance.allows(ratio.max);
        match (tolerance.allows(low), tolerance.allows(high)) {
            (true, true) if all_keep || !is_noisy => Self::Ok,
            (false, false) => Self::Worse,
            _ => Self::Undecided,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Worse => "worse",
            Self::Undecided => "undecided",
        }
    }
}

impl Better {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">= {bound:.2}"),
            Self::AtMost(bound) => write!(f, "<= {bound:.2}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Option<Spread> {
        Spread::of(values.iter().copied())
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let spread = of(&[9.0, 1.0, 2.0]).expect("some");
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 9.0));
        assert_eq!(of(&[4.0, 1.0, 9.0, 2.0]).map(|s| s.median), Some(3.0));
        assert_eq!(of(&[7.0]).map(|s| (s.median, s.min, s.max)), Some((7.0, 7.0, 7.0)));
        assert_eq!(of(&[]), None);
    }

    /// Checks the interval of 1, 2, ... n: its bounds, and its level in percent.
    #[track_caller]
    fn check_interval(nr: u32, expected: Option<(f64, f64, f64)>) {
        let values: Vec<_> = (1..=nr).map(f64::from).collect();
        let interval = of(&values).and_then(|spread| spread.interval);
        let shown = interval.map(|i| (i.low, i.high, (i.level * 1e4).round() / 100.0));
        assert_eq!(shown, expected, "{nr} values");
    }

    #[test]
    fn the_interval_is_that_of_the_tables_for_the_sign_test() {
        check_interval(1, None);
        check_interval(4, None);
        check_interval(5, Some((1.0, 5.0, 93.75)));
        check_interval(6, Some((1.0, 6.0, 96.88)));
        check_interval(8, Some((1.0, 8.0, 99.22)));
        check_interval(9, Some((2.0, 8.0, 96.09)));
        check_interval(15, Some((4.0, 12.0, 96.48)));
        check_interval(20, Some((6.0, 15.0, 95.86)));
        check_interval(1000, Some((471.0, 530.0, 93.8)));
    }

    #[test]
    fn small_ratios_have_more_digits() {
        assert_eq!([68.871, 1.0249, 0.1, 0.00031].map(shown), ["68.9", "1.02", "0.10", "0.0003"]);
        assert_eq!(shown_range(0.0, f64::INFINITY), "0-inf");
        assert_eq!(shown_range(0.85, 19.0), "0.85-19.0");
    }

    #[track_caller]
    fn check(ratios: &[f64], tolerance: Tolerance, expected: Verdict) {
        let spread = of(ratios).expect("some");
        assert_eq!(Verdict::of(spread, tolerance), expected, "{ratios:?}");
    }

    #[test]
    fn the_whole_interval_decides() {
        let iops = Tolerance::AtLeast(0.97);
        check(&[0.97, 0.98, 0.99, 1.0, 1.1], iops, Verdict::Ok);
        check(&[0.9, 0.95, 0.97, 0.98, 1.1], iops, Verdict::Undecided);
        check(&[0.9, 0.92, 0.93, 0.95, 0.969], iops, Verdict::Worse);
        check(&[0.9, 0.92, 0.93, 0.95, 0.97], iops, Verdict::Undecided);
        let p99 = Tolerance::AtMost(1.15);
        check(&[0.9, 1.0, 1.1, 1.1, 1.15], p99, Verdict::Ok);
        check(&[1.16, 1.2, 1.3, 2.0, 9.0], p99, Verdict::Worse);
        check(&[0.9, 1.1, 1.2, 1.3, 1.4], p99, Verdict::Undecided);
    }

    #[test]
    fn pairs_from_0_85_to_19_are_never_ok() {
        let wide = [0.85, 0.99, 1.0, 1.0, 19.0];
        check(&wide, Tolerance::AtLeast(0.97), Verdict::Undecided);
        check(&wide, Tolerance::AtMost(1.05), Verdict::Undecided);
        // The interval of 9 pairs leaves both ends out.
        let more = [0.85, 0.99, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 19.0];
        check(&more, Tolerance::AtLeast(0.97), Verdict::Undecided);
        check(&more, Tolerance::AtMost(1.05), Verdict::Undecided);
        // One pair is off, by no more than a factor of 2.
        let quiet = [0.85, 0.99, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.1];
        check(&quiet, Tolerance::AtLeast(0.97), Verdict::Ok);
        // As fast or faster in every pair.
        check(&[0.98, 3.0, 4.0, 5.0, 19.0], Tolerance::AtLeast(0.97), Verdict::Ok);
    }

    #[test]
    fn ratios_of_zero_and_infinity_are_in_order() {
        let (iops, p99) = (Tolerance::AtLeast(0.97), Tolerance::AtMost(1.15));
        check(&[0.0; 5], iops, Verdict::Worse);
        check(&[f64::INFINITY; 5], iops, Verdict::Ok);
        check(&[f64::INFINITY; 5], p99, Verdict::Worse);
        check(&[0.0, 1.0, 1.0, 1.0, f64::INFINITY], iops, Verdict::Undecided);
    }

    #[test]
    fn few_pairs_decide_nothing() {
        check(&[2.0; 4], Tolerance::AtLeast(0.97), Verdict::Undecided);
        check(&[2.0; 5], Tolerance::AtLeast(0.97), Verdict::Ok);
        check(&[0.5; 4], Tolerance::AtLeast(0.97), Verdict::Undecided);
    }
}
