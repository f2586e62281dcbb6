//! Counters of a disk, and the time that its bios spent in each stage.
//!
//! Counterpart in Linux: `/proc/diskstats` (`Documentation/admin-guide/iostats.rst`). Counters are
//! kept per software queue and per hardware context, with one writer each. A reader adds them up.

use crate::bio::Op;
use crate::counter::Counter;
use crate::histogram::{Histogram, SharedHistogram};
use crate::merge::MergeKind;
use crate::plug::UnplugCause;

/// Counters of one operation. All but `bios` match those of a disk in `/proc/diskstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpStats {
    /// Bios that ended.
    pub bios: u64,
    /// Bios that merged into a request of other bios.
    pub merges: u64,
    /// Requests that completed. Each joins one or more bios, or is a part of one.
    pub requests: u64,
    /// Bytes of the completed requests.
    pub bytes: u64,
    /// The sum of the times from tag to completion, in nanoseconds. 0 where turns receive no time:
    /// with `iostats=off` on a disk without a volatile cache.
    pub ticks_ns: u64,
}

/// Times that bios spend in each stage, in nanoseconds.
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

/// All counters of a disk.
#[derive(Clone, Debug, Default)]
pub struct QueueStats {
    ops: [OpStats; 5],
    merges: [u64; 3],
    unplugs: [u64; 5],
    /// Parts cut off bios that exceeded the size of a request.
    pub splits: u64,
    /// Commands issued to the driver. More than requests if a request has several steps.
    pub issued: u64,
    /// Requests that a busy driver refused and that waited on the dispatch list.
    pub requeues: u64,
    /// Merged requests that failed and were retried bio by bio.
    pub retries: u64,
    /// Merged requests that failed and were not retried, because a write may have overtaken them.
    /// Also the rests of short writes that were not resent for the same reason.
    pub overtaken: u64,
    /// Requests that were at the driver for longer than
    /// [`io_timeout_ns`](crate::Policy::io_timeout_ns).
    pub timeouts: u64,
    /// Bios that ended with [`Timeout`](crate::BlockStatus::Timeout) while their request was still
    /// at the driver.
    pub early_ends: u64,
    /// Batches that were committed to the driver.
    pub commits: u64,
    /// Steps of requests that need a flush: flushes, PREFLUSH, and FUA without native support. Each
    /// is counted in one of the next four, or still waits.
    pub flushes_asked: u64,
    /// Flushes issued to the device.
    pub flushes_issued: u64,
    /// Flushes that joined one requested by another bio.
    pub flushes_joined: u64,
    /// Flushes that ended at once because everything they cover was durable.
    pub flushes_elided: u64,
    /// Flushes that failed without being issued: something they cover was lost, or the device did
    /// not accept them.
    pub flushes_refused: u64,
    /// Bios that waited for a tag.
    pub tag_waits: u64,
    /// How long they waited, in nanoseconds; 0 where turns receive no time.
    pub tag_wait_ns: u64,
    /// Threads woken because tags were free. 0 with `wake=fair`, where bios wait.
    pub tag_wakeups: u64,
    /// Woken threads that found no tag.
    pub vain_wakeups: u64,
    /// Turns of the hardware contexts: calls of
    /// [`HardwareContext::turn`](crate::HardwareContext::turn). A run makes several turns if work
    /// is published or completes during the first.
    pub turns: u64,
    /// Turns that issued nothing and completed nothing (R6).
    pub empty_turns: u64,
    /// Runs that were made: a thread requested the token and got it. Requested runs are these plus
    /// the skipped ones, which left the work to the token's holder (R6). The requesting thread
    /// counts skipped runs, because it does not hold the token.
    pub runs_made: u64,
    /// The time during which at least one request was at the driver, in nanoseconds, summed over
    /// all hardware contexts. 0 where turns receive no time.
    pub busy_ns: u64,
    /// Times per stage; empty with `iostats=off`.
    pub stages: StageStats,
}

impl QueueStats {
    /// Returns the counters of one operation.
    pub fn op(&self, op: Op) -> &OpStats {
        &self.ops[op as usize]
    }

    /// Returns how many bios merged in this way.
    pub fn merges(&self, kind: MergeKind) -> u64 {
        self.merges[kind as usize]
    }

    /// Returns how often requests of this disk were unplugged for this reason.
    pub fn unplugs(&self, cause: UnplugCause) -> u64 {
        self.unplugs[cause as usize]
    }

    /// Adds the counters of a software queue.
    pub fn add_plugs(&mut self, counters: &PlugCounters) {
        add_all(&mut self.merges, &counters.merges);
        add_all(&mut self.unplugs, &counters.unplugs);
        for (op, merges) in self.ops.iter_mut().zip(&counters.merges_of_op) {
            op.merges += merges.get();
        }
    }

