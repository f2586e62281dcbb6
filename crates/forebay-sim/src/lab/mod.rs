//! The laboratory: threads that do I/O through the core's turn, on a machine of `forebay-model`, in
//! virtual time. It reproduces published experiments.
//!
//! It models the times that determine a measurement: the time of a thread's work, and the time to
//! wake a thread ([`Costs`]). The core decides which bio or thread waits, which gets the next tag,
//! and which is woken for it. It is the same core that real disks use.
//!
//! All experiments run in the world of random scenarios, with all its checkers: each thread is a
//! task that occupies a processor of its own. Two processors more are modelled where an experiment
//! has them: one that completes commands, and a worker that runs the queue.
//!
//! - [`TagLoad`], [`measure_tags`]: many jobs that need more tags than exist;
//! - [`RunLoad`], [`measure_runs`]: the cost of scheduling queue runs;
//! - [`FlushLoad`], [`measure_flushes`]: threads that write and call fsync.
//!
//! The same load gives the same figures, to the last digit.

mod costs;
mod flush;
mod measured;
mod runs;
mod scenario;
mod tags;

pub use costs::Costs;
pub use flush::{
    FlushCounts, FlushLoad, FlushMeasured, FsyncShape, FsyncTask, FsyncTasks, measure_flushes,
};
pub use forebay_core::{FlushPolicy, TagNeed, WakePolicy};
pub use measured::{Measured, jain};
pub use runs::{RunCosts, RunCounts, RunLoad, RunQueue, measure_runs};
pub use tags::{TagLoad, Worker, measure_tags};
