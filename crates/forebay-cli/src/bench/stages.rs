//! Jobs of another command, run one after another by the engine of `bench`.

use std::ffi::OsString;

use forebay::Disk;
use forebay_fio::stats::JobStats;

use super::filling::Filling;
use super::stop::Stop;
use super::{in_use, open, parse, plan, run, zones};
use crate::failure::Failure;

/// Runs the jobs of these arguments, and returns the figures of each, in order. Nothing is laid
/// out: the disks exist and have the size that the jobs need. `check` may refuse an open disk
/// before the first I/O.
///
/// # Errors
/// An argument is wrong, a job writes to a block device in use, a disk cannot be opened or is
/// refused, a job fails, or a signal arrives.
pub(crate) fn run_stages(
    args: Vec<OsString>,
    stop: &Stop,
    check: impl Fn(&Disk) -> Result<(), Failure>,
) -> Result<Vec<JobStats>, Failure> {
    let Some(command) = parse(args, Vec::new())? else { return Ok(Vec::new()) };
    let targets = plan::plan(&command.jobs)?;
    zones::check(&command.jobs, &targets)?;
    in_use::check(&command.jobs, &targets)?;
    let opened = open::open(&command.jobs, &targets)?;
    opened.disks.iter().try_for_each(check)?;
    let outcomes =
        run::run_on(&opened, &command, &targets, &Filling::default(), stop, false, &mut |_| {})?;
    if stop.is_set() {
        return Err(Failure::Run("interrupted: not all loads were measured".to_owned()));
    }
    let figures = outcomes.clones.into_iter().map(|outcome| match outcome.report.error {
        None => Ok(outcome.report.stats),
        Some(error) => Err(Failure::Run(format!("{}: {}", outcome.report.name, error.message))),
    });
    figures.collect()
}
