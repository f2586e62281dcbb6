//! What comes of one clone of a job, and of a disk.

use forebay::{DiskInfo, DiskStats};
use forebay_fio::logs::Logs;
use forebay_fio::report::JobReport;
use forebay_fio::stats::moments::Moments;

/// What came of a run.
#[derive(Debug)]
pub(super) struct Outcomes {
    /// The clones, in order.
    pub(super) clones: Vec<Outcome>,
    /// The disks, by their numbers.
    pub(super) disks: Vec<DiskOutcome>,
}

/// What came of one clone.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The place of its job in the list of jobs.
    pub(super) job: usize,
    /// Its number among the clones of that job.
    pub(super) clone: u32,
    /// The number of its disk.
    pub(super) disk: usize,
    /// Its figures.
    pub(super) report: JobReport,
    /// How long those of its bios waited for a tag that had to, ns; not known of blocking calls.
    pub(super) tag_waits: Option<Moments>,
    /// What it has logged.
    pub(super) logs: Option<Box<Logs>>,
    /// How long it ran, ns.
    pub(super) elapsed_ns: u64,
}

impl Outcome {
    /// A copy without what was logged, which may be much.
    pub(super) fn without_logs(&self) -> Self {
        Self { report: self.report.clone(), logs: None, ..*self }
    }
}

/// A disk as it was when all its jobs had ended.
#[derive(Debug)]
pub(super) struct DiskOutcome {
    /// What it is.
    pub(super) info: DiskInfo,
    /// What it has counted.
    pub(super) stats: DiskStats,
}
