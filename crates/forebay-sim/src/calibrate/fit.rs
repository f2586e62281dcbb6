//! Constants and their intervals, from the figures of repeated loads.
//!
//! The constants are those with the smallest squared errors of the logarithm of the IOPS. A load
//! that its processor limits counts only if the model would be slower than what was measured. Large
//! errors count less than their squares, so that one disturbed load does not determine the others.
//!
//! A constant is *determined* if neither half nor twice its value fits, with all other constants
//! fitted again. Its interval spans the fits of the single repetitions. For another constant the
//! fit reports the values that the figures rule out, if there are any.

use super::family::{Family, Guess};
use super::probe::{Figures, Probe};
use super::solve::{Problem, Solution};
use super::sorted::Spreads;
use forebay_model::Parameter;
use std::fmt;

/// A value is ruled out if the fit with it is worse by so much: one load is 5 % further off.
const RULED_OUT: f64 = 0.05;

/// The smallest value in a search, in place of 0, which has no logarithm.
const NEARLY_ZERO: f64 = 0.01;

/// Errors beyond this count by their size and no longer by their square.
const LARGE_ERROR: f64 = 0.1;

/// A family with few constants is preferred to one with more whose error is smaller by less.
const ERROR_RATIO: f64 = 1.25;
const ERROR_DIFFERENCE: f64 = 0.003;

/// The fit of a family.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The family.
    pub family: Family,
    /// Its constants, in order.
    pub constants: Vec<FittedConstant>,
    /// The root of the mean squared error of the loads that took part.
    pub error: f64,
    /// The errors of all families that were tried, this one included.
    pub errors: Vec<(Family, f64)>,
}

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

/// The reason why there is no fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitError {
    /// The family needs loads that write.
    NeedsWrites(Family),
    /// A load completed no I/O.
    NoIo(Probe),
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FitError::NeedsWrites(family) => {
                write!(f, "{} is determined only by loads that write", family.name())
            }
            FitError::NoIo(probe) => {
                write!(f, "no I/O of the load '{probe}' completed; measure for a longer time")
            }
        }
    }
}

impl std::error::Error for FitError {}

/// Fits a family to the figures of each repetition of each load; `None` chooses the family. It
/// chooses none that needs writes without writes, and none with more constants than loads.
///
/// # Errors
/// A load completed no I/O, or the family needs writes and no load writes.
///
/// # Panics
/// Panics if there is no repetition, or if one has another number of loads.
pub fn fit(
    family: Option<Family>,
    probes: &[Probe],
    repetitions: &[Vec<Figures>],
) -> Result<Fit, FitError> {
    for figures in repetitions {
        assert_eq!(figures.len(), probes.len(), "each repetition measures each load");
        if let Some((probe, _)) = probes.iter().zip(figures).find(|(_, it)| it.iops <= 0.0) {
            return Err(FitError::NoIo(*probe));
        }
    }
    let has_writes = probes.iter().any(|probe| probe.access.writes());
    if let Some(family) = family.filter(|family| family.needs_writes() && !has_writes) {
        return Err(FitError::NeedsWrites(family));
    }
    let medians: Vec<Figures> = (0..probes.len())
        .map(|at| Figures::median(&repetitions.iter().map(|it| it[at]).collect::<Vec<_>>()))
        .collect();
    let data = Data::new(probes, &medians);
    // As many constants as loads fit anything.
    let is_candidate = |it: &Family| {
        (has_writes || !it.needs_writes()) && it.constants().len() < data.nr_of_device()
    };
    let candidates = match family {
        Some(family) => vec![family],
        None => Family::ALL.into_iter().filter(is_candidate).collect(),
    };
    let candidates = if candidates.is_empty() { vec![Family::Fixed] } else { candidates };
    let fits: Vec<_> = candidates.into_iter().map(|it| (it, data.best(it))).collect();
    let errors: Vec<_> =
        fits.iter().map(|(it, best)| (*it, data.error(*it, &best.values))).collect();
    let least = errors.iter().map(|(_, error)| *error).fold(f64::INFINITY, f64::min);
    let bound = (least * ERROR_RATIO).max(least + ERROR_DIFFERENCE);
    let chosen = errors.iter().position(|(_, error)| *error <= bound).unwrap_or(0);
    let (family, best) = &fits[chosen];
    let repetitions: Vec<Data> = repetitions.iter().map(|it| Data::new(probes, it)).collect();
    let mut constants = constants(*family, best, &data, &repetitions);
    if let (Family::Hdd, [seek, rate, sorted]) = (family, &mut constants[..]) {
        let probes: Vec<Probe> = data.loads.iter().map(|(probe, _)| *probe).collect();
        let spreads = Spreads::new(seek.value, rate.value, &probes);
        fit_sorted(sorted, &spreads, &data, &repetitions);
    }
    Ok(Fit { family: *family, constants, error: errors[chosen].1, errors })
}

