//! Runtime of the simulator: tasks make the steps that threads make in the library.
//!
//! The order of the steps of turns and waits is the core's ([`forebay_core::wait`]). Between any
//! two steps another task may run. Where the library has an atomic or a lock, a step is one change
//! of it. So the interleavings are those of whole steps; loom checks the finer ones.
//!
//! - [`hctx`]: a hardware context and its token; [`turn`]: its turn;
//! - [`mailbox`]: where the ends of a task's bios wait for it;
//! - [`thread`]: a task's plug and its software queue; [`submit`], [`reap`]: submit and reap;
//! - [`host`]: the steps of the core's wait protocol, made by tasks;
//! - [`budget`]: waiting for tags of a set that all tasks share;
//! - [`tags`]: waiting for the tags of a hardware context, where threads do so;
//! - [`gate`]: freeze and quiesce;
//! - [`spare`]: boxes for the next run.

pub(crate) mod budget;
pub(crate) mod gate;
pub(crate) mod hctx;
pub(crate) mod host;
pub(crate) mod mailbox;
pub(crate) mod owners;
mod reap;
pub(crate) mod run_queue;
mod spare;
pub(crate) mod submit;
pub(crate) mod tags;
pub(crate) mod thread;
pub(crate) mod turn;
