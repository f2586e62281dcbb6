//! The options of a job as they were given.

use std::time::Duration;

use crate::errors::UsageError;
use crate::generator::Pattern;
use crate::job::{Checks, Control, Engine, FileOptions, Load, Placement, Remote, ReplayOptions};
use crate::logs::LogOptions;
use crate::measures::Measures;
use crate::pace::Pace;
use crate::priority::PriorityOptions;
use crate::units::{GivenSize, Size};

/// The options of a job; `None` is "not given". See [`Job`](crate::job::Job) for the meanings.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Given {
    pub rw: Option<Pattern>,
    pub rwmixread: Option<u8>,
    pub bs: Option<u32>,
    pub size: Option<GivenSize>,
    pub io_size: Option<GivenSize>,
    pub offset: Option<GivenSize>,
    pub offset_increment: Option<GivenSize>,
    pub iodepth: Option<u32>,
    pub iodepth_batch: Option<u32>,
    pub iodepth_batch_complete_min: Option<u32>,
    pub iodepth_batch_complete_max: Option<u32>,
    pub iodepth_low: Option<u32>,
    pub numjobs: Option<u32>,
    pub runtime: Option<Duration>,
    pub time_based: Option<bool>,
    pub direct: Option<bool>,
    pub filename: Option<String>,
    pub files: Box<FileOptions>,
    pub control: Box<Control>,
    pub placement: Box<Placement>,
    pub remote: Box<Remote>,
    pub ioengine: Option<Engine>,
    pub fixedbufs: Option<bool>,
    pub sqthread_poll: Option<bool>,
    pub invalidate: Option<bool>,
    pub allow_mounted_write: Option<bool>,
    pub fsync: Option<u32>,
    pub end_fsync: Option<bool>,
    pub fsync_on_close: Option<bool>,
    pub randseed: Option<u64>,
    pub norandommap: Option<bool>,
    pub randrepeat: Option<bool>,
    pub verify: Option<bool>,
    pub do_verify: Option<bool>,
    pub group_reporting: Option<bool>,
    pub loops: Option<u32>,
    pub fdatasync: Option<u32>,
    pub ramp_time: Option<Duration>,
    pub start_delay: Option<Duration>,
    pub load: Load,
    pub pace: Pace,
    pub priority: PriorityOptions,
    pub measures: Measures,
    pub checks: Checks,
    pub logs: LogOptions,
    pub replay: Box<ReplayOptions>,
    /// Options with their values as given, for [`arguments::of`](crate::arguments::of).
    pub texts: Vec<(&'static str, String)>,
    /// Warnings about options that have no effect.
    pub warnings: Vec<String>,
    pub stonewall: Option<bool>,
    pub new_group: Option<bool>,
    /// Settings of the block layer, passed on unchanged.
    pub policies: Vec<(&'static str, String)>,
    /// Limits and the weight of the job as an owner of I/O, passed on unchanged.
    pub owner: Vec<(&'static str, String)>,
}

/// The sizes of a job, with zones as bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionSizes {
    pub(super) size: Option<Size>,
    pub(super) io_size: Option<Size>,
    pub(super) offset: Size,
}

impl Given {
    /// Converts numbers of zones to bytes. Stores `offset_increment` in `files` and returns the
    /// other sizes.
    fn region_sizes(&mut self, name: &str) -> Result<RegionSizes, UsageError> {
        let zones = &self.load.zones;
        let bytes = |option: &str, given: Option<GivenSize>| match given {
            None => Ok(None),
            Some(GivenSize::Size(size)) => Ok(Some(size)),
            Some(GivenSize::Zones(nr)) => match zones.bytes_of(nr) {
                Some(bytes) => Ok(Some(Size::Bytes(bytes))),
                None => Err(UsageError::Conflict(format!(
                    "{name}: --{option}={nr}z is a number of zones, which needs --zonemode and \
                     --zonesize; add them, or give a number of bytes"
                ))),
            },
        };
        let is_given = |size: &Size| *size != Size::Bytes(0);
        let increment = bytes("offset_increment", self.offset_increment)?;
        self.files.offset_increment = increment.filter(is_given);
        Ok(RegionSizes {
            size: bytes("size", self.size)?,
            // In fio, 0 means that it is not given.
            io_size: bytes("io_size", self.io_size)?.filter(is_given),
            offset: bytes("offset", self.offset)?.unwrap_or(Size::Bytes(0)),
        })
    }

    /// Checks options of which a job keeps only the consequences. Returns all warnings, and the
    /// sizes.
    pub(super) fn check(&mut self, name: &str) -> Result<(Vec<String>, RegionSizes), UsageError> {
        match self.load.zones.conflict() {
            Some(why) => Err(UsageError::Conflict(format!("{name}: {why}"))),
            None => Ok((self.warnings(), self.region_sizes(name)?)),
        }
    }

    /// Returns the warnings about options that have no effect, or not that of fio.
    fn warnings(&mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.extend(self.replay_warnings());
        warnings.extend(self.logs.warnings());
        warnings.extend(self.files.warnings(self.filename.as_deref()));
        warnings.extend(self.ioengine.and_then(Engine::note));
        warnings.extend(self.load.zones.warnings());
        warnings.extend(self.checks.data.warnings(self.verify == Some(true)));
        let control = &self.control;
        let without_flow =
            [("flow_id", control.flow_id != 0), ("flow_sleep", !control.flow_sleep.is_zero())];
        for (name, _) in without_flow.into_iter().filter(|&(_, on)| on && control.flow == 0) {
            warnings.push(format!("--{name} has no effect without --flow"));
        }
        if let Some(name) = control.steady.without_effect() {
            warnings.push(format!("--{name} has no effect without --steadystate_duration"));
        }
        if let Some(name) = control.target.without_effect() {
            warnings.push(format!("--{name} has no effect without --latency_target"));
        }
        if control.offload && self.ioengine.is_some_and(Engine::is_blocking) {
            warnings.push(
                "--io_submit_mode=offload has no effect: the engine makes blocking calls, one at \
                 a time"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Returns warnings about options that have no effect beside a log.
    fn replay_warnings(&self) -> Vec<String> {
        if self.replay.read.is_none() {
            return Vec::new();
        }
        let load = &self.load;
        let has_bs = self.bs.is_some() || load.bs.is_some();
        let void = [
            ("rw", self.rw.is_some()),
            ("bs", has_bs || load.bsrange.is_some() || load.bssplit.is_some()),
            ("size", self.size.is_some()),
            ("offset", self.offset.is_some()),
        ];
        let void = void.into_iter().filter(|&(_, is_given)| is_given);
        void.map(|(name, _)| format!("--{name} has no effect: --read_iolog determines it"))
            .collect()
    }
}
