//! Threads that write and want it durable, as sysbench's fileio has them: the load, and what is
//! measured.

mod closed_form;
mod shape;
#[cfg(test)]
mod tests;
mod world;

use super::costs::Costs;
use forebay_core::{FlushPolicy, Histogram, QueueStats};
use forebay_model::machines::Preset;
pub use shape::{FsyncShape, FsyncTask, FsyncTasks};
use world::World;

/// Threads that write at random places, one write at a time each, and call fsync.
#[derive(Clone, Copy, Debug)]
pub struct FlushLoad {
    /// The device.
    pub device: &'static Preset,
    /// How many threads.
    pub nr_threads: u32,
    /// When they call fsync.
    pub shape: FsyncShape,
    /// How long each write is, bytes, and what its place is aligned to.
    pub block_bytes: u64,
    /// Where they write: from the device's beginning on, bytes.
    pub range_bytes: u64,
    /// What goes first where the device takes a flush only by itself.
    pub flush: FlushPolicy,
    /// Whether a flush ends at once that would make nothing durable.
    pub elide: bool,
    /// What the threads' work costs.
    pub costs: Costs,
    /// How often a thread is late, of a million times that it is woken: another runs in its place
    /// for a tick of the scheduler.
    pub late_per_million: u32,
    /// How late it is then, ns.
    pub late_ns: u64,
    /// What is not measured at the beginning, ns.
    pub warm_up_ns: u64,
    /// What is measured after that, ns.
    pub run_ns: u64,
    /// The same seed draws the same places and times.
    pub seed: u64,
}

/// The figures of one run, without its warm-up.
#[derive(Clone, Debug)]
pub struct FlushMeasured {
    /// How long it was measured, ns.
    pub run_ns: u64,
    /// Writes that have ended.
    pub nr_writes: u64,
    /// How long each fsync took its thread, until it went on, ns.
    pub fsyncs: Histogram,
    /// The most flushes that were issued from a call of fsync until it had ended, its own included.
    pub flushes_of_fsync_max: u64,
    /// What the layer has counted.
    pub counts: FlushCounts,
}

/// What the layer has counted of flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushCounts {
    /// Requests that asked for one.
    pub asked: u64,
    /// Those that the device was given.
    pub issued: u64,
    /// Requests that joined another's.
    pub joined: u64,
    /// Requests that needed none.
    pub elided: u64,
    /// Requests, flushes or others, that the device was busy for.
    pub requeues: u64,
}

impl FlushCounts {
    /// Of these statistics.
    pub fn of(stats: &QueueStats) -> FlushCounts {
        FlushCounts {
            asked: stats.flushes_asked,
            issued: stats.flushes_issued,
            joined: stats.flushes_joined,
            elided: stats.flushes_elided,
            requeues: stats.requeues,
        }
    }

    /// What was counted since `before`.
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
    /// What it should reach by arithmetic, writes per second; None where nobody has done it.
    pub fn closed_form(&self) -> Option<f64> {
        closed_form::iops(self)
    }
}

impl FlushMeasured {
    /// Writes per second.
    pub fn iops(&self) -> f64 {
        self.nr_writes as f64 * 1e9 / self.run_ns as f64
    }
}

/// Runs a load.
///
/// # Panics
/// If it has no threads, time, or places to write to.
pub fn measure_flushes(load: &FlushLoad) -> FlushMeasured {
    World::new(load).run()
}
