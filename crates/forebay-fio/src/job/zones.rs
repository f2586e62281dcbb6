//! The options of zones: `zonemode`, `zonesize` and others.
//!
//! Source: fio's HOWTO and fio 3.33. fio refuses a `zonesize` without a `zonemode`; here that is a
//! warning.

use crate::generator::strided::Strided;
use crate::generator::zoned::Zoned;
use crate::generator::{Direction, Mix};
use crate::job::Job;

/// The bytes between two zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneSkip {
    /// A number of bytes.
    Bytes(u64),
    /// A multiple of `zonesize`.
    Zones(u64),
}

/// `zonemode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ZoneMode {
    /// No zones.
    #[default]
    None,
    /// Zones with gaps between them.
    Strided,
    /// Zones with write pointers.
    Zbd,
}

/// The options; 0 is "not given".
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ZoneOptions {
    /// `zonemode`.
    pub mode: ZoneMode,
    /// `zonesize`.
    pub size: u64,
    /// `zonerange`.
    pub range: u64,
    /// `zoneskip`.
    pub skip: Option<ZoneSkip>,
    /// `zonecapacity`.
    pub capacity: u64,
    /// `max_open_zones`.
    pub max_open: u32,
    /// `job_max_open_zones`.
    pub job_max_open: u32,
    /// `zone_reset_frequency`.
    pub reset_frequency: f64,
    /// `zone_reset_threshold`.
    pub reset_threshold: f64,
    /// `read_beyond_wp`.
    pub read_beyond_wp: bool,
    /// `ignore_zone_limits`.
    pub ignores_limits: bool,
}

impl ZoneOptions {
    /// Returns the bytes of a number of zones; `None` if no option says how large a zone is.
    pub(super) fn bytes_of(&self, zones: u64) -> Option<u64> {
        let has_zones = self.mode != ZoneMode::None && self.size > 0;
        has_zones.then(|| zones.saturating_mul(self.size))
    }

    /// Returns the zones, if there are any.
    pub(super) fn strided(&self) -> Option<Strided> {
        let Self { size, range, .. } = *self;
        let skip = match self.skip {
            None => 0,
            Some(ZoneSkip::Bytes(bytes)) => bytes,
            Some(ZoneSkip::Zones(nr)) => nr.saturating_mul(size),
        };
        let range = if range == 0 { size } else { range };
        (self.mode == ZoneMode::Strided && size > 0).then_some(Strided { size, range, skip })
    }

    /// Returns whether the device determines the size of zones with write pointers.
    pub(super) fn zone_size_is_from_device(&self) -> bool {
        self.mode == ZoneMode::Zbd && self.size == 0
    }

    /// Returns the rules of zones with write pointers, if there are any. `has_io_bytes` is whether
    /// `io_size` is given in bytes or zones, not as a percentage.
    pub(super) fn zoned(&self, has_io_bytes: bool) -> Option<Zoned> {
        (self.mode == ZoneMode::Zbd && self.size > 0).then_some(Zoned {
            size: self.size,
            capacity: if self.capacity == 0 { self.size } else { self.capacity },
            max_open: self.max_open,
            job_max_open: self.job_max_open,
            reset_frequency: self.reset_frequency,
            reset_threshold: self.reset_threshold,
            read_beyond_wp: self.read_beyond_wp,
            has_io_bytes,
        })
    }

