//! What a queue counts.

use crate::bio::Op;
use crate::histogram::Histogram;
use crate::merge::MergeKind;
use crate::plug::UnplugCause;

/// Counters of one operation. All but `bios` are those of a disk in `/proc/diskstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpStats {
    /// Bios that have ended.
    pub bios: u64,
    /// Bios that joined a request of others.
    pub merges: u64,
    /// Requests that have completed; each joins one bio or more, or is a part of one.
    pub requests: u64,
    /// Bytes of the requests that have completed.
    pub bytes: u64,
    /// The sum of the times from tag to completion, ns; 0 under `iostats=off`.
    pub ticks_ns: u64,
}

/// Where the time of a bio goes, ns.
#[derive(Clone, Debug, Default)]
pub struct StageStats {
    /// From queue to unplug, per bio.
    pub plug: Histogram,
    /// From unplug to tag, per request.
    pub tag: Histogram,
    /// From tag to its first issue, per request: the time that a busy driver makes it wait.
    pub queue: Histogram,
    /// From issue to completion, per command at the driver.
    pub driver: Histogram,
}

/// All counters of a queue.
#[derive(Clone, Debug, Default)]
pub struct QueueStats {
    ops: [OpStats; 5],
    merges: [u64; 3],
    unplugs: [u64; 5],
    /// Parts cut off bios that were larger than a request may be.
    pub splits: u64,
    /// Commands handed to the driver: more than requests where a request has several steps.
    pub issued: u64,
    /// Requests that the driver was too busy for, and that waited on the dispatch list.
    pub requeues: u64,
    /// Merged requests that failed and were tried again bio by bio.
    pub retries: u64,
    /// Batches that the driver was told to commit.
    pub commits: u64,
    /// The time during which at least one request was at the driver, ns; 0 under `iostats=off`.
    pub busy_ns: u64,
    /// Where the time went; empty under `iostats=off`.
    pub stages: StageStats,
}

impl QueueStats {
    /// The counters of one operation.
    pub fn op(&self, op: Op) -> &OpStats {
        &self.ops[op as usize]
    }

    /// How many bios joined a request in this way.
    pub fn merges(&self, kind: MergeKind) -> u64 {
        self.merges[kind as usize]
    }

    /// How many times requests of this disk were unplugged for this reason.
    pub fn unplugs(&self, cause: UnplugCause) -> u64 {
        self.unplugs[cause as usize]
    }

    pub(crate) fn op_mut(&mut self, op: Op) -> &mut OpStats {
        &mut self.ops[op as usize]
    }

    pub(crate) fn count_merge(&mut self, op: Op, kind: MergeKind) {
        self.ops[op as usize].merges += 1;
        self.merges[kind as usize] += 1;
    }

    pub(crate) fn count_unplug(&mut self, cause: UnplugCause) {
        self.unplugs[cause as usize] += 1;
    }
}
