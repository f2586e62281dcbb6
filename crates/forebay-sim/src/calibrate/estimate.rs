//! Constants with their intervals.
//!
//! A constant is *determined* if neither half nor twice its value fits, with all other constants
//! fitted again. Its interval spans the fits of the single repetitions. For another constant the
//! fit reports the values that the figures rule out, if there are any.

use super::data::{Data, bounds, is_count, is_worse};
use super::family::Family;
use super::solve::Solution;
use super::sorted::Spreads;
use forebay_model::Parameter;

/// A constant of a fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FittedConstant {
    /// The name.
    pub name: &'static str,
    /// The value.
    pub value: u64,
    /// How well the figures determine it.
    pub estimate: Estimate,
}

/// How well figures determine a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// The constant is determined, and the fits of single repetitions are in this interval.
    Interval {
        /// The smallest value.
        low: u64,
        /// The largest value.
        high: u64,
    },
    /// No load determines the constant.
    NotDetermined {
        /// Smaller values are ruled out.
        at_least: Option<u64>,
        /// Larger values are ruled out.
        at_most: Option<u64>,
    },
}

/// Returns the constants of a family, which are `best` for the medians of all repetitions.
pub(super) fn constants(
    family: Family,
    best: &Solution,
    data: &Data,
    repetitions: &[Data],
) -> Vec<FittedConstant> {
    let free = vec![false; best.values.len()];
    let solve = |it: &Data| it.solve(family, &best.values, &free).values;
    let single: Vec<Vec<f64>> = repetitions.iter().map(solve).collect();
    let fitted = |(at, constant): (usize, &Parameter)| {
        let value = best.values[at];
        let low = data.limit(family, best, at, 0.5);
        let high = data.limit(family, best, at, 2.0);
        let rounded = |value: f64| round(constant, value);
        let (value, estimate) = match (low, high) {
            (Some(low), Some(high)) if low * 2.0 >= value && high <= value * 2.0 => {
                let all = || single.iter().map(|values| values[at]);
                let (low, high) = (all().fold(value, f64::min), all().fold(value, f64::max));
                (value, Estimate::Interval { low: rounded(low), high: rounded(high) })
            }
            (low, high) => {
                let low = low.filter(|&low| low > bounds(constant).0);
                let estimate = Estimate::NotDetermined {
                    at_least: low.map(rounded),
                    at_most: high.map(rounded),
                };
                (open_value(constant, value, low, high), estimate)
            }
        };
        let is_default = value as u64 == constant.default;
        let value = if is_default { constant.default } else { rounded(value) };
        FittedConstant { name: constant.name, value, estimate }
    };
    let mut constants: Vec<_> = family.constants().iter().enumerate().map(fitted).collect();
    if let (Family::Hdd, [seek, rate, sorted]) = (family, &mut constants[..]) {
        let spreads = Spreads::new(seek.value, rate.value, &data.probes());
        fit_sorted(sorted, &spreads, data, repetitions);
    }
    constants
}

/// Fits the number of sorted commands, if the latencies determine it.
fn fit_sorted(constant: &mut FittedConstant, spreads: &Spreads, data: &Data, repetitions: &[Data]) {
    let figures = data.figures();
    let Some((best, sum)) = spreads.best(&figures) else { return };
    let is_ruled_out =
        |value: f64| is_worse(spreads.sum(value, &figures), sum, spreads.nr_loads(), 1);
    if is_ruled_out(best * 0.5) && is_ruled_out(best * 2.0) {
        let single = repetitions.iter().filter_map(|it| Some(spreads.best(&it.figures())?.0));
        let single: Vec<f64> = single.chain([best]).collect();
        let low = single.iter().copied().fold(f64::INFINITY, f64::min).floor() as u64;
        let high = single.iter().copied().fold(0.0, f64::max).ceil() as u64;
        constant.value = best.round() as u64;
        constant.estimate = Estimate::Interval { low: low.max(1), high };
    }
}

/// Returns the value of a constant that is not determined: the default if the figures permit it. A
/// constant without an upper bound is otherwise large enough to limit no load that was measured.
fn open_value(constant: &Parameter, best: f64, low: Option<f64>, high: Option<f64>) -> f64 {
    let default = constant.default as f64;
    match (low, high) {
        (None, None) => default,
        (Some(low), None) => default.max(low * 1.1),
        _ => best,
    }
}

/// Returns a value as a whole number within the bounds, with four significant digits.
fn round(constant: &Parameter, value: f64) -> u64 {
    let mut unit = 1.0;
    while value / unit >= 10_000.0 && !is_count(constant) {
        unit *= 10.0;
    }
    ((value / unit).round() * unit).clamp(constant.min as f64, constant.max as f64) as u64
}
