//! What drives the core for real threads: the clock, the thread's plug, and the state of a disk.
//!
//! A disk belongs to the thread that opened it for now; this is the seam where many threads come
//! in.

pub(crate) mod abort;
pub(crate) mod clock;
pub(crate) mod mailbox;
pub(crate) mod plug;
pub(crate) mod shared;
