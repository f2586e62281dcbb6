//! Counters of a disk, and the time that its bios spent in each stage.
//!
//! Counterpart in Linux: `/proc/diskstats` (`Documentation/admin-guide/iostats.rst`). Counters are
//! kept per software queue and per hardware context, with one writer each. A reader adds them up.

pub(crate) mod coarse;
pub(crate) mod counter;
pub(crate) mod emulation;
pub(crate) mod histogram;
mod text;

use crate::bio::Op;
use crate::merge::MergeKind;
use crate::plug::UnplugCause;
use crate::stats::counter::Counter;
use crate::stats::emulation::EmulationStats;
use crate::stats::histogram::{Histogram, SharedHistogram};

/// Counters of one operation. All but `bios` match those of a disk in `/proc/diskstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
#[non_exhaustive]
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

/// A counter of a disk: its name, its unit and its meaning. [`COUNTERS`] lists all of them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CounterInfo {
    /// The name in JSON reports. It is also the name of the field of [`QueueStats`], or of the
    /// counter in its [`EmulationStats`].
    pub name: &'static str,
    /// The name among a server's metrics, without the suffix for counters.
    pub metric: &'static str,
    /// The unit of the value.
    pub unit: CounterUnit,
    /// The meaning, as one sentence.
    pub help: &'static str,
    get: fn(&QueueStats) -> u64,
}

