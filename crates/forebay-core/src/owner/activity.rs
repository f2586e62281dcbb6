//! Activity of an owner: its I/O in flight and the latency of that I/O, counted while an observer
//! watches.
//!
//! Counting costs instructions at the end of each I/O, which most owners should not pay for. So I/O
//! is counted only until a time that an observer sets, and extends while it watches
//! ([`Activity::watch`]).
//!
//! # Start and end
//! A context compares that time with its own when a request leaves the queue of its owner. If the
//! owner is watched, it marks the first bio of the request and raises the number in flight. When
//! that bio ends, the context finds the mark, lowers the number and counts the latency. The end
//! depends on the mark alone. So the time may change, or pass, at any moment: a request that was
//! counted at its start is counted at its end, and no other one is. A bio ends once, so the number
//! returns to 0 and is never negative.
//!
//! I/O that was in flight when an observer began to watch has no mark. The number in flight is
//! complete when the unmarked I/O has ended.
//!
//! # Orderings
//! All are relaxed. The time publishes nothing, and only one load of it decides about a request.
//! The start and the end of a request are in turns of one context, which its token orders. So the
//! end happens after the start, as [`SharedGauge`] requires.

use crate::stats::coarse::CoarseHistogram;
use crate::stats::counter::SharedGauge;
use crate::stats::histogram::Histogram;
use core::sync::atomic::{AtomicU64, Ordering};

/// The I/O of an owner that has started while an observer has watched. I/Os that leave as one
/// request count as one. Flushes, and I/O that may have a reserved tag, are not counted, as in
/// [`OwnerStats`](crate::OwnerStats).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OwnerActivity {
    /// Requests that have left the queue of the owner and have not ended.
    pub in_flight: u64,
    /// How long requests that succeeded took, in nanoseconds. The time begins when a request leaves
    /// its plug, or when the last limit that held it back releases it, and ends with its first bio.
    /// If it joins an older request in a scheduler, the earlier of the two times counts, but not
    /// one before the submission of the bio. A percentile is at most twice the exact value.
    pub total: Histogram,
    /// How long the driver had these requests. Requests that are split or merged in a scheduler
    /// may be missing.
    pub driver: Histogram,
}

/// The counts of an owner, which all hardware contexts write.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests that start before this time are counted. 0: none.
    watched_until_ns: AtomicU64,
    in_flight: SharedGauge,
    total: CoarseHistogram,
    driver: CoarseHistogram,
}

impl Activity {
    /// Counts requests that start before `until_ns`. An earlier time changes nothing, because
    /// another observer may watch longer.
    pub(super) fn watch(&self, until_ns: u64) {
        self.watched_until_ns.fetch_max(until_ns, Ordering::Relaxed);
    }

    /// Returns whether a request that starts now is counted.
    #[inline(always)]
    pub(crate) fn is_watched(&self, now: u64) -> bool {
        now < self.watched_until_ns.load(Ordering::Relaxed)
    }

    /// Counts the start of a request, which the caller marks.
    pub(crate) fn note_start(&self) {
        self.in_flight.raise();
    }

    /// Counts the end of a request that was counted at its start. The times are `None` if there are
    /// none.
    pub(crate) fn note_end(&self, total_ns: Option<u64>, driver_ns: Option<u64>) {
        self.in_flight.lower();
        if let Some(ns) = total_ns {
            self.total.record(ns);
        }
        if let Some(ns) = driver_ns {
            self.driver.record(ns);
        }
    }

    /// Returns the counts. Each is recent; together they are of no single moment.
    pub(super) fn get(&self) -> OwnerActivity {
        OwnerActivity {
            in_flight: self.in_flight.get(),
            total: self.total.snapshot(),
            driver: self.driver.snapshot(),
        }
    }
}
