//! Where the atomics come from: `core`, or loom when a model is run (`--cfg blk_loom`).
//!
//! Shared state of this crate names its atomics through here alone, so that what loom has proven
//! and what runs are the same code. Loom's constructors are not `const`; so neither are ours.

#[cfg(not(blk_loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(blk_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
