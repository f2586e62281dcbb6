//! What a disk tells of itself: what it is and can do, and what it has counted.

use forebay_core::{Policy, QueueLimits, QueueStats};

/// What a disk is and can do. Fixed while it is open.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiskInfo {
    /// The spec that it was opened by.
    pub spec: String,
    /// The driver's name.
    pub driver: &'static str,
    /// The limits in force.
    pub limits: QueueLimits,
    /// The settings in force.
    pub policy: Policy,
    /// Whether the file or block device was opened for this disk alone.
    pub exclusive: bool,
    /// What programs decide by.
    pub facts: DiskFacts,
    /// What it can do beyond reading and writing, and what not, and why: in words, for people.
    pub features: Vec<Feature>,
    /// What whoever runs it should know, in one line: that it works, but not as is usual.
    pub notice: Option<String>,
}

/// What a disk is known to be, as its driver says it. Fixed while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskFacts {
    /// Whether what is written can be read. Where not, a read leaves its buffer as it is.
    pub keeps_data: bool,
    /// Whether a range that was discarded reads as zeroes, and a discard is how space is given
    /// back: what zeroes a range and may leave a hole does so by a discard, then.
    pub discards_to_zeroes: bool,
    /// Whether zeroing a range is known to cost less than writing as many zeroes: by the device's
    /// or the file system's own means. (NBD asks, so that a client can choose.)
    pub zeroes_fast: bool,
    /// Whether reading a range fills a cache that later reads of it find: the page cache, or that
    /// of a server.
    pub caches_reads: bool,
    /// Whether it talks to another process or machine over TCP: from when it is opened, and over
    /// more connections whenever a queue is made.
    pub uses_tcp: bool,
    /// How many bytes of the file or the export lie behind the last whole logical block: they are
    /// no part of the disk, and can be neither read nor written. The notice says what to do.
    pub out_of_reach_bytes: u64,
}

impl Default for DiskFacts {
    /// Those of a device that keeps what is written to it, and has nothing special.
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
    /// What is left of them under these limits.
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
    /// Whether turns are given the time: for latencies, or for the bound on how long flushes wait.
    pub(crate) fn is_timed(&self) -> bool {
        self.policy.iostats || self.limits.volatile_cache
    }
}

/// Something that a disk can do, or cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What.
    pub name: &'static str,
    /// How it is done, or why it is missing.
    pub state: FeatureState,
}

/// Whether a feature is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureState {
    /// There, in this way.
    Present(String),
    /// Missing, for this reason.
    Missing(String),
}

impl Feature {
    pub(crate) fn present(name: &'static str, how: impl Into<String>) -> Feature {
        Feature { name, state: FeatureState::Present(how.into()) }
    }

    /// There, in this way, or missing, for this reason.
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

/// What a disk has counted since it was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiskStats {
    /// The layer's counters.
    pub queue: QueueStats,
    /// How many system calls the driver has made.
    pub nr_syscalls: u64,
    /// Runs that were asked for and not made, because another thread had the token: it finds a
    /// mark, and turns once more.
    pub skipped_runs: u64,
    /// How many times a thread slept until it was woken for tags (never under `wake=fair`, where
    /// bios wait).
    pub tag_sleeps: u64,
    /// What completions asked a worker for; nothing but under `run_queue=always`.
    pub run_queue: RunQueueStats,
}

/// Runs that completions have asked for, under `run_queue=always`. The worker makes those that were
/// queued and not queued again or cancelled before it came: `arms` are `rearms`, `cancels`,
/// `worker_runs`, and one more while one is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunQueueStats {
    /// How often a run was queued: once for each command that the driver completed.
    pub arms: u64,
    /// Of these, how often one was queued already, and was taken off the list and put on again.
    pub rearms: u64,
    /// Runs that were taken off the list because the disk was stopped or quiesced.
    pub cancels: u64,
    /// Runs that the worker took off the list; it makes or skips them, as others do theirs.
    pub worker_runs: u64,
}

impl DiskStats {
    /// Runs of hardware contexts that were asked for: those that were made, by taking the token,
    /// and those that were skipped.
    pub fn runs(&self) -> u64 {
        self.queue.runs_made + self.skipped_runs
    }
}
