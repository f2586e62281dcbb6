//! What stands for the library's runtime: the same steps in the same order, by tasks.
//!
//! The core is driven by the calls that real threads make (`forebay/src/runtime`), and between any
//! two of them another task may go first. Where the library has an atomic or a lock, a step is one
//! change of it; so the interleavings are those of whole steps, and the finer ones are loom's.
//!
//! - [`hctx`]: a hardware context and its token; [`turn`]: its turn;
//! - [`mailbox`]: where the ends of a task's bios wait for it;
//! - [`thread`]: a task's plug, its software queue, and reap; [`submit`]: submit;
//! - [`host`]: the steps of the core's wait protocol, made by tasks;
//! - [`budget`]: waiting for tags of a set that all tasks share;
//! - [`tags`]: waiting for the tags of a hardware context, where threads do so;
//! - [`gate`]: freeze and quiesce.

pub(crate) mod budget;
pub(crate) mod gate;
pub(crate) mod hctx;
pub(crate) mod host;
pub(crate) mod mailbox;
pub(crate) mod submit;
pub(crate) mod tags;
pub(crate) mod thread;
pub(crate) mod turn;