    /// Returns why the options contradict each other.
    pub(super) fn conflict(&self) -> Option<&'static str> {
        /// fio's limit.
        const SIZE_MIN: u64 = 512;
        match self.mode {
            ZoneMode::None => None,
            ZoneMode::Strided => (self.size == 0).then_some("--zonemode=strided needs --zonesize"),
            ZoneMode::Zbd if self.size > 0 && self.size < SIZE_MIN => {
                Some("--zonemode=zbd needs a --zonesize of at least 512 bytes")
            }
            ZoneMode::Zbd if self.size > 0 && self.capacity > self.size => {
                Some("--zonecapacity is larger than --zonesize; lower --zonecapacity")
            }
            ZoneMode::Zbd if self.job_max_open > 0 && self.max_open == 0 => {
                Some("--job_max_open_zones needs --max_open_zones")
            }
            ZoneMode::Zbd if self.skip.is_some() => {
                Some("--zoneskip is not supported with --zonemode=zbd; use --zonemode=strided")
            }
            ZoneMode::Zbd => None,
        }
    }

    /// Returns warnings about options that have no effect.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        use ZoneMode::{Strided, Zbd};
        let given: [(_, _, &[ZoneMode], _); 10] = [
            ("zonesize", self.size > 0, &[Strided, Zbd], "strided or zbd"),
            ("zonerange", self.range > 0, &[Strided], "strided"),
            ("zoneskip", self.skip.is_some(), &[Strided, Zbd], "strided"),
            ("zonecapacity", self.capacity > 0, &[Zbd], "zbd"),
            ("max_open_zones", self.max_open > 0, &[Zbd], "zbd"),
            ("job_max_open_zones", self.job_max_open > 0, &[Zbd], "zbd"),
            ("zone_reset_frequency", self.reset_frequency > 0.0, &[Zbd], "zbd"),
            ("zone_reset_threshold", self.reset_threshold > 0.0, &[Zbd], "zbd"),
            ("read_beyond_wp", self.read_beyond_wp, &[Zbd], "zbd"),
            ("ignore_zone_limits", self.ignores_limits, &[], ""),
        ];
        let mode = self.mode;
        let void = given
            .into_iter()
            .filter(move |(_, is_given, modes, _)| *is_given && !modes.contains(&mode));
        let text = |(name, _, modes, needed): (&str, _, &[ZoneMode], &str)| match modes {
            [] => format!("--{name} has no effect: emulated zones have no limits of a device"),
            _ => format!("--{name} has no effect without --zonemode={needed}"),
        };
        let is_idle = mode == Zbd && self.reset_threshold > 0.0 && self.reset_frequency == 0.0;
        let idle = is_idle
            .then(|| "--zone_reset_threshold has no effect without --zone_reset_frequency".into());
        void.map(text).chain(idle)
    }
}

/// Adds a warning to each job that only reads zones with write pointers, if no job writes to the
/// zones of its file before it ends. The stages must be numbered.
pub(crate) fn warn_of_empty_zones(jobs: &mut [Job]) {
    let are_empty: Vec<bool> = jobs.iter().map(|job| reads_empty_zones(job, jobs)).collect();
    for (job, _) in jobs.iter_mut().zip(are_empty).filter(|(_, are_empty)| *are_empty) {
        job.warnings.push(
            "emulated zones are empty until a job of this run writes to them, and reads stop at \
             the write pointers; use --read_beyond_wp=1 to read everything"
                .to_owned(),
        );
    }
}

fn reads_empty_zones(job: &Job, jobs: &[Job]) -> bool {
    let writes = |other: &Job| other.rw.has(Direction::Write) && other.zoned().is_some();
    job.rw.mix == Mix::Only(Direction::Read)
        && job.zoned().is_some_and(|rules| !rules.read_beyond_wp)
        && !jobs
            .iter()
            .any(|other| other.stage <= job.stage && writes(other) && has_same_file(job, other))
}

/// Returns whether two jobs name the same file or disk. Other names of the same file are not
/// recognized.
fn has_same_file(job: &Job, other: &Job) -> bool {
    let has_same_name = match (&job.filename, &other.filename) {
        (None, None) if job.remote != Box::default() => true,
        (None, None) => job.default_filenames(0) == other.default_filenames(0),
        (ours, theirs) => ours == theirs,
    };
    has_same_name && job.remote == other.remote && job.directory(0) == other.directory(0)
}
