//! Counters that one thread writes and any thread reads.
//!
//! Whoever holds the token of a hardware context, or has a software queue, is the only writer; so
//! counting is a load and a store, no locked instruction. Orderings are relaxed: a reader gets a
//! value that was current a moment ago, and nothing is concluded from it. When the token goes
//! from one thread to the next, its own ordering hands the counters over.

use core::sync::atomic::{AtomicU64, Ordering};

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn add(&self, nr: u64) {
        self.0.store(self.get().wrapping_add(nr), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn raise_to(&self, value: u64) {
        if value > self.get() {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
