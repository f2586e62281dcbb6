//! Counters with one writer or many writers, and a gauge with many writers.
//!
//! The only writer of a [`Counter`] is the thread that holds the token of a hardware context, or
//! that has a software queue. So counting is a load and a store, without a locked instruction.
//! Orderings are relaxed: a reader gets a recent value and concludes nothing from it. When the
//! token moves to another thread, the token's own ordering hands the counters over.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter.
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

/// The number of operations in progress, with any number of writers.
///
/// Each operation is added once and removed once, and its removal happens after its addition. All
/// changes of the word have one order, in which therefore no prefix is negative. So a reader finds
/// a number that was true at some moment, with relaxed orderings too.
#[derive(Debug, Default)]
pub(crate) struct SharedGauge(AtomicU64);

impl SharedGauge {
    #[inline]
    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn lower(&self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "more operations were removed than added");
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter or a maximum with any number of writers. Its changes order nothing else.
#[derive(Debug, Default)]
pub(crate) struct SharedCounter(AtomicU64);

impl SharedCounter {
    pub(crate) const fn new() -> SharedCounter {
        SharedCounter(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn add(&self, nr: u64) {
        self.0.fetch_add(nr, Ordering::Relaxed);
    }

    /// Raises the number to `value` if that is larger. If not, this costs only a load.
    #[inline]
    pub(crate) fn raise_to(&self, value: u64) {
        if value > self.get() {
            self.0.fetch_max(value, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
