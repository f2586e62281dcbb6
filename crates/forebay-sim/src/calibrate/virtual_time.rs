//! The figures of a load on a modelled device, in virtual time.

use super::probe::{Figures, Probe};
use crate::jobs::{JobDisk, JobError, run_jobs};
use crate::summary::Summary;
use crate::violation::Violation;
use forebay_fio::cmdline::{Parsed, parse};
use std::ffi::OsString;
use std::fmt;

/// I/Os of a load: a number for each one in flight, and at least some.
const NR_PER_DEPTH: u32 = 32;
const NR_MIN: u32 = 1000;

/// The error of a load that cannot be measured.
#[derive(Debug)]
#[non_exhaustive]
pub enum MeasureError {
    /// The disk does not permit the load.
    Job(JobError),
    /// The layer broke a rule.
    Violation(Box<Violation>),
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasureError::Job(error) => error.fmt(f),
            MeasureError::Violation(violation) => violation.fmt(f),
        }
    }
}

impl std::error::Error for MeasureError {}

/// Measures a load on a modelled disk.
///
/// Two runs of different length have the same start and the same end, so their difference is the
/// steady state between.
///
/// # Errors
/// The disk does not permit the load, or the layer broke a rule.
pub fn measure(probe: &Probe, disk: &JobDisk, seed: u64) -> Result<Figures, MeasureError> {
    let nr_ios = (NR_PER_DEPTH * probe.depth).max(NR_MIN);
    let [short, long] = [run(probe, disk, seed, nr_ios / 4)?, run(probe, disk, seed, nr_ios)?];
    let nr_ios = long.nr_ios() - short.nr_ios();
    let time_ns = long.now_ns.saturating_sub(short.now_ns) as f64;
    let busy_ns = long.busy_ns.saturating_sub(short.busy_ns) as f64;
    Ok(Figures::new(nr_ios, time_ns, busy_ns, &long.tally.fio_latency))
}

fn run(probe: &Probe, disk: &JobDisk, seed: u64, nr_ios: u32) -> Result<Summary, MeasureError> {
    let ends = [format!("--number_ios={nr_ios}"), "--name=load".to_owned()];
    let options = probe.options().into_iter().chain(ends).map(OsString::from);
    let jobs = match parse(options) {
        Ok(Parsed::Run(command)) => command.jobs,
        other => unreachable!("the options of a load are valid: {other:?}"),
    };
    let run = run_jobs(&jobs, seed, disk, None).map_err(MeasureError::Job)?;
    run.map_err(MeasureError::Violation)
}
