//! What comes of one clone of a job.

use forebay::{DiskInfo, DiskStats};
use forebay_fio::report::JobReport;

/// What came of one clone.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The place of its job in the list of jobs.
    pub(super) job: usize,
    /// Its number among the clones of that job.
    pub(super) clone: u32,
    /// Its figures.
    pub(super) report: JobReport,
    /// The layer's.
    pub(super) layer: Layer,
}

/// A disk as it was when its job ended.
#[derive(Debug)]
pub(super) struct Layer {
    /// What it is.
    pub(super) info: DiskInfo,
    /// What it has counted.
    pub(super) stats: DiskStats,
    /// How long the job ran, ns.
    pub(super) elapsed_ns: u64,
}
