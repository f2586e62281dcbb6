//! Information about a disk: its properties and features, and its counters.

use crate::scheduler_below::SchedulerBelow;
use forebay_core::{Policy, QueueLimits, QueueStats, SchedulerPolicy};

/// The properties of a disk. They do not change while it is open.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiskInfo {
    /// The spec that the disk was opened with.
    pub spec: String,
    /// The name of the driver.
    pub driver: &'static str,
    /// The effective limits.
    pub limits: QueueLimits,
    /// The effective settings.
    pub policy: Policy,
    /// Whether the file or block device was opened for this disk exclusively.
    pub exclusive: bool,
    /// The byte locks on the file or block device. `None` without such locks, and for other disks.
    pub lock: Option<ImageLock>,
    /// The longest wait for I/O of a predecessor that was killed, milliseconds. `None` if the disk
    /// does not wait for one.
    pub takeover_wait_ms: Option<u64>,
    /// Whether the disk has had a thread of its own since it was opened.
    pub service: bool,
    /// The name of the tag set that the disk shares with others.
    pub tag_set: Option<String>,
    /// Properties that programs may depend on.
    pub facts: DiskFacts,
    /// Features beyond reading and writing, with the reason for each that is missing. The text is
    /// for people.
    pub features: Vec<Feature>,
    /// A one-line message for the operator: the disk works, but not in the usual way.
    pub notice: Option<String>,
    /// The settings that later changes of the scheduler start from.
    pub(crate) opened_with: OpenedWith,
}

/// Settings of an open disk as they were before their defaults were filled in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenedWith {
    /// The user's `nr_requests`.
    pub(crate) nr_requests: Option<u32>,
    /// The default scheduler of the device.
    pub(crate) scheduler: SchedulerPolicy,
    pub(crate) below: SchedulerBelow,
}

/// The byte locks of a disk on its file or block device: the key `lock` of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageLock {
    /// Other programs may read the file, but not write to it.
    On,
    /// Other programs may write too.
    Shared,
    /// No locks.
    Off,
}

impl ImageLock {
    /// All values of the key.
    pub const ALL: [ImageLock; 3] = [ImageLock::On, ImageLock::Shared, ImageLock::Off];

    /// Returns the name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            ImageLock::On => "on",
            ImageLock::Shared => "shared",
            ImageLock::Off => "off",
        }
    }
}

/// Known properties of a disk, as reported by its driver. They do not change while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskFacts {
    /// Whether written data can be read back. If not, a read leaves its buffer unchanged.
    pub keeps_data: bool,
    /// Whether a discarded range reads as zeroes and gives its space back. If so, zeroing that may
    /// leave a hole is done by a discard.
    pub discards_to_zeroes: bool,
    /// Whether zeroing a range is known to be cheaper than writing zeroes, by means of the device
    /// or the file system. NBD reports this to clients.
    pub zeroes_fast: bool,
    /// Whether a read fills a cache that later reads of the range use: the page cache, or that of a
    /// server.
    pub caches_reads: bool,
    /// Whether the disk uses TCP connections: at open, and again whenever a queue is created.
    pub uses_tcp: bool,
    /// The number of bytes of the file or export after the last whole logical block. They are not
    /// part of the disk and cannot be read or written. The notice says what to do.
    pub out_of_reach_bytes: u64,
}

impl Default for DiskFacts {
    /// Returns the facts of a device that keeps its data and has nothing special.
    fn default() -> DiskFacts {
        DiskFacts {
            keeps_data: true,
            discards_to_zeroes: false,
            zeroes_fast: false,
            caches_reads: false,
            uses_tcp: false,
            out_of_reach_bytes: 0,
        }
    }
}

impl DiskFacts {
    /// Returns the facts that remain under these limits.
    pub(crate) fn within(self, limits: &QueueLimits) -> DiskFacts {
        let writes = !limits.read_only;
        DiskFacts {
            discards_to_zeroes: self.discards_to_zeroes && writes && limits.max_discard_sectors > 0,
            zeroes_fast: self.zeroes_fast && writes && limits.max_write_zeroes_sectors > 0,
            ..self
        }
    }
}

impl DiskInfo {
    /// Returns whether turns receive the time with this scheduler, for latencies or for deadlines.
    pub(crate) fn is_timed(&self, scheduler: SchedulerPolicy) -> bool {
        let needs_none = scheduler.is_none() && !self.limits.volatile_cache;
        !needs_none || self.policy.iostats || self.policy.io_timeout_ns > 0
    }

    /// Returns why the disk is gone if a request was given up, as a text for people.
    pub(crate) fn no_answer(&self) -> String {
        let Policy { io_timeout_ns, io_timeout_grace_ns, .. } = self.policy;
        let limit_ms = (io_timeout_ns + io_timeout_grace_ns) / 1_000_000;
        format!("a request has not completed within {limit_ms} ms")
    }
}

/// A feature that a disk has or lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Feature {
    /// The name of the feature.
    pub name: &'static str,
    /// A description of the feature, or the reason why it is missing.
    pub state: FeatureState,
}

/// Whether a feature is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureState {
    /// Present, and how it works.
    Present(String),
    /// Missing, and why.
    Missing(String),
}

impl Feature {
    pub(crate) fn present(name: &'static str, how: impl Into<String>) -> Feature {
        Feature { name, state: FeatureState::Present(how.into()) }
    }

    /// Returns a present feature with its description, or a missing one with the reason.
    pub(crate) fn either(
        name: &'static str,
        is_there: bool,
        how: impl Into<String>,
        why: impl Into<String>,
    ) -> Feature {
        match is_there {
            true => Feature::present(name, how),
            false => Feature::missing(name, why),
        }
    }

    pub(crate) fn missing(name: &'static str, why: impl Into<String>) -> Feature {
        Feature { name, state: FeatureState::Missing(why.into()) }
    }
}

/// The counters of a disk since it was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiskStats {
    /// The layer's counters.
    pub queue: QueueStats,
    /// System calls made by the driver.
    pub nr_syscalls: u64,
    /// Runs that were requested and not made, because another thread held the token. That thread
    /// finds a mark and turns again.
    pub skipped_runs: u64,
    /// Waits for tags of a shared set (`tag_set=`) that ended without a wake-up, by the retry
    /// every 3 ms or by a turn made for another reason. A value above 0 is a bug.
    pub tag_rescues: u64,
    /// Requests at the driver, except those that were given up because of their time limit. It is
    /// no counter: it rises and falls.
    pub in_flight: u64,
}

impl DiskStats {
    /// Returns the number of requested runs: those made by taking the token, and those skipped.
    pub fn runs(&self) -> u64 {
        self.queue.runs_made + self.skipped_runs
    }
}