    /// Adds the counters of a hardware context.
    pub fn add_runs(&mut self, counters: &RunCounters) {
        for (op, counted) in self.ops.iter_mut().zip(&counters.ops) {
            op.bios += counted.bios.get();
            op.requests += counted.requests.get();
            op.bytes += counted.bytes.get();
            op.ticks_ns += counted.ticks_ns.get();
        }
        self.splits += counters.splits.get();
        self.issued += counters.issued.get();
        self.requeues += counters.requeues.get();
        self.retries += counters.retries.get();
        self.overtaken += counters.overtaken.get();
        self.timeouts += counters.timeouts.get();
        self.early_ends += counters.early_ends.get();
        self.commits += counters.commits.get();
        self.flushes_asked += counters.flushes_asked.get();
        self.flushes_issued += counters.flushes_issued.get();
        self.flushes_joined += counters.flushes_joined.get();
        self.flushes_elided += counters.flushes_elided.get();
        self.flushes_refused += counters.flushes_refused.get();
        self.tag_waits += counters.tag_waits.get();
        self.tag_wait_ns += counters.tag_wait_ns.get();
        self.tag_wakeups += counters.tag_wakeups.get();
        self.vain_wakeups += counters.vain_wakeups.get();
        self.turns += counters.turns.get();
        self.empty_turns += counters.empty_turns.get();
        self.runs_made += counters.runs_made.get();
        self.busy_ns += counters.busy_ns.get();
        self.stages.plug.add(&counters.plug.snapshot());
        self.stages.tag.add(&counters.tag.snapshot());
        self.stages.queue.add(&counters.queue.snapshot());
        self.stages.driver.add(&counters.driver.snapshot());
    }
}

fn add_all<const N: usize>(sums: &mut [u64; N], counters: &[Counter; N]) {
    for (sum, counter) in sums.iter_mut().zip(counters) {
        *sum += counter.get();
    }
}

/// The counters of a software queue, written by its thread only.
#[derive(Debug, Default)]
pub struct PlugCounters {
    merges_of_op: [Counter; 5],
    merges: [Counter; 3],
    unplugs: [Counter; 5],
}

impl PlugCounters {
    #[inline]
    pub(crate) fn count_merge(&self, op: Op, kind: MergeKind) {
        self.merges_of_op[op as usize].add(1);
        self.merges[kind as usize].add(1);
    }

    pub(crate) fn count_unplug(&self, cause: UnplugCause) {
        self.unplugs[cause as usize].add(1);
    }

    /// Adds the counters of a thread that has ended.
    pub fn take_over(&self, other: &PlugCounters) {
        let pairs = self.merges_of_op.iter().zip(&other.merges_of_op);
        let pairs = pairs.chain(self.merges.iter().zip(&other.merges));
        for (sum, counter) in pairs.chain(self.unplugs.iter().zip(&other.unplugs)) {
            sum.add(counter.get());
        }
    }
}

/// The counters of a hardware context, written by the holder of its token.
#[derive(Debug, Default)]
pub struct RunCounters {
    pub(crate) ops: [OpCounters; 5],
    pub(crate) splits: Counter,
    pub(crate) issued: Counter,
    pub(crate) requeues: Counter,
    pub(crate) retries: Counter,
    pub(crate) overtaken: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) early_ends: Counter,
    pub(crate) commits: Counter,
    pub(crate) flushes_asked: Counter,
    pub(crate) flushes_issued: Counter,
    pub(crate) flushes_joined: Counter,
    pub(crate) flushes_elided: Counter,
    pub(crate) flushes_refused: Counter,
    pub(crate) tag_waits: Counter,
    pub(crate) tag_wait_ns: Counter,
    pub(crate) tag_wakeups: Counter,
    pub(crate) vain_wakeups: Counter,
    pub(crate) turns: Counter,
    pub(crate) empty_turns: Counter,
    runs_made: Counter,
    pub(crate) busy_ns: Counter,
    pub(crate) plug: SharedHistogram,
    pub(crate) tag: SharedHistogram,
    pub(crate) queue: SharedHistogram,
    pub(crate) driver: SharedHistogram,
}

#[derive(Debug, Default)]
pub(crate) struct OpCounters {
    pub(crate) bios: Counter,
    pub(crate) requests: Counter,
    pub(crate) bytes: Counter,
    pub(crate) ticks_ns: Counter,
}

impl RunCounters {
    /// Counts a run. Called right after the token was taken.
    #[inline]
    pub fn count_run(&self) {
        self.runs_made.add(1);
    }

    /// Returns the number of requests that were over their time limit.
    pub fn nr_timeouts(&self) -> u64 {
        self.timeouts.get()
    }

    #[inline]
    pub(crate) fn of(&self, op: Op) -> &OpCounters {
        &self.ops[op as usize]
    }
}
