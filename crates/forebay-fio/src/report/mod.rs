//! Reports: the figures of a run as fio prints them, as text ([`normal`]), as JSON ([`json`]), and
//! as lines of fields ([`terse`]).
//!
//! All are made from one [`Report`], a plain value that the caller fills. The figures of the block
//! layer are data too: [`DiskUtil`] in place of the kernel's disk statistics, JSON objects under
//! the key `forebay`, and lines of text at the end.

pub mod date;
mod error_count;
pub mod eta;
pub mod header;
pub mod json;
pub mod normal;
pub mod number;
mod steady;
mod target;
pub mod terse;

use crate::generator::Direction;
use crate::latency_target::TargetOptions;
use crate::measures::{Measures, Unified};
use crate::stats::{DirectionStats, JobStats};
use crate::steadystate;

pub use self::error_count::{ErrorCount, JobError};

/// All figures of a run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The program and its version, such as `forebay-0.1.0`.
    pub version: String,
    /// The end of the run, milliseconds since 1970 (UTC).
    pub timestamp_ms: u64,
    /// The default options of all jobs.
    pub global_options: Vec<(String, String)>,
    /// The jobs, or their groups, in order.
    pub jobs: Vec<JobReport>,
    /// The devices.
    pub disk_util: Vec<DiskUtil>,
    /// The layer's own figures, one object per device.
    pub forebay: Vec<serde_json::Value>,
    /// The layer's figures as text: lines without a line feed.
    pub extra: Vec<String>,
}

/// The outcome of one job, or of clones that are reported as one.
#[derive(Debug, Clone, Default)]
pub struct JobReport {
    /// The job's name.
    pub name: String,
    /// The number of its group.
    pub group_id: u32,
    /// The number of clones in these figures.
    pub jobs: u32,
    /// The process ID.
    pub pid: u32,
    /// The error that ended it, if there was one.
    pub error: Option<JobError>,
    /// All its errors, if some do not end it.
    pub errors: Option<ErrorCount>,
    /// Seconds since the run began, rounded up.
    pub elapsed_s: u64,
    /// The job's own options.
    pub options: Vec<(String, String)>,
    /// Its `iodepth`, or the depth that a latency target led to.
    pub iodepth: u32,
    /// The figures to report.
    pub measures: Measures,
    /// Its figures.
    pub stats: JobStats,
    /// Zones that it has reset, with `zonemode=zbd`.
    pub nr_zone_resets: u64,
    /// Its latency target.
    pub target: TargetOptions,
    /// The samples for its steady state, if it has a detection.
    pub steady: Option<steadystate::Window>,
    /// The figures of all directions together, in addition to the single ones.
    pub mixed: Option<Box<DirectionStats>>,
}

impl JobReport {
    /// Combines the directions, if the job has `unified_rw_reporting`. To be called when all clones
    /// are merged.
    pub fn unify(&mut self) {
        let mixed = match self.measures.unified {
            Unified::No => return,
            Unified::Mixed | Unified::Both => self.stats.mixed(),
        };
        match self.measures.unified {
            Unified::Mixed => {
                self.stats.directions = Default::default();
                self.stats.directions[0] = mixed;
            }
            _ => self.mixed = Some(Box::new(mixed)),
        }
    }

    /// Returns the name of a direction in the report; `None` if it has no figures.
    fn word(&self, direction: Direction) -> Option<&'static str> {
        match (self.measures.unified, direction) {
            (Unified::Mixed, Direction::Read) => Some("mixed"),
            (Unified::Mixed, _) => None,
            _ => Some(direction.word()),
        }
    }

    /// Returns the error to show: the one that ended the job, or else the first one.
    fn shown_error(&self) -> Option<&JobError> {
        self.error.as_ref().or_else(|| self.errors.as_ref()?.first())
    }

    /// Adds the figures of a clone that ran at the same time.
    pub fn merge(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.elapsed_s = self.elapsed_s.max(other.elapsed_s);
        self.stats.merge(&other.stats);
        self.nr_zone_resets += other.nr_zone_resets;
        if self.error.is_none() {
            self.error = other.error;
        }
        match (&mut self.errors, other.errors) {
            (Some(errors), Some(more)) => errors.merge(more),
            (errors, more) => *errors = errors.take().or(more),
        }
    }
}

/// fio's disk statistics of a device, counted by the layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiskUtil {
    /// The device.
    pub name: String,
    /// Reads issued, after merging.
    pub read_ios: u64,
    /// Writes issued, after merging.
    pub write_ios: u64,
    /// Reads that were merged into another.
    pub read_merges: u64,
    /// Writes that were merged into another.
    pub write_merges: u64,
    /// Time spent reading, summed over requests, ms.
    pub read_ticks_ms: u64,
    /// Time spent writing, summed over requests, ms.
    pub write_ticks_ms: u64,
    /// Time requests spent in the queue, summed, ms.
    pub in_queue_ms: u64,
    /// Share of the time in which the device was busy, percent.
    pub util_percent: f64,
}

/// The jobs of one group, added up for one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GroupTotal {
    bytes: u64,
    min_rate: u64,
    max_rate: u64,
    min_runtime_ms: u64,
    max_runtime_ms: u64,
}

impl GroupTotal {
    /// Returns `None` if the group did no I/O in this direction.
    fn new(jobs: &[JobReport], group_id: u32, direction: Direction) -> Option<Self> {
        let group = jobs.iter().filter(|job| job.group_id == group_id);
        group
            .map(|job| &job.stats.directions[direction.index()])
            .filter(|stats| stats.runtime_ms > 0)
            .map(|stats| Self {
                bytes: stats.io_bytes,
                min_rate: stats.bytes_per_second(),
                max_rate: stats.bytes_per_second(),
                min_runtime_ms: stats.runtime_ms,
                max_runtime_ms: stats.runtime_ms,
            })
            .reduce(|a, b| Self {
                bytes: a.bytes + b.bytes,
                min_rate: a.min_rate.min(b.min_rate),
                max_rate: a.max_rate.max(b.max_rate),
                min_runtime_ms: a.min_runtime_ms.min(b.min_runtime_ms),
                max_runtime_ms: a.max_runtime_ms.max(b.max_runtime_ms),
            })
    }

    /// Returns all bytes divided by the longest runtime, bytes per second.
    fn rate(&self) -> u64 {
        (u128::from(self.bytes) * 1000 / u128::from(self.max_runtime_ms.max(1))) as u64
    }
}

/// Returns the share of a job's samples in the bandwidth of its group, at most 100 percent.
fn share_of_group(report: &Report, job: &JobReport, direction: Direction) -> f64 {
    let mean_kib = job.stats.directions[direction.index()].bw.mean();
    match GroupTotal::new(&report.jobs, job.group_id, direction) {
        Some(total) if total.rate() > 0 => {
            (mean_kib * 100.0 / (total.rate() as f64 / 1024.0)).min(100.0)
        }
        _ => 0.0,
    }
}

/// Returns user and system time as percentages of the job's runtime.
fn cpu_percents(stats: &JobStats) -> (f64, f64) {
    let percent = |us: u64| match stats.job_runtime_ms {
        0 => 0.0,
        ms => us as f64 / 10.0 / ms as f64,
    };
    (percent(stats.usage.user_us), percent(stats.usage.system_us))
}

#[cfg(test)]
mod tests;
