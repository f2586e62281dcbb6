//! Where the atomics come from: `core`, or a model checker when models are run: loom
//! (`--cfg blk_loom`) or shuttle (`--cfg blk_shuttle`).
//!
//! Shared state of this crate names its atomics through here alone, so that what was proven and
//! what runs are the same code. Loom's constructors are not `const`; so neither are ours.

#[cfg(not(any(blk_loom, blk_shuttle)))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(blk_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(blk_shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
