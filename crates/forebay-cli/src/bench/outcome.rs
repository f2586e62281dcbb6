//! Results of clones and disks.

use forebay::{DiskInfo, DiskStats};
use forebay_fio::logs::Logs;
use forebay_fio::report::JobReport;
use forebay_fio::stats::moments::Moments;

use super::early_end::Unfinished;
use super::replay::Lateness;
use super::series::Series;

/// The results of a run.
#[derive(Debug)]
pub(super) struct Outcomes {
    /// The clones, in order.
    pub(super) clones: Vec<Outcome>,
    /// The disks, by their numbers.
    pub(super) disks: Vec<DiskOutcome>,
}

/// The result of one clone.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The index of its job in the list of jobs.
    pub(super) job: usize,
    /// Its number among the clones of that job.
    pub(super) clone: u32,
    /// The numbers of its disks.
    pub(super) disks: Vec<usize>,
    /// Its figures.
    pub(super) report: JobReport,
    /// Waits of its bios for a tag, ns; `None` for blocking calls.
    pub(super) tag_waits: Option<Moments>,
    /// Its logs.
    pub(super) logs: Option<Box<Logs>>,
    /// Its rates over time, for pictures.
    pub(super) series: Option<Box<Series>>,
    /// How late its I/Os were, in a replay.
    pub(super) lateness: Option<Box<Lateness>>,
    /// The part of its work that it has left, if no emulated zone accepted its next I/O.
    pub(super) unfinished: Option<Unfinished>,
    /// Its run time, ns.
    pub(super) elapsed_ns: u64,
}

impl Outcome {
    /// Returns a copy without the logs and the rates over time, which may be large.
    pub(super) fn without_logs(&self) -> Self {
        let (report, disks) = (self.report.clone(), self.disks.clone());
        let lateness = self.lateness.clone();
        Self { report, disks, logs: None, series: None, lateness, ..*self }
    }
}

/// A disk after all its jobs have ended.
#[derive(Debug)]
pub(super) struct DiskOutcome {
    /// Its properties.
    pub(super) info: DiskInfo,
    /// Its counters.
    pub(super) stats: DiskStats,
}
