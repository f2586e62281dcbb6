//! Source of the locks: `std`, or loom in its place (`--cfg blk_loom`).

#[cfg(blk_loom)]
pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(blk_loom))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