impl Fit {
    /// Returns the predicted IOPS of a load whose I/Os take `cpu_ns` of the processor each.
    pub fn iops(&self, probe: &Probe, cpu_ns: f64) -> f64 {
        let values: Vec<f64> = self.constants.iter().map(|it| it.value as f64).collect();
        1e9 / self.family.interval_ns(&values, probe, cpu_ns)
    }

    /// Returns the keys and values of the model file.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.constants.iter().map(|constant| (constant.name, constant.value))
    }
}

/// The loads that take part in a fit, and their figures.
struct Data {
    loads: Vec<(Probe, Figures)>,
}

impl Data {
    fn new(probes: &[Probe], figures: &[Figures]) -> Data {
        let loads = probes.iter().copied().zip(figures.iter().copied());
        Data { loads: loads.filter(|(probe, _)| !probe.is_check).collect() }
    }

    /// Returns the error of each load: the logarithm of the ratio of the measured to the predicted
    /// IOPS.
    fn errors(&self, family: Family, values: &[f64]) -> Vec<f64> {
        let error_of = |(probe, figures): &(Probe, Figures)| {
            let predicted_ns = family.interval_ns(values, probe, figures.cpu_ns);
            let error = (predicted_ns * figures.iops / 1e9).ln();
            if figures.is_of_processor() { error.max(0.0) } else { error }
        };
        self.loads.iter().map(error_of).collect()
    }

    /// Returns the root of the mean squared error.
    fn error(&self, family: Family, values: &[f64]) -> f64 {
        let sum: f64 = self.errors(family, values).iter().map(|error| error * error).sum();
        (sum / self.nr_of_device().max(1) as f64).sqrt()
    }

    /// Returns the number of loads that no processor limits.
    fn nr_of_device(&self) -> usize {
        self.loads.iter().filter(|(_, figures)| !figures.is_of_processor()).count()
    }

    fn figures(&self) -> Vec<Figures> {
        self.loads.iter().map(|(_, figures)| *figures).collect()
    }

    fn solve(&self, family: Family, start: &[f64], is_held: &[bool]) -> Solution {
        let bounds: Vec<_> = family.constants().iter().map(bounds).collect();
        let residuals =
            |values: &[f64]| self.errors(family, values).into_iter().map(damped).collect();
        Problem { residuals: &residuals, bounds: &bounds, is_held }.solve(start)
    }

    /// Returns the best solution, in which numbers of channels and the like are whole.
    fn best(&self, family: Family) -> Solution {
        let free = vec![false; family.constants().len()];
        let starts = combinations(&family.starts(&self.guess()));
        let solutions = starts.iter().map(|start| self.solve(family, start, &free));
        let best = solutions.reduce(|a, b| if b.sum < a.sum { b } else { a });
        let mut best = best.unwrap_or_else(|| unreachable!("a family has a start"));
        for (at, constant) in family.constants().iter().enumerate() {
            if is_count(constant) {
                let rounded = [f64::floor, f64::ceil].map(|round| {
                    let mut start = best.values.clone();
                    start[at] = round(start[at]).max(1.0);
                    self.solve(family, &start, &held(&free, at))
                });
                let [down, up] = rounded;
                best = if up.sum < down.sum { up } else { down };
            }
        }
        best
    }

