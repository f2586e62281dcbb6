//! Jobs: the options as they were given, and the complete job that follows from them.
//!
//! [`Given`] holds the options of a job, each present or not. [`Job`] is complete: it has fio's
//! defaults, and values that depend on each other are adjusted as fio does. [`RunOptions`] apply to
//! the whole run.

mod checks;
pub(crate) mod control;
mod engine;
mod files;
mod format;
mod given;
mod list;
mod load;
mod on_error;
mod region;
mod replay;
mod run_options;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use crate::data::{Contents, Member};
use crate::errors::UsageError;
use crate::generator::sizes::SizeRule;
use crate::generator::varied::Variety;
use crate::generator::zoned::Zoned;
use crate::generator::{Direction, Mix, Pattern, Region, Workload};
use crate::iolog::Recording;
use crate::latency_target::TargetOptions;
use crate::logs::LogOptions;
use crate::measures::Measures;
use crate::pace::Pace;
use crate::priority::Priorities;
use crate::units::Size;
use crate::verify::Format;

pub use self::checks::{Checks, Method};
pub use self::control::{Control, ExitWhat, MemoryPolicy, Placement};
pub use self::engine::{Engine, Remote};
pub use self::files::{Extent, Fallocate, FileOptions, split_names};
pub use self::format::{OutputFormat, TerseVersion};
pub use self::given::Given;
pub use self::list::JobList;
pub use self::load::Load;
pub use self::on_error::OnError;
pub use self::region::RegionError;
pub use self::replay::ReplayOptions;
pub use self::run_options::{Eta, RunOptions};
pub(crate) use self::zones::warn_of_empty_zones;
pub use self::zones::{ZoneMode, ZoneOptions, ZoneSkip};

