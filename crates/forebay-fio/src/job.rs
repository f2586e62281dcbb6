//! A job: what was given, and what follows from it.
//!
//! [`Given`] holds what the user said, option by option, each present or not. [`Job`] is the whole:
//! with fio's defaults filled in, and the values that depend on each other brought into line as fio
//! does it. [`RunOptions`] concern no job, but the whole run.

mod checks;
mod engine;
mod format;
mod given;
mod load;
mod measures;
mod region;
mod run_options;

use std::time::Duration;

use crate::generator::sizes::SizeRule;
use crate::generator::varied::Variety;
use crate::generator::{Direction, Mix, Pattern, Region, Workload};
use crate::logs::LogOptions;
use crate::options::UsageError;
use crate::pace::Pace;
use crate::units::Size;
use crate::verify;

pub use self::checks::{Checks, Method};
pub use self::engine::Engine;
pub use self::format::OutputFormat;
pub use self::given::Given;
pub use self::load::Load;
pub use self::measures::{Measures, Unified};
pub use self::region::RegionError;
pub use self::run_options::{Eta, RunOptions};

/// A job, complete.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// `name`.
    pub name: String,
    /// `rw`: order and directions.
    pub rw: Pattern,
    /// `rwmixread`: percentage of reads in a mixed pattern.
    pub rwmixread: u8,
    /// `bs`: bytes of the smallest I/O.
    pub bs: u32,
    /// `bs`, `bsrange`, `bssplit`: bytes per I/O, by direction.
    pub sizes: [SizeRule; 3],
    /// What is asked of the stream of I/Os beyond blocks of one size.
    pub variety: Option<Box<Variety>>,
    /// `loops`: how often all of it is done.
    pub loops: u32,
    /// `rate`, `thinktime` and their like: when I/Os begin.
    pub pace: Pace,
    /// `ramp_time`: how long nothing counts yet.
    pub ramp_time: Duration,
    /// `startdelay`: how long after the others it begins.
    pub start_delay: Duration,
    /// What is measured and shown.
    pub measures: Measures,
    /// `size`: length of the region; everything there is, if not given.
    pub size: Option<Size>,
    /// `io_size`: bytes to transfer; one pass over the region, if not given.
    pub io_size: Option<Size>,
    /// `offset`: where the region begins.
    pub offset: Size,
    /// `iodepth`: I/Os kept in flight; 1 if they are blocking calls.
    pub iodepth: u32,
    /// `iodepth_batch`: I/Os submitted at a time, 1 to `iodepth`.
    pub iodepth_batch: u32,
    /// `iodepth_batch_complete_min`: I/Os waited for when the queue is full, 0 to `iodepth`.
    pub iodepth_batch_complete_min: u32,
    /// `iodepth_batch_complete_max`: I/Os reaped at a time at most, between the minimum and
    /// `iodepth`.
    pub iodepth_batch_complete_max: u32,
    /// `iodepth_low`: how far a full queue is drained, 1 to `iodepth`.
    pub iodepth_low: u32,
    /// `numjobs`: clones of this job.
    pub numjobs: u32,
    /// `runtime`: when the job ends at the latest.
    pub runtime: Option<Duration>,
    /// `time_based`: whether the job goes on until then.
    pub time_based: bool,
    /// `direct`: whether the page cache is bypassed, if that was said.
    pub direct: Option<bool>,
    /// `filename`: the device.
    pub filename: Option<String>,
    /// `ioengine`.
    pub ioengine: Option<Engine>,
    /// `fixedbufs`: whether buffers are registered with the disk; None: where another job of the
    /// disk asks for it.
    pub fixedbufs: Option<bool>,
    /// `sqthread_poll`: whether a thread of the kernel takes what is submitted; None: as the disk's
    /// spec says.
    pub sqthread_poll: Option<bool>,
    /// `invalidate`: whether the file's page cache is dropped before the start.
    pub invalidate: bool,
    /// `allow_mounted_write`: whether a mounted block device may be written to.
    pub allow_mounted_write: bool,
    /// `fsync`: writes between two that are as strong as `fsync`; 0 for none.
    pub fsync: u32,
    /// `fdatasync`: the same of plain flushes, counted by itself.
    pub fdatasync: u32,
    /// `end_fsync`, `fsync_on_close`: whether an fsync ends each pass. A job has one file.
    pub end_fsync: bool,
    /// `randseed`.
    pub randseed: u64,
    /// `norandommap`: whether random blocks are drawn independently.
    pub norandommap: bool,
    /// `randrepeat`: whether the seed alone decides; otherwise the caller adds chance to it.
    pub randrepeat: bool,
    /// `verify`: whether blocks are checked.
    pub verify: bool,
    /// What is logged.
    pub logs: LogOptions,
    /// How, and what data is written.
    pub checks: Checks,
    /// Options that are kept as they were given, so that the job can be written down again.
    pub texts: Vec<(&'static str, String)>,
    /// What was accepted and does nothing, to be told.
    pub warnings: Vec<String>,
    /// `do_verify`: whether written blocks are read back.
    pub do_verify: bool,
    /// `group_reporting`: whether the clones are reported as one.
    pub group_reporting: bool,
    /// `stonewall`: whether it waits for all jobs before it.
    pub stonewall: bool,
    /// `new_group`: whether it begins a group.
    pub new_group: bool,
    /// The number of its group: jobs with one number are reported together ([`number_groups`]).
    pub group: u32,
    /// The number of its stage: stages run one after another ([`number_groups`]).
    pub stage: u32,
    /// The layer's own options, as given: key and value for the device's spec.
    pub policies: Vec<(&'static str, String)>,
    /// What was said for this job itself, for the report: option and text, in the order given.
    pub options: Vec<(&'static str, String)>,
}

impl Job {
    /// Completes what was given to a job, with fio's defaults.
    ///
    /// # Errors
    ///
    /// [`UsageError::Conflict`] if options contradict each other.
    pub fn new(
        name: String,
        given: Given,
        options: Vec<(&'static str, String)>,
    ) -> Result<Self, UsageError> {
        let iodepth = match given.ioengine {
            Some(engine) if engine.is_blocking() => 1,
            _ => given.iodepth.unwrap_or(1),
        };
        // fio: 0 and everything above the depth mean the depth.
        let up_to_depth = |n: u32| if n == 0 { iodepth } else { n.min(iodepth) };
        let min = given.iodepth_batch_complete_min.unwrap_or(1).min(iodepth);
        let max = given.iodepth_batch_complete_max.unwrap_or(min).min(iodepth);
        let rw = given.rw.unwrap_or(Pattern { random: false, mix: Mix::Only(Direction::Read) });
        let sizes = given.load.sizes(given.bs);
        let used = || Direction::ALL.into_iter().filter(|&direction| rw.has(direction));
        let smallest = used().map(|direction| sizes[direction.index()].min()).min();
        let job = Self {
            name,
            rw,
            rwmixread: given.rwmixread.unwrap_or(50),
            bs: smallest.unwrap_or(4096),
            variety: given.load.variety(rw, &sizes).map(Box::new),
            sizes,
            loops: given.loops.unwrap_or(1),
            pace: given.pace,
            ramp_time: given.ramp_time.unwrap_or_default(),
            start_delay: given.start_delay.unwrap_or_default(),
            measures: given.measures,
            size: given.size,
            io_size: given.io_size.filter(|&size| size != Size::Bytes(0)),
            offset: given.offset.unwrap_or(Size::Bytes(0)),
            iodepth,
            iodepth_batch: up_to_depth(given.iodepth_batch.unwrap_or(1)),
            iodepth_batch_complete_min: min,
            iodepth_batch_complete_max: max.max(min).max(1),
            iodepth_low: up_to_depth(given.iodepth_low.unwrap_or(0)),
            numjobs: given.numjobs.unwrap_or(1),
            runtime: given.runtime.filter(|time| !time.is_zero()),
            time_based: given.time_based.unwrap_or(false),
            direct: given.direct,
            filename: given.filename,
            ioengine: given.ioengine,
            fixedbufs: given.fixedbufs,
            sqthread_poll: given.sqthread_poll,
            invalidate: given.invalidate.unwrap_or(true),
            allow_mounted_write: given.allow_mounted_write.unwrap_or(false),
            fsync: given.fsync.unwrap_or(0),
            fdatasync: given.fdatasync.unwrap_or(0),
            end_fsync: given.end_fsync == Some(true) || given.fsync_on_close == Some(true),
            randseed: given.randseed.unwrap_or(0x89),
            norandommap: given.norandommap.unwrap_or(false),
            randrepeat: given.randrepeat.unwrap_or(true),
            verify: given.verify.unwrap_or(false),
            checks: given.checks,
            logs: given.logs,
            warnings: given.warnings,
            texts: given.texts,
            do_verify: given.do_verify.unwrap_or(true),
            group_reporting: given.group_reporting.unwrap_or(false),
            stonewall: given.stonewall.unwrap_or(false),
            new_group: given.new_group.unwrap_or(false),
            group: 0,
            stage: 0,
            policies: given.policies,
            options,
        };
        job.check_conflicts()?;
        Ok(job)
    }

    /// Whether its I/Os are blocking calls.
    pub fn is_blocking(&self) -> bool {
        self.ioengine.is_some_and(Engine::is_blocking)
    }

    /// Whether a clock has to be read for each I/O.
    pub fn is_timed(&self) -> bool {
        self.measures.is_timed()
    }

    /// The rules for the sizes of the directions that occur.
    pub fn sizes_used(&self) -> impl Iterator<Item = &SizeRule> {
        let used = Direction::ALL.into_iter().filter(|&direction| self.rw.has(direction));
        used.map(|direction| &self.sizes[direction.index()])
    }

    /// Bytes of the largest I/O.
    pub fn bs_max(&self) -> u32 {
        self.sizes_used().map(SizeRule::max).max().unwrap_or(self.bs)
    }

    /// The file of clone `clone` if no filename was given: fio's `name.clone.0`.
    pub fn default_filename(&self, clone: u32) -> String {
        format!("{}.{clone}.0", self.name)
    }

    /// The load that clone number `clone` (counted over all jobs) puts on `region`. `chance` is
    /// mixed into the seed unless the job is repeatable.
    pub fn workload(&self, region: Region, clone: u64, chance: u64) -> Workload {
        let io_size = match self.io_size {
            _ if self.time_based => None,
            Some(size) => Some(size.of(region.len)),
            None => Some(region.len),
        };
        Workload {
            pattern: self.rw,
            rwmixread: self.rwmixread,
            bs: self.bs,
            region,
            io_size,
            norandommap: self.norandommap,
            seed: if self.randrepeat { self.randseed } else { self.randseed ^ chance },
            stream: clone,
            variety: self.variety.clone(),
        }
    }

    fn check_conflicts(&self) -> Result<(), UsageError> {
        let conflict = |message: String| Err(UsageError::Conflict(message));
        if self.time_based && self.runtime.is_none() {
            return conflict(format!("{}: --time_based needs a --runtime", self.name));
        }
        let has_header = self.verify && self.checks.method != Method::Pattern;
        if has_header && (self.bs as usize) < verify::HEADER_LEN {
            return conflict(format!(
                "{}: --verify with a checksum needs a --bs of at least {} bytes",
                self.name,
                verify::HEADER_LEN
            ));
        }
        if self.checks.method == Method::Pattern && self.checks.pattern.is_none() {
            return conflict(format!("{}: --verify=pattern needs a --verify_pattern", self.name));
        }
        if self.checks.only && !(self.verify && self.do_verify && self.rw.has(Direction::Write)) {
            return conflict(format!(
                "{}: --verify_only needs a --verify and an --rw that writes",
                self.name
            ));
        }
        if self.checks.only && self.time_based {
            return conflict(format!(
                "{}: --verify_only needs a job with an end of its own, since how far one of \
                 --time_based came is not known; leave that out",
                self.name
            ));
        }
        if self.verify && self.rw.has(Direction::Trim) {
            return conflict(format!("{}: --verify does not go with a trim pattern", self.name));
        }
        Ok(())
    }
}

/// Numbers the groups and the stages of all jobs. As in fio, a `stonewall` begins a stage and a
/// group, a `new_group` only a group; neither means anything to the first job.
pub fn number_groups(jobs: &mut [Job]) {
    let (mut group, mut stage) = (0, 0);
    for (at, job) in jobs.iter_mut().enumerate() {
        stage += u32::from(job.stonewall && at > 0);
        group += u32::from((job.stonewall || job.new_group) && at > 0);
        (job.group, job.stage) = (group, stage);
    }
}

#[cfg(test)]
mod tests;
