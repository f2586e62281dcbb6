//! Source of the atomics: `core`, or a model checker in its place: loom (`--cfg blk_loom`) or
//! shuttle (`--cfg blk_shuttle`).
//!
//! Shared state of this crate imports its atomics only from here, so that the models run the
//! shipped code. Loom's constructors are not `const`, so ours are not either.

#[cfg(not(any(blk_loom, blk_shuttle)))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(blk_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(blk_shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
