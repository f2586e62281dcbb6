//! The ratios of pairs: their middle, how far they reach, and what that says.
//!
//! A machine differs from minute to minute, and both runs of a pair share the minute. So what is
//! looked at are ratios, pair by pair; the medians of the two sides alone would mix the minutes.

use std::fmt;

/// Fewer pairs than these decide nothing: with five, a side that is as good as the other is ahead
/// in all of them one time in 32.
pub(super) const PAIRS_THAT_DECIDE: usize = 5;

/// The middle and the ends of some numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of these; `None` of none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        // Of an even number there are two in the middle.
        let (below, above) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: below.midpoint(above), min, max })
    }
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Higher,
    Lower,
}

/// What the median ratio has to keep for "not slower".
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Tolerance {
    AtLeast(f64),
    AtMost(f64),
}

/// What the pairs say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The median keeps the tolerance.
    Ok,
    /// It does not, and no pair says otherwise.
    Worse,
    /// It does not, but some pairs say otherwise; or there are too few pairs.
    Unclear,
}

impl Verdict {
    pub(super) fn of(ratio: Spread, nr_pairs: usize, tolerance: Tolerance) -> Self {
        let (is_kept, says_otherwise) = match tolerance {
            Tolerance::AtLeast(bound) => (ratio.median >= bound, ratio.max >= 1.0),
            Tolerance::AtMost(bound) => (ratio.median <= bound, ratio.min <= 1.0),
        };
        match (is_kept, says_otherwise) {
            _ if nr_pairs < PAIRS_THAT_DECIDE => Self::Unclear,
            (true, _) => Self::Ok,
            (false, true) => Self::Unclear,
            (false, false) => Self::Worse,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Worse => "worse",
            Self::Unclear => "unclear",
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

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 9.0 }));
        assert_eq!(of(&[4.0, 1.0, 9.0, 2.0]).map(|s| s.median), Some(3.0));
        assert_eq!(of(&[7.0]), Some(Spread { median: 7.0, min: 7.0, max: 7.0 }));
        assert_eq!(of(&[]), None);
    }

    #[track_caller]
    fn check(ratios: &[f64], tolerance: Tolerance, expected: Verdict) {
        let spread = Spread::of(ratios.iter().copied()).expect("some");
        assert_eq!(Verdict::of(spread, ratios.len(), tolerance), expected, "{ratios:?}");
    }

    #[test]
    fn the_median_decides_unless_pairs_contradict_it() {
        let iops = Tolerance::AtLeast(0.97);
        check(&[0.9, 0.95, 0.97, 0.98, 1.1], iops, Verdict::Ok);
        check(&[0.9, 0.95, 0.96, 0.98, 0.99], iops, Verdict::Worse);
        check(&[0.9, 0.95, 0.96, 0.98, 1.01], iops, Verdict::Unclear);
        let p99 = Tolerance::AtMost(1.15);
        check(&[1.0, 1.1, 1.15, 1.3, 9.0], p99, Verdict::Ok);
        check(&[1.1, 1.1, 1.2, 1.3, 9.0], p99, Verdict::Worse);
        check(&[0.9, 1.1, 1.2, 1.3, 9.0], p99, Verdict::Unclear);
    }

    #[test]
    fn few_pairs_decide_nothing() {
        check(&[2.0; 4], Tolerance::AtLeast(0.97), Verdict::Unclear);
        check(&[2.0; 5], Tolerance::AtLeast(0.97), Verdict::Ok);
        check(&[0.5; 4], Tolerance::AtLeast(0.97), Verdict::Unclear);
    }
}
