//! Counters of this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a process has done.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Counters {
    /// Iocbs that `io_submit` has accepted.
    pub iocbs: AtomicU64,
    /// Requests that the kernel got.
    pub requests: AtomicU64,
    /// Iocbs that have joined the request of others.
    pub merges: AtomicU64,
}

static COUNTERS: Counters =
    Counters { iocbs: AtomicU64::new(0), requests: AtomicU64::new(0), merges: AtomicU64::new(0) };

/// Returns the counters.
pub fn counters() -> &'static Counters {
    &COUNTERS
}

pub(crate) fn add(counter: impl Fn(&Counters) -> &AtomicU64, nr: u64) {
    // Relaxed: the counters order nothing.
    counter(&COUNTERS).fetch_add(nr, Ordering::Relaxed);
}
