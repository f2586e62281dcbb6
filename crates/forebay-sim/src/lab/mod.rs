//! The laboratory: threads that do I/O through the core's turn, on a machine of `forebay-model`, in
//! virtual time, as the published experiments did.
//!
//! The other simulator of this crate looks for broken rules; this one measures. It has no faults,
//! no checkers and no data. It has what decides a measurement: the time that a thread's work takes,
//! and the time that it takes to wake one ([`Costs`]). What waits, who gets the next tag and who is
//! woken for it decides the core, which is the one that real disks run on.
//!
//! - [`TagLoad`], [`measure_tags`]: many jobs that want more tags than there are;
//! - [`RunLoad`], [`measure_runs`]: what it costs to schedule the work of running a queue;
//! - [`FlushLoad`], [`measure_flushes`]: threads that write, and want it durable.
//!
//! The same load gives the same figures, to the last digit.

mod costs;
mod flush;
mod job;
mod measured;
mod port;
mod processor;
mod run;
mod work;
mod world;

pub use costs::Costs;
pub use flush::{
    FlushCounts, FlushLoad, FlushMeasured, FsyncShape, FsyncTask, FsyncTasks, measure_flushes,
};
pub use forebay_core::{FlushPolicy, WakePolicy};
pub use measured::{Measured, jain};
pub use processor::{RunCosts, RunCounts, RunQueue};
pub use run::{RunLoad, measure_runs};
pub use work::Worker;
pub use world::{TagLoad, measure_tags};
