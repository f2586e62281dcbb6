//! fio's report of the jobs of a command line, for `bench` and `sim`.

use forebay_fio::job::JobList;
use forebay_fio::report::{JobReport, Report};

/// The name and version in reports.
pub(crate) const VERSION: &str = concat!("forebay-", env!("CARGO_PKG_VERSION"));

/// The times in a report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// The end of the run, milliseconds since 1970.
    pub(crate) end_ms: u64,
    /// The duration of the run in seconds, rounded up. fio reports it for every job.
    pub(crate) elapsed_s: u64,
}

/// Returns the report of these clones, each with the index of its job, without the figures of
/// disks.
pub(crate) fn assemble(
    command: &JobList,
    clones: impl Iterator<Item = (usize, JobReport)>,
    times: Times,
) -> Report {
    let owned = |options: &[(&'static str, String)]| {
        options.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect()
    };
    let mut report = Report {
        version: VERSION.to_owned(),
        timestamp_ms: times.end_ms,
        global_options: owned(&command.global_options),
        ..Report::default()
    };
    let mut last_group = None;
    for (at, clone) in clones {
        let job = &command.jobs[at];
        let (options, elapsed_s) = (owned(&job.options), times.elapsed_s);
        let entry = JobReport { options, elapsed_s, group_id: job.group, ..clone };
        // As in fio, a grouped clone is merged into the previous entry of its group, grouped or
        // not.
        match report.jobs.last_mut() {
            Some(last) if job.group_reporting && last_group == Some(job.group) => last.merge(entry),
            _ => report.jobs.push(entry),
        }
        last_group = Some(job.group);
    }
    report.jobs.iter_mut().for_each(JobReport::unify);
    report
}