impl CounterInfo {
    /// Returns the value of the counter.
    #[inline]
    pub fn of(&self, stats: &QueueStats) -> u64 {
        (self.get)(stats)
    }
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CounterUnit {
    /// A number of things.
    Count,
    /// Nanoseconds.
    Nanoseconds,
}

/// Defines the counters that the holder of a token writes, their sums, and the table of both.
///
/// Each entry has documentation, a name, a unit, the name of its metric and that metric's help
/// text. Those in `emulated` have no documentation: they are in [`EmulationStats`].
macro_rules! counters {
    (
        $($(#[doc = $doc:literal])+ $name:ident, $unit:ident, $metric:literal, $help:literal;)+
        emulated {
            $($emulated:ident, $emulated_metric:literal, $emulated_help:literal;)+
        }
        $(
            $(#[doc = $late_doc:literal])+
            $late:ident, $late_unit:ident, $late_metric:literal, $late_help:literal;
        )+
    ) => {
        /// All counters of a disk.
        #[derive(Clone, Default)]
        #[non_exhaustive]
        pub struct QueueStats {
            ops: [OpStats; 5],
            merges: [u64; 3],
            unplugs: [u64; 5],
            $($(#[doc = $doc])+ pub $name: u64,)+
            $($(#[doc = $late_doc])+ pub $late: u64,)+
            /// Times per stage; empty with `iostats=off`.
            pub stages: StageStats,
            /// The counters of emulated behaviour.
            pub emulation: EmulationStats,
        }

        /// The counters of a hardware context, written by the holder of its token.
        #[derive(Debug, Default)]
        pub struct RunCounters {
            pub(crate) ops: [OpCounters; 5],
            pub(crate) merges: MergeCounters,
            $(pub(crate) $name: Counter,)+
            $(pub(crate) $emulated: Counter,)+
            $(pub(crate) $late: Counter,)+
            pub(crate) plug: SharedHistogram,
            pub(crate) tag: SharedHistogram,
            pub(crate) queue: SharedHistogram,
            pub(crate) driver: SharedHistogram,
        }

        impl QueueStats {
            /// Adds the counters that the table lists.
            fn add_counted(&mut self, counters: &RunCounters) {
                $(self.$name += counters.$name.get();)+
                $(self.emulation.add(stringify!($emulated), counters.$emulated.get());)+
                $(self.$late += counters.$late.get();)+
            }
        }

        /// The counters of a disk that are one number each. Those by operation, by kind of merge,
        /// by cause of an unplug and by stage are methods and a field of [`QueueStats`].
        pub const COUNTERS: &[CounterInfo] = &[
            $(CounterInfo {
                name: stringify!($name),
                metric: concat!("forebay_disk_", $metric),
                unit: CounterUnit::$unit,
                help: $help,
                get: |stats| stats.$name,
            },)+
            $(CounterInfo {
                name: stringify!($emulated),
                metric: concat!("forebay_disk_", $emulated_metric),
                unit: CounterUnit::Count,
                help: $emulated_help,
                get: |stats| stats.emulation.get(stringify!($emulated)).unwrap_or(0),
            },)+
            $(CounterInfo {
                name: stringify!($late),
                metric: concat!("forebay_disk_", $late_metric),
                unit: CounterUnit::$late_unit,
                help: $late_help,
                get: |stats| stats.$late,
            },)+
        ];
    };
}

counters! {
    /// Commands issued to the driver. More than requests if a request has several steps.
    issued, Count, "commands", "Commands passed to the driver.";
    /// Batches that were committed to the driver.
    commits, Count, "commits", "Batches of commands passed to the driver.";
    /// Runs that were made: a thread requested the token and got it. Requested runs are these plus
    /// the skipped ones, which left the work to the token's holder (R6). The requesting thread
    /// counts skipped runs, because it does not hold the token.
    runs_made, Count, "runs_made", "Runs of hardware contexts that were made.";
    /// Turns of the hardware contexts: calls of
    /// [`HardwareContext::turn`](crate::HardwareContext::turn). A run makes several turns if work
    /// is published or completes during the first.
    turns, Count, "turns", "Turns of hardware contexts.";
    /// Turns that issued nothing and completed nothing (R6).
    empty_turns, Count, "empty_turns", "Turns that issued nothing and completed nothing.";
    /// The time during which at least one request was at the driver, in nanoseconds, summed over
    /// all hardware contexts. 0 where turns receive no time.
    busy_ns, Nanoseconds, "io_time", "Time with at least one request at the driver.";
    /// Bios that waited for a tag.
    tag_waits, Count, "tag_waits", "I/Os that waited for a tag.";
    /// How long they waited, in nanoseconds; 0 where turns receive no time.
    tag_wait_ns, Nanoseconds, "tag_wait", "Total time that I/Os waited for a tag.";
    /// Bios that a limit of their owner held back.
    limit_waits, Count, "limit_waits", "I/Os that a limit of their owner held back.";
    /// How long limits held them back, in nanoseconds; 0 where turns receive no time.
    limit_wait_ns, Nanoseconds, "limit_wait", "Total time that limits of owners held I/Os back.";
    emulated {
        tag_wakeups, "tag_wakeups", "Threads woken because tags were free.";
        vain_wakeups, "vain_wakeups", "Threads woken for tags that found none.";
    }
    /// Parts cut off bios that exceeded the size of a request.
    splits, Count, "splits", "Requests split off larger ones.";
    /// Requests that a busy driver refused and that waited on the dispatch list.
    requeues, Count, "requeues", "Requests requeued because the driver was busy.";
    /// Merged requests that failed and were retried bio by bio.
    retries, Count, "retries", "Merged requests that failed and were retried I/O by I/O.";
    /// Merged requests that failed and were not retried, because a write may have overtaken them.
    /// Also the rests of short writes that were not resent for the same reason.
    overtaken, Count, "overtaken",
        "Requests not retried after an error because a later write may have overtaken them.";
    /// Requests that were at the driver for longer than
    /// [`io_timeout_ns`](crate::Policy::io_timeout_ns).
    timeouts, Count, "timeouts", "Requests that were at the device for longer than io_timeout_ms.";
    /// Bios that ended with [`Timeout`](crate::BlockStatus::Timeout) while their request was still
    /// at the driver.
    early_ends, Count, "early_ends",
        "I/Os that ended with a timeout while the device still had their request.";
    /// Steps of requests that need a flush: flushes, PREFLUSH, and FUA without native support. Each
    /// is counted in one of the next four, or still waits.
    flushes_asked, Count, "flushes_asked", "Flushes requested, alone or with a write.";
    /// Flushes issued to the device.
    flushes_issued, Count, "flushes_issued", "Flushes passed to the driver.";
    /// Flushes that joined one requested by another bio.
    flushes_joined, Count, "flushes_joined",
        "Requested flushes that shared the flush of another.";
    /// Flushes that ended at once because everything they cover was durable.
    flushes_elided, Count, "flushes_elided", "Requested flushes that had nothing to flush.";
    /// Flushes that failed without being issued: something they cover was lost, or the device did
    /// not accept them.
    flushes_refused, Count, "flushes_refused",
        "Requested flushes that failed because of an earlier loss or a refusal.";
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
        self.add_merges(&counters.merges);
        add_all(&mut self.unplugs, &counters.unplugs);
    }

    fn add_merges(&mut self, counters: &MergeCounters) {
        add_all(&mut self.merges, &counters.of_kind);
        for (op, merges) in self.ops.iter_mut().zip(&counters.of_op) {
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
        self.add_merges(&counters.merges);
        self.add_counted(counters);
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

/// Merges, by operation and by kind. Merges in a plug and in a scheduler are counted alike.
#[derive(Debug, Default)]
pub(crate) struct MergeCounters {
    of_op: [Counter; 5],
    of_kind: [Counter; 3],
}

impl MergeCounters {
    /// Counts the `nr_bios` bios of a request that was merged into another one.
    #[inline]
    pub(crate) fn count(&self, op: Op, kind: MergeKind, nr_bios: u32) {
        self.of_op[op as usize].add(nr_bios.into());
        self.of_kind[kind as usize].add(nr_bios.into());
    }
}

/// The counters of a software queue, written by its thread only.
#[derive(Debug, Default)]
pub struct PlugCounters {
    merges: MergeCounters,
    unplugs: [Counter; 5],
}

impl PlugCounters {
    #[inline]
    pub(crate) fn count_merge(&self, op: Op, kind: MergeKind) {
        self.merges.count(op, kind, 1);
    }

    pub(crate) fn count_unplug(&self, cause: UnplugCause) {
        self.unplugs[cause as usize].add(1);
    }

    /// Adds the counters of a thread that has ended.
    pub fn take_over(&self, other: &PlugCounters) {
        let pairs = self.merges.of_op.iter().zip(&other.merges.of_op);
        let pairs = pairs.chain(self.merges.of_kind.iter().zip(&other.merges.of_kind));
        for (sum, counter) in pairs.chain(self.unplugs.iter().zip(&other.unplugs)) {
            sum.add(counter.get());
        }
    }
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

    /// Returns the numbers of turns, of those that did nothing, and of runs that were made.
    pub fn nr_runs(&self) -> (u64, u64, u64) {
        (self.turns.get(), self.empty_turns.get(), self.runs_made.get())
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

#[cfg(test)]
mod tests {
    use super::{COUNTERS, QueueStats, RunCounters};
    use alloc::collections::BTreeSet;

    #[test]
    fn each_counter_has_its_own_name_metric_and_sentence() {
        let distinct = |text: fn(&super::CounterInfo) -> &'static str| {
            COUNTERS.iter().map(text).collect::<BTreeSet<_>>().len()
        };
        let nr = [distinct(|it| it.name), distinct(|it| it.metric), distinct(|it| it.help)];
        assert_eq!(nr, [COUNTERS.len(); 3]);
        for counter in COUNTERS {
            assert!(counter.metric.starts_with("forebay_disk_"), "{counter:?}");
            assert!(counter.help.ends_with('.'), "{counter:?}");
        }
    }

    #[test]
    fn counted_events_are_in_the_counter_of_their_name() {
        let counters = RunCounters::default();
        counters.splits.add(3);
        counters.busy_ns.add(5);
        counters.vain_wakeups.add(2);
        let mut stats = QueueStats::default();
        stats.add_runs(&counters);
        stats.add_runs(&counters);
        let value = |name: &str| {
            COUNTERS.iter().find(|counter| counter.name == name).map(|counter| counter.of(&stats))
        };
        assert_eq!(
            (value("splits"), value("busy_ns"), value("turns")),
            (Some(6), Some(10), Some(0))
        );
        assert_eq!((stats.splits, stats.busy_ns), (6, 10));
        assert_eq!(value("vain_wakeups"), Some(4));
        assert_eq!(stats.emulation.get("vain_wakeups"), Some(4));
    }
}
