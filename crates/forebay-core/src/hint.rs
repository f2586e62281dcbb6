//! A hint for the compiler about branches that are seldom taken.

/// Marks the branch that calls it as unlikely, so that the compiler moves it out of the fast path.
///
/// `core::hint::cold_path` does the same, but needs Rust 1.95.
#[cold]
#[inline]
pub const fn cold_path() {}
