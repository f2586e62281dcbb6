//! Retries: when a command that the device may already have executed may be sent to it again.
//!
//! A bad sector must fail the bio that asked for it, and none of its neighbours in the same
//! request. So a merged request whose failure may concern a single bio is taken apart, and its bios
//! are tried one after another, under its own tag. The rest of a short write is sent again, too; a
//! device whose counts are not exact may have written it already.
//!
//! - A1 Until these retries end, no request that overlaps the range is issued, in any hardware
//!   context of any disk on the same file or device.
//! - A2 A write is tried again only if no overlapping write was issued since. That later write may
//!   have ended, and a retry would bring the older data back, although a reader may have seen the
//!   newer. Otherwise its bios get the error. (A read may always be tried again. So may the rest of
//!   a short write where counts are exact: it was never written, so it is the later of the two.)
//!
//! Within a hardware context, A2 is decided by the ranges of its last writes. For other contexts
//! only the number of their writes is known, and each write counts as overlapping. So the decision
//! errs on the safe side. A write of one bio records that number only where counts are not exact.
//! Elsewhere each I/O would pay for it, and none needs it.
//!
//! The disks on one file share one [`Retries`], where each of their contexts has a count of its own
//! ([`counts`]).
//!
//! A request that was given up and may still change the device (H6 of [`crate::hctx::timeout`])
//! keeps later overlapping requests from the device, too. But these end instead of waiting, because
//! that request may never complete. One range covers all such requests. It only grows, and may be
//! wider than necessary: another atomic step would be needed to shrink it.
//!
//! # Two contexts at once
//! The context whose request fails enters the range (A), then reads the counts of the others (B).
//! The context that issues a write counts it (C), then reads the ranges (D), then issues. Each has
//! a sequentially consistent fence between its two steps. So either the first sees the count and
//! gives up, or the second sees the range and holds its write back. A disk without counts marks its
//! presence when it is opened, and this mark takes the place of (C).
//!
//! A range in quarantine needs no such pair of steps. It is entered before the bios of its request
//! end. Requests that other contexts issue at the same time were submitted earlier, so they are
//! concurrent with that request in any case.

mod counts;
#[cfg(all(test, blk_loom))]
mod models;

pub(crate) use counts::Counts;

use crate::plant::plants;
use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence};
use crate::tag::Tag;
use alloc::boxed::Box;
use counts::WriteCounts;

/// The number of writes that a hardware context remembers.
const LOG_LEN: usize = 256;

/// The maximum number of retries at once. A request beyond it fails without a retry, unless it
/// reads.
const RETRIES_MAX: usize = 16;

/// A point in time, as the number of writes that had been issued before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The writes of this context.
    own: u64,
    /// The writes of all other contexts.
    others: u64,
}

impl Moment {
    /// The point before all writes.
    pub(crate) const NONE: Moment = Moment { own: 0, others: 0 };
}

/// The last writes of a hardware context.
#[derive(Debug)]
pub(crate) struct WriteLog {
    entries: Box<[(u64, u64, Tag)]>,
    count: u64,
}

impl WriteLog {
    pub(crate) fn new() -> WriteLog {
        WriteLog { entries: alloc::vec![(0, 0, Tag::from_index(0)); LOG_LEN].into(), count: 0 }
    }

    /// Records a write that is issued.
    #[inline]
    pub(crate) fn push(&mut self, start: u64, len: u64, tag: Tag) {
        self.entries[self.count as usize % LOG_LEN] = (start, start + len, tag);
        self.count += 1;
    }

    /// Returns whether a write under another tag may have been issued into one of the ranges since
    /// then.
    fn overlaps_since(
        &self,
        since: u64,
        tag: Tag,
        mut ranges: impl Iterator<Item = (u64, u64)>,
    ) -> bool {
        if self.count - since > LOG_LEN as u64 {
            return true;
        }
        ranges.any(|(start, len)| {
            let mut entries = (since..self.count).map(|at| self.entries[at as usize % LOG_LEN]);
            entries.any(|(from, to, by)| by != tag && from < start + len && start < to)
        })
    }
}

/// The retries in progress on a file or device, and the write counts of the hardware contexts of
/// all disks on it.
#[derive(Debug)]
pub(crate) struct Retries {
    /// The number of `ranges` that are in use, or about to be.
    nr: AtomicU32,
    /// The first byte, and the byte after the last; both 0 in a free slot.
    ranges: [(AtomicU64, AtomicU64); RETRIES_MAX],
    /// The number of given-up requests whose ranges are in quarantine (H6). They also count in
    /// `nr`.
    nr_quarantined: AtomicU32,
    /// The first byte of these ranges, and the byte after the last. Valid only while there are any.
    quarantine: (AtomicU64, AtomicU64),
    writes: WriteCounts,
}

/// An index in the list of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetrySlot(u8);

impl Retries {
    /// Creates the retries of one disk with at most `nr_hctxs` contexts.
    pub(crate) fn new(nr_hctxs: u32) -> Retries {
        Retries::with_counts(if nr_hctxs > 1 { nr_hctxs } else { 0 })
    }

    /// Creates the retries of any number of disks, of which the first has `nr_hctxs` contexts.
    pub(crate) fn shared(nr_hctxs: u32) -> Retries {
        Retries::with_counts((4 * nr_hctxs).max(64))
    }

