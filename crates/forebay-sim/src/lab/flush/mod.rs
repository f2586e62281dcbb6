//! Threads that write and call fsync, as in sysbench's fileio: the load, and the results.

mod closed_form;
mod run;
mod shape;
#[cfg(test)]
mod tests;

use super::costs::Costs;
use forebay_core::{FlushPolicy, Histogram, QueueStats};
use forebay_model::machines::Preset;
pub use shape::{FsyncShape, FsyncTask, FsyncTasks};

/// Threads that write at random places, one write at a time each, and call fsync.
#[derive(Clone, Copy, Debug)]
pub struct FlushLoad {
    /// The device.
    pub device: &'static Preset,
    /// The number of threads.
    pub nr_threads: u32,
    /// When they call fsync.
    pub shape: FsyncShape,
    /// The size of each write, bytes; also the alignment of its place.
    pub block_bytes: u64,
    /// The range of the writes, from the start of the device, bytes.
    pub range_bytes: u64,
    /// The order of commands if the device takes a flush only on its own.
    pub flush: FlushPolicy,
    /// A flush that would make nothing durable ends at once.
    pub elide: bool,
    /// The costs of the threads' work.
    pub costs: Costs,
    /// How often a thread is late, out of a million wake-ups: another thread runs in its place for
    /// a tick of the scheduler.
    pub late_per_million: u32,
    /// How late it is then, ns.
    pub late_ns: u64,
    /// The warm-up time, ns, which is not measured.
    pub warm_up_ns: u64,
    /// The measured time after that, ns.
    pub run_ns: u64,
    /// The seed: the same seed draws the same places and times.
    pub seed: u64,
}

/// The figures of one run, without its warm-up.
#[derive(Clone, Debug)]
pub struct FlushMeasured {
    /// The measured time, ns.
    pub run_ns: u64,
    /// The number of writes that have ended.
    pub nr_writes: u64,
    /// The time from the call of fsync until the thread goes on, ns.
    pub fsyncs: Histogram,
    /// The layer's flush counters.
    pub counts: FlushCounts,
}

/// The layer's flush counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushCounts {
    /// Requests that asked for a flush.
    pub asked: u64,
    /// Flushes that were issued to the device.
    pub issued: u64,
    /// Requests that joined the flush of another.
    pub joined: u64,
    /// Requests that needed no flush.
    pub elided: u64,
    /// Requests, flushes or others, for which the device was busy.
    pub requeues: u64,
}

impl FlushCounts {
    /// Returns the counters of these statistics.
    pub fn of(stats: &QueueStats) -> FlushCounts {
        FlushCounts {
            asked: stats.flushes_asked,
            issued: stats.flushes_issued,
            joined: stats.flushes_joined,
            elided: stats.flushes_elided,
            requeues: stats.requeues,
        }
    }

    /// Returns the counts since `before`.
    #[must_use]
    pub fn since(self, before: FlushCounts) -> FlushCounts {
        FlushCounts {
            asked: self.asked - before.asked,
            issued: self.issued - before.issued,
            joined: self.joined - before.joined,
            elided: self.elided - before.elided,
            requeues: self.requeues - before.requeues,
        }
    }
}

impl FlushLoad {
    /// Returns the expected writes per second by arithmetic, or `None` if there is no formula.
    pub fn closed_form(&self) -> Option<f64> {
        closed_form::iops(self)
    }
}

impl FlushMeasured {
    /// Returns the writes per second.
    pub fn iops(&self) -> f64 {
        self.nr_writes as f64 * 1e9 / self.run_ns as f64
    }
}

/// Runs a load, with all checkers.
///
/// # Panics
/// If it has no threads, time, or places to write to, and if a rule is broken.
pub fn measure_flushes(load: &FlushLoad) -> FlushMeasured {
    run::run(load)
}