    fn guess(&self) -> Guess {
        let intervals = self.loads.iter().map(|(_, it)| 1e9 / it.iops);
        let throughput = |(probe, it): &(Probe, Figures)| it.iops * f64::from(probe.block_bytes);
        Guess {
            alone_ns: self.loads.first().map_or(1.0, |(_, it)| 1e9 / it.iops),
            serial_ns: intervals.fold(f64::INFINITY, f64::min),
            bytes_per_s: self.loads.iter().map(throughput).fold(1.0, f64::max),
        }
    }

    /// Returns whether the figures rule out this value of a constant.
    fn rules_out(&self, family: Family, best: &Solution, at: usize, value: f64) -> bool {
        let mut start = best.values.clone();
        start[at] = value;
        let solution = self.solve(family, &start, &held(&vec![false; start.len()], at));
        (solution.sum - best.sum).max(0.0).sqrt() > RULED_OUT
    }

    /// Returns the first value in one direction that the figures rule out, between a doubling and
    /// the next; `None` if none is. `factor` is 2 or a half.
    fn limit(&self, family: Family, best: &Solution, at: usize, factor: f64) -> Option<f64> {
        let constant = &family.constants()[at];
        let (min, max) = bounds(constant);
        let mut inside = best.values[at];
        if factor < 1.0 && is_count(constant) && inside <= min {
            // There is no smaller number.
            return Some(min);
        }
        let mut outside = inside * factor;
        while !self.rules_out(family, best, at, outside.clamp(min, max)) {
            if !(min..=max).contains(&outside) {
                return None;
            }
            (inside, outside) = (outside, outside * factor);
        }
        for _ in 0..8 {
            let middle = (inside * outside).sqrt();
            match self.rules_out(family, best, at, middle.clamp(min, max)) {
                true => outside = middle,
                false => inside = middle,
            }
        }
        Some(outside.clamp(min, max))
    }
}

fn constants(
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
    family.constants().iter().enumerate().map(fitted).collect()
}

/// Fits the number of sorted commands, if the latencies determine it.
fn fit_sorted(constant: &mut FittedConstant, spreads: &Spreads, data: &Data, repetitions: &[Data]) {
    let figures = data.figures();
    let Some((best, sum)) = spreads.best(&figures) else { return };
    let is_ruled_out = |value: f64| {
        let more = spreads.sum(value, &figures) - sum;
        more.max(0.0).sqrt() > RULED_OUT
    };
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

/// Returns the smallest and the largest value in a search.
fn bounds(constant: &Parameter) -> (f64, f64) {
    ((constant.min as f64).max(NEARLY_ZERO), constant.max as f64)
}

/// Returns whether a constant counts things: small whole numbers.
fn is_count(constant: &Parameter) -> bool {
    (constant.min, constant.max) == (1, 65_536)
}

/// Returns a value as a whole number within the bounds, with four significant digits.
fn round(constant: &Parameter, value: f64) -> u64 {
    let mut unit = 1.0;
    while value / unit >= 10_000.0 && !is_count(constant) {
        unit *= 10.0;
    }
    ((value / unit).round() * unit).clamp(constant.min as f64, constant.max as f64) as u64
}

/// Returns `is_held` with one more constant held.
fn held(is_held: &[bool], at: usize) -> Vec<bool> {
    let mut is_held = is_held.to_vec();
    is_held[at] = true;
    is_held
}

/// Returns the residual of an error: nearly the error itself if it is small, and less otherwise.
pub(super) fn damped(error: f64) -> f64 {
    let ratio = error / LARGE_ERROR;
    let size = (2.0 * ((1.0 + ratio * ratio).sqrt() - 1.0)).sqrt() * LARGE_ERROR;
    size.copysign(error)
}

/// Returns all combinations of one value from each list.
fn combinations(lists: &[Vec<f64>]) -> Vec<Vec<f64>> {
    lists.iter().fold(vec![Vec::new()], |heads, list| {
        let extended = |head: &Vec<f64>| {
            let head = head.clone();
            list.iter().map(move |&value| head.iter().copied().chain([value]).collect())
        };
        heads.iter().flat_map(extended).collect()
    })
}