    fn with_counts(nr: u32) -> Retries {
        Retries {
            nr: AtomicU32::new(0),
            ranges: core::array::from_fn(|_| (AtomicU64::new(0), AtomicU64::new(0))),
            nr_quarantined: AtomicU32::new(0),
            quarantine: (AtomicU64::new(u64::MAX), AtomicU64::new(0)),
            writes: WriteCounts::new(nr),
        }
    }

    /// Returns the counts of the writes of all contexts.
    #[inline]
    pub(crate) fn writes(&self) -> &WriteCounts {
        &self.writes
    }

    /// Returns the moment before a write that the context whose count is at `at` is about to issue.
    /// The later log entry of this write does not count against it, because it has the write's own
    /// tag.
    pub(crate) fn moment(&self, at: u32, log: &WriteLog) -> Moment {
        // If another context is about to issue a write, `u64::MAX` matches no later count.
        Moment { own: log.count, others: self.writes.of_others(at).unwrap_or(u64::MAX) }
    }

    /// Enters a range that is to be tried again (A). Returns `None` if there are too many.
    pub(crate) fn enter(&self, start: u64, end: u64) -> Option<RetrySlot> {
        self.nr.fetch_add(1, Ordering::SeqCst);
        let end_of = |at: usize| &self.ranges[at].1;
        let free = (0..RETRIES_MAX).find(|&at| {
            let claim = end_of(at).compare_exchange(0, end, Ordering::SeqCst, Ordering::Relaxed);
            claim.is_ok()
        });
        let Some(at) = free else {
            self.nr.fetch_sub(1, Ordering::SeqCst);
            return None;
        };
        // Until this store the range seems to begin at 0, and holds back more than necessary.
        self.ranges[at].0.store(start, Ordering::SeqCst);
        // If two threads enter overlapping ranges, at least one sees the other's range.
        fence(Ordering::SeqCst);
        Some(RetrySlot(at as u8))
    }

    /// Removes a range whose retries have ended. Release: a thread that sees the range gone also
    /// sees the effects of the retries on the device as done.
    pub(crate) fn leave(&self, slot: RetrySlot) {
        self.ranges[usize::from(slot.0)].0.store(0, Ordering::Release);
        self.ranges[usize::from(slot.0)].1.store(0, Ordering::Release);
        self.nr.fetch_sub(1, Ordering::Release);
    }

    /// Keeps requests that overlap the ranges of one request from the device, until
    /// [`release`](Retries::release) (H6).
    pub(crate) fn quarantine(&self, ranges: impl Iterator<Item = (u64, u64)>) {
        for (start, len) in ranges {
            self.quarantine.0.fetch_min(start, Ordering::Relaxed);
            self.quarantine.1.fetch_max(start + len, Ordering::Relaxed);
        }
        // Release: a thread that sees the counts sees the range. The submitter of a later bio sees
        // them because its earlier bio ends after this.
        self.nr_quarantined.fetch_add(1, Ordering::Release);
        self.nr.fetch_add(1, Ordering::Release);
    }

    /// Undoes one [`quarantine`](Retries::quarantine) after the driver has completed the request.
    /// Release: as in [`leave`](Retries::leave).
    pub(crate) fn release(&self) {
        self.nr.fetch_sub(1, Ordering::Release);
        self.nr_quarantined.fetch_sub(1, Ordering::Release);
    }

    /// Returns whether one of the ranges overlaps one in quarantine.
    #[cold]
    pub(crate) fn is_quarantined(&self, mut ranges: impl Iterator<Item = (u64, u64)>) -> bool {
        if self.nr_quarantined.load(Ordering::Acquire) == 0 {
            return false;
        }
        let from = self.quarantine.0.load(Ordering::Relaxed);
        let to = self.quarantine.1.load(Ordering::Relaxed);
        ranges.any(|(start, len)| from < start + len && start < to)
    }

    /// Returns whether a write may have been issued into one of the ranges since `since`, except by
    /// `tag` of the context whose count is at `at` (the fence, and B). The range has been entered.
    pub(crate) fn was_overtaken(
        &self,
        at: u32,
        log: &WriteLog,
        since: Moment,
        tag: Tag,
        ranges: impl Iterator<Item = (u64, u64)>,
    ) -> bool {
        fence(Ordering::SeqCst);
        if plants!(RetryOvertaken) {
            return false;
        }
        self.writes.of_others(at) != Some(since.others)
            || log.overlaps_since(since.own, tag, ranges)
    }

    /// Returns whether any retry is in progress (D; the caller has counted its write before).
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.nr.load(Ordering::Acquire) > 0
    }

    /// Returns whether one of the ranges overlaps a retry in progress other than `own`.
    #[cold]
    pub(crate) fn hold_back(
        &self,
        own: Option<RetrySlot>,
        mut ranges: impl Iterator<Item = (u64, u64)>,
    ) -> bool {
        let others = |at: usize| own != Some(RetrySlot(at as u8));
        if plants!(PassRetry) {
            return false;
        }
        ranges.any(|(start, len)| {
            self.ranges.iter().enumerate().any(|(at, (from, to))| {
                let (to, from) = (to.load(Ordering::Acquire), from.load(Ordering::Acquire));
                others(at) && from < start + len && start < to
            })
        })
    }
}

#[cfg(test)]
mod tests;
