//! A trace of all disks of a run.

use forebay::{Disk, Trace};
use forebay_fio::report::JobError;
use forebay_trace::directory;
use std::path::Path;

use crate::failure::Failure;
use crate::output;

/// Refuses a directory that has a trace, before anything is written.
pub(super) fn check(dir: Option<&Path>) -> Result<(), Failure> {
    dir.map_or(Ok(()), directory::check_unused).map_err(failed)
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Run(format!("--trace: {error}"))
}

/// Begins a trace of the disks in this directory, if there is one.
pub(super) fn begin(dir: Option<&Path>, disks: &[Disk]) -> Result<Option<Trace>, Failure> {
    let Some(dir) = dir else { return Ok(None) };
    let trace = Trace::create(dir).map_err(failed)?;
    disks.iter().try_for_each(|disk| trace.add(disk)).map_err(failed)?;
    Ok(Some(trace))
}

/// Ends the trace, and prints how much was recorded.
pub(super) fn end(trace: Option<Trace>) -> Result<(), JobError> {
    let Some(trace) = trace else { return Ok(()) };
    let dir = trace.dir().map(Path::to_owned).unwrap_or_default();
    let stats = trace.finish().map_err(|error| JobError {
        errno: forebay::errno_of(&error),
        message: format!("--trace: {error}"),
    })?;
    let lost = match stats.lost {
        0 => String::new(),
        lost => format!("; {lost} were lost, because a ring in memory was full"),
    };
    let records = stats.records;
    output::stderr(&format!("forebay: trace: {records} records in {}{lost}\n", dir.display()));
    Ok(())
}
