//! The fit: a family, and its constants, from the figures of repeated loads.

use super::data::Data;
use super::estimate::{FittedConstant, constants};
use super::family::Family;
use super::probe::{Figures, Probe};
use std::fmt;

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
    let constants = constants(*family, best, &data, &repetitions);
    Ok(Fit { family: *family, constants, error: errors[chosen].1, errors })
}