/// A complete job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// `name`.
    pub name: String,
    /// `rw`: access pattern.
    pub rw: Pattern,
    /// `rwmixread`: percentage of reads in a mixed pattern.
    pub rwmixread: u8,
    /// `bs`: bytes of the smallest I/O.
    pub bs: u32,
    /// `bs`, `bsrange`, `bssplit`: bytes per I/O, by direction.
    pub sizes: [SizeRule; 3],
    /// Properties of the stream of I/Os beyond blocks of one size; `None` if there are none.
    pub variety: Option<Box<Variety>>,
    /// Whether the device determines the size of zones: `zonemode=zbd` without `zonesize`.
    pub zone_size_is_from_device: bool,
    /// `loops`: number of passes.
    pub loops: u32,
    /// `rate`, `thinktime` and similar options: when I/Os start.
    pub pace: Pace,
    /// `prio`, `prioclass` and `cmdprio_*`: the priorities of I/Os.
    pub priorities: Priorities,
    /// `exitall`, `wait_for`, `flow`, `rate_min` and similar options: other jobs.
    pub control: Box<Control>,
    /// `cpus_allowed`, `numa_cpu_nodes`, `nice` and similar options.
    pub placement: Box<Placement>,
    /// `uri`, `pool`, `rbdname`, `clientname`: the disk of the engines nbd and rbd.
    pub remote: Box<Remote>,
    /// `ramp_time`: time before the measurement.
    pub ramp_time: Duration,
    /// `startdelay`: how long after the other jobs it starts.
    pub start_delay: Duration,
    /// Options of measurement and report.
    pub measures: Measures,
    /// `size`: length of the region; `None`: the whole device.
    pub size: Option<Size>,
    /// `io_size`: bytes to transfer; `None`: one pass over the region.
    pub io_size: Option<Size>,
    /// `offset`: start of the region.
    pub offset: Size,
    /// `iodepth`: I/Os to keep in flight; 1 for blocking calls.
    pub iodepth: u32,
    /// `iodepth_batch`: I/Os to submit at a time, 1 to `iodepth`.
    pub iodepth_batch: u32,
    /// `iodepth_batch_complete_min`: I/Os to wait for when the queue is full, 0 to `iodepth`.
    pub iodepth_batch_complete_min: u32,
    /// `iodepth_batch_complete_max`: most I/Os to reap at a time, between the minimum and
    /// `iodepth`.
    pub iodepth_batch_complete_max: u32,
    /// `serialize_overlap`: whether an I/O waits for those in flight that overlap it.
    pub serialize_overlap: bool,
    /// `max_latency`: the longest total latency by direction, ns; 0 for none.
    pub max_latency_ns: [u64; 3],
    /// `iodepth_low`: depth to which a full queue is drained, 1 to `iodepth`.
    pub iodepth_low: u32,
    /// `numjobs`: number of clones.
    pub numjobs: u32,
    /// `runtime`: limit on the time of the job.
    pub runtime: Option<Duration>,
    /// `time_based`: whether the job repeats its workload until then.
    pub time_based: bool,
    /// `direct`: whether to bypass the page cache; `None` if not given.
    pub direct: Option<bool>,
    /// `filename`: the device.
    pub filename: Option<String>,
    /// `directory`, `nrfiles`, `filesize` and similar options: the files.
    pub files: Box<FileOptions>,
    /// `ioengine`.
    pub ioengine: Option<Engine>,
    /// `fixedbufs`: whether to register the buffers; `None`: if another job of the disk does.
    pub fixedbufs: Option<bool>,
    /// `sqthread_poll`: whether a kernel thread polls for submissions; `None`: as in the disk's
    /// spec.
    pub sqthread_poll: Option<bool>,
    /// `invalidate`: whether to drop the file's page cache before the start.
    pub invalidate: bool,
    /// `allow_mounted_write`: whether a mounted block device may be written to.
    pub allow_mounted_write: bool,
    /// `fsync`: writes between two calls of fsync; 0 for none.
    pub fsync: u32,
    /// `fdatasync`: writes between two calls of fdatasync; 0 for none.
    pub fdatasync: u32,
    /// `end_fsync`, `fsync_on_close`: whether each pass ends with an fsync. A job has one file.
    pub end_fsync: bool,
    /// `randseed`.
    pub randseed: u64,
    /// `norandommap`: whether random blocks are drawn independently of each other.
    pub norandommap: bool,
    /// `randrepeat`: whether the seed alone determines the offsets. If not, the caller adds random
    /// bits to it.
    pub randrepeat: bool,
    /// `verify`: whether blocks are verified.
    pub verify: bool,
    /// Options of logs.
    pub logs: LogOptions,
    /// `read_iolog`, `write_iolog` and `replay_*`.
    pub replay: Box<ReplayOptions>,
    /// The log to replay, once the caller has read it ([`Job::replay_log`]).
    pub recording: Option<Arc<Recording>>,
    /// How to verify, and what data to write.
    pub checks: Checks,
    /// Options with their values as given, for [`arguments::of`](crate::arguments::of).
    pub texts: Vec<(&'static str, String)>,
    /// Warnings about options that have no effect in this job.
    pub warnings: Vec<String>,
    /// `do_verify`: whether to read written blocks back.
    pub do_verify: bool,
    /// `group_reporting`: whether the jobs of a group are reported as one.
    pub group_reporting: bool,
    /// `stonewall`: whether it waits for all earlier jobs.
    pub stonewall: bool,
    /// `new_group`: whether it starts a reporting group.
    pub new_group: bool,
    /// The number of its reporting group ([`number_groups`]).
    pub group: u32,
    /// The number of its stage. Stages run one after another ([`number_groups`]).
    pub stage: u32,
    /// Settings of the block layer: keys and values for the device spec.
    pub policies: Vec<(&'static str, String)>,
    /// The limits and the weight of each clone as an owner of I/O: options and values.
    pub owner: Vec<(&'static str, String)>,
    /// The options given for this job itself, for the report: name and text, in the order given.
    pub options: Vec<(&'static str, String)>,
}

impl Job {
    /// Returns the job of these options, with fio's defaults for the others.
    ///
    /// # Errors
    ///
    /// [`UsageError::Conflict`] if options contradict each other.
    pub fn new(
        name: String,
        mut given: Given,
        options: Vec<(&'static str, String)>,
    ) -> Result<Self, UsageError> {
        let (mut warnings, region_sizes) = given.check(&name)?;
        let iodepth = depth(given.ioengine, given.iodepth.unwrap_or(1), &mut warnings);
        // fio: 0 and everything above the depth mean the depth.
        let up_to_depth = |n: u32| if n == 0 { iodepth } else { n.min(iodepth) };
        let (min, max) = completion_batch(&given, iodepth);
        let rw = given.rw.unwrap_or(Pattern { random: false, mix: Mix::Only(Direction::Read) });
        let sizes = given.load.sizes(given.bs);
        let conflict = |why| UsageError::Conflict(format!("{name}: {why}"));
        let priorities = given.priority.resolve(&mut warnings).map_err(conflict)?;
        let job = Self {
            logs: given.logs.of_job(&name),
            name,
            rw,
            rwmixread: given.rwmixread.unwrap_or(50),
            bs: smallest(rw, &sizes),
            variety: given.load.variety(rw, &sizes, region_sizes.io_size).map(Box::new),
            zone_size_is_from_device: given.load.zones.zone_size_is_from_device(),
            serialize_overlap: given.load.serialize_overlap,
            max_latency_ns: given.load.max_latency_ns,
            sizes,
            loops: given.loops.unwrap_or(1),
            pace: given.pace,
            priorities,
            control: given.control,
            placement: given.placement,
            remote: given.remote,
            ramp_time: given.ramp_time.unwrap_or_default(),
            start_delay: given.start_delay.unwrap_or_default(),
            measures: given.measures,
            size: region_sizes.size,
            io_size: region_sizes.io_size,
            offset: region_sizes.offset,
            iodepth,
            iodepth_batch: up_to_depth(given.iodepth_batch.unwrap_or(1)),
            iodepth_batch_complete_min: min,
            iodepth_batch_complete_max: max,
            iodepth_low: up_to_depth(given.iodepth_low.unwrap_or(0)),
            numjobs: given.numjobs.unwrap_or(1),
            runtime: given.runtime.filter(|time| !time.is_zero()),
            time_based: given.time_based.unwrap_or(false),
            direct: given.direct,
            filename: given.filename,
            files: given.files,
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
            replay: given.replay,
            recording: None,
            checks: given.checks,
            warnings,
            texts: given.texts,
            do_verify: given.do_verify.unwrap_or(true),
            group_reporting: given.group_reporting.unwrap_or(false),
            stonewall: given.stonewall.unwrap_or(false),
            new_group: given.new_group.unwrap_or(false),
            group: 0,
            stage: 0,
            policies: given.policies,
            owner: given.owner,
            options,
        };
        job.check_conflicts().map(|()| job)
    }

    /// Returns whether its I/Os are blocking calls.
    pub fn is_blocking(&self) -> bool {
        self.ioengine.is_some_and(Engine::is_blocking)
    }

    /// Returns whether the clock must be read for each I/O.
    pub fn is_timed(&self) -> bool {
        self.measures.is_timed()
    }

    /// Returns the size rules of the directions that the pattern has.
    pub fn sizes_used(&self) -> impl Iterator<Item = &SizeRule> {
        self.rw.directions().map(|direction| &self.sizes[direction.index()])
    }

    /// Returns the size of the largest I/O, bytes.
    pub fn bs_max(&self) -> u32 {
        self.sizes_used().map(SizeRule::max).max().unwrap_or(self.bs)
    }

    /// Returns the size of the largest read or write, bytes; 0 for a job that only trims.
    pub fn buffer_bytes(&self) -> u32 {
        let moves = [Direction::Read, Direction::Write].into_iter().filter(|&it| self.rw.has(it));
        moves.map(|direction| self.sizes[direction.index()].max()).max().unwrap_or(0)
    }

    /// Returns the workload of clone number `clone` (counted over all jobs) on `region`. Unless
    /// `randrepeat` is set, `chance` is mixed into the seed.
    pub fn workload(&self, region: Region, clone: u64, chance: u64) -> Workload {
        let io_size = self.io_bytes(&[region]);
        Workload {
            pattern: self.rw,
            rwmixread: self.rwmixread,
            bs: self.bs,
            region,
            io_size,
            norandommap: self.norandommap,
            seed: self.seed(chance),
            stream: clone,
            variety: self.variety.clone(),
        }
    }

    /// Returns the bytes that a clone transfers on these parts; `None`: no limit.
    pub fn io_bytes(&self, regions: &[Region]) -> Option<u64> {
        let pass = self.pass_bytes(regions);
        match self.io_size {
            _ if self.time_based => None,
            Some(size) => Some(size.of(pass)),
            None => Some(pass),
        }
    }

    /// Returns the seed: `randseed`, with `chance` mixed in unless `randrepeat` is set.
    pub fn seed(&self, chance: u64) -> u64 {
        if self.randrepeat { self.randseed } else { self.randseed ^ chance }
    }

    /// Returns the format of verified blocks that have a header.
    pub fn format(&self) -> Format {
        let [reads, writes, _] = &self.sizes;
        let reads = self.rw.has(Direction::Read).then_some(reads);
        self.checks.format(reads, writes, self.is_unaligned())
    }

    /// Returns whether it has zones, which extend to the end of the file.
    fn has_zones(&self) -> bool {
        self.variety.as_ref().is_some_and(|variety| variety.zones.is_some())
    }

    /// Returns whether sizes of I/Os are any numbers of bytes.
    fn is_unaligned(&self) -> bool {
        self.variety.as_ref().is_some_and(|variety| variety.unaligned)
    }

    /// Returns whether `dedupe_percentage` or `buffer_compress_percentage` determines the data of
    /// each write.
    pub fn generates_data(&self) -> bool {
        !self.verify && self.checks.data.is_given()
    }

    /// Returns the data of clone number `stream` that later writes may repeat. `chance` differs
    /// between runs.
    pub fn member(&self, stream: u64, chance: u64) -> Member {
        /// fio's default of `dedupe_working_set_percentage`.
        const PERCENT: u8 = 5;
        let bytes = match self.size {
            Some(Size::Bytes(bytes)) => bytes,
            _ => 0,
        };
        let percent = self.checks.data.working_set.unwrap_or(PERCENT);
        let writes = self.sizes[Direction::Write.index()].min();
        let nr_parts = Size::Percent(percent).of(bytes) / u64::from(writes);
        Member { seed: self.randseed ^ chance, stream, nr_parts: nr_parts.max(1) }
    }

    /// Returns the data of the writes of the clone `own`, whose duplicates come from `set`.
    pub fn contents(&self, own: Member, set: Vec<Member>) -> Contents {
        let min_write = self.sizes[Direction::Write.index()].min();
        let pattern = self.checks.buffer_pattern.as_ref();
        Contents::new(&self.checks.data, pattern, min_write, own, set)
    }

    /// Returns whether buffers that are written again are scrambled.
    pub fn scrambles(&self) -> bool {
        let checks = &self.checks;
        let is_fixed = checks.zero_buffers || checks.buffer_pattern.is_some();
        let is_new = self.verify || checks.refill_buffers || checks.data.is_given();
        !checks.data.keeps_buffers() && !is_fixed && !is_new && self.rw.has(Direction::Write)
    }

    /// Checks that the header has a place in the smallest block.
    fn check_header_fits(&self) -> Result<(), UsageError> {
        let format = self.format();
        let (smallest, header) = (format.block_len(self.bs as usize), format.header_len());
        let (name, word) = (&self.name, format.checksum.word());
        if smallest <= header {
            return Err(UsageError::Conflict(format!(
                "{name}: --verify={word} needs blocks of more than {header} bytes, and the \
                 smallest has {smallest}; raise --bs or --verify_interval"
            )));
        }
        let at = format.header_at as usize;
        if at > 0 && !(header..=smallest - header).contains(&at) {
            return Err(UsageError::Conflict(format!(
                "{name}: --verify_offset={at} does not fit: --verify={word} needs {header} bytes \
                 before and after it, in blocks of {smallest} bytes"
            )));
        }
        Ok(())
    }

    /// Returns why the job cannot search for a depth, although it has a target.
    fn target_conflict(&self) -> Option<&'static str> {
        let TargetOptions { target, window, .. } = self.control.target;
        target?;
        if window.is_zero() {
            return Some("needs --latency_window, the time at each depth");
        }
        if !self.is_timed() || self.measures.disable_lat {
            return Some("needs the latencies; leave out --gtod_reduce and --disable_lat");
        }
        if self.checks.backlog > 0 {
            return Some("does not work with --verify_backlog; leave out one of them");
        }
        if self.replay.read.is_some() {
            return Some("does not work with --read_iolog, whose I/Os have times of their own");
        }
        None
    }

    /// Returns the rules of emulated zones with write pointers, if the job has any.
    pub fn zoned(&self) -> Option<Zoned> {
        self.variety.as_ref().and_then(|variety| variety.zoned)
    }

    /// Returns why the job cannot have zones with write pointers, although it asks for them.
    fn zoned_conflict(&self) -> Option<String> {
        let zoned = self.zoned()?;
        let option = if self.rw.has(Direction::Trim) {
            "trims: a trim would reset a zone and send no command"
        } else if self.verify {
            "--verify: a zone that is reset loses the data to verify"
        } else if self.replay.read.is_some() {
            "--read_iolog: the log decides where writes go"
        } else if self.control.on_error.fill_device {
            "--fill_device: full zones are reset, so the device is never full"
        } else if self.is_unaligned() {
            "--bs_unaligned: write pointers are multiples of the smallest block"
        } else {
            let smallest = self.sizes_used().map(SizeRule::min).max()?;
            return match (u64::from(self.bs_max()), u64::from(smallest)) {
                (largest, _) if largest > zoned.size => Some(format!(
                    "a block of {largest} bytes is larger than --zonesize={}; lower --bs",
                    zoned.size
                )),
                (_, smallest) if smallest > zoned.capacity => Some(format!(
                    "a block of {smallest} bytes is larger than --zonecapacity={}; lower --bs",
                    zoned.capacity
                )),
                _ => None,
            };
        };
        Some(format!("--zonemode=zbd does not work with {option}"))
    }

    fn check_conflicts(&self) -> Result<(), UsageError> {
        let conflict = |message: String| Err(UsageError::Conflict(message));
        if let Some(reason) = self.zoned_conflict() {
            return conflict(format!("{}: {reason}", self.name));
        }
        if let Some(option) = self.remote.unused(self.ioengine) {
            let Self { name, .. } = self;
            return conflict(format!("{name}: --{option} needs --ioengine=nbd or --ioengine=rbd"));
        }
        if let Some(reason) = self.replay.conflict(self) {
            return conflict(format!("{}: {reason}", self.name));
        }
        if self.control.has_impossible_rate(&self.pace) {
            let name = &self.name;
            return conflict(format!(
                "{name}: --rate_min is above --rate, or --rate_iops_min above \
                                     --rate_iops; lower the minimum"
            ));
        }
        let data = &self.checks.data;
        let has_size = matches!(self.size, Some(Size::Bytes(bytes)) if bytes > 0);
        if data.dedupe > 0 && data.has_working_set && !has_size {
            return conflict(format!(
                "{}: --dedupe_mode=working_set needs --size in bytes: the set is a part of it",
                self.name
            ));
        }
        if self.time_based && self.runtime.is_none() {
            return conflict(format!("{}: --time_based needs --runtime", self.name));
        }
        if self.control.on_error.fill_device && !self.rw.has(Direction::Write) {
            return conflict(format!("{}: --fill_device needs an --rw that writes", self.name));
        }
        if let Some(reason) = self.target_conflict() {
            return conflict(format!("{}: --latency_target {reason}", self.name));
        }
        if self.checks.method.has_header() {
            self.check_header_fits()?;
        }
        if self.checks.method == Method::Pattern && self.checks.pattern.is_none() {
            return conflict(format!("{}: --verify=pattern needs --verify_pattern", self.name));
        }
        if self.checks.only && !(self.verify && self.do_verify && self.rw.has(Direction::Write)) {
            return conflict(format!(
                "{}: --verify_only needs --verify, --do_verify=1 and an --rw that writes",
                self.name
            ));
        }
        if self.checks.only && self.time_based {
            return conflict(format!(
                "{}: --verify_only does not work with --time_based: which blocks an earlier run \
                 has written depends on its speed; leave out --time_based",
                self.name
            ));
        }
        if self.verify && self.rw.has(Direction::Trim) {
            return conflict(format!("{}: --verify does not work with trims", self.name));
        }
        Ok(())
    }
}

/// Returns the size of the smallest I/O of a pattern.
fn smallest(rw: Pattern, sizes: &[SizeRule; 3]) -> u32 {
    let sizes = rw.directions().map(|direction| sizes[direction.index()].min());
    sizes.min().unwrap_or(4096)
}

/// Returns the depth of a job: 1 if its engine makes blocking calls, with a warning.
fn depth(engine: Option<Engine>, iodepth: u32, warnings: &mut Vec<String>) -> u32 {
    let Some(engine) = engine.filter(|engine| engine.is_blocking() && iodepth > 1) else {
        return iodepth;
    };
    warnings.push(format!(
        "--iodepth={iodepth} has no effect: --ioengine={} makes blocking calls, one at a time",
        engine.word()
    ));
    1
}

/// Returns the bounds of `iodepth_batch_complete`, within the depth.
fn completion_batch(given: &Given, iodepth: u32) -> (u32, u32) {
    let min = given.iodepth_batch_complete_min.unwrap_or(1).min(iodepth);
    let max = given.iodepth_batch_complete_max.unwrap_or(min).min(iodepth);
    (min, max.max(min).max(1))
}

/// Numbers the groups and the stages of all jobs. As in fio, a `stonewall` starts a stage and a
/// group, a `new_group` only a group. The first job starts both in any case.
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
