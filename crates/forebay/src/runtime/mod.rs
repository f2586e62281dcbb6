//! What drives the core for real threads: the clock, the thread's plug, and the disk's state.
//!
//! A disk belongs to the thread that opened it for now; this is the seam where many threads come
//! in.

pub(crate) mod clock;
pub(crate) mod inner;
pub(crate) mod plug;
