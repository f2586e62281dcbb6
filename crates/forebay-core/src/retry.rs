//! When what the device may have done already may be sent to it again.
//!
//! A bad sector must fail the bio that asked for it, and none of its neighbours in the same
//! request. So a merged request that failed for a reason of address is taken apart, and its bios
//! are tried one after another, under its own tag. And the rest of a write that came back short is
//! sent again; a device whose counts are not exact may have written it.
//!
//! - A1 Until these retries end, nothing that overlaps the range is issued, in any hardware
//!   context of any disk on the same file or device.
//! - A2 A write is tried again only if no overlapping write was issued since: that one may have
//!   ended, and a retry would bring old data back, though somebody may have read the new ones.
//!   Otherwise its bios get the error. (A read may always be; so may the rest of a short write,
//!   where counts are exact: it was never written, so it is the later of the two.)
//!
//! Within a hardware context, A2 is judged by the ranges of its last writes. Of other contexts
//! only the number of their writes is known, and any counts: so the judgement errs on the safe
//! side. A write of one bio notes that number only where counts are not exact: elsewhere each I/O
//! would pay for it, and none needs it.
//!
//! # Disks on one file
//! They share one [`Retries`], and each of their contexts has a count of its own there. There are
//! as many counts as four disks like the first need, and at least 64. A disk that finds too few is
//! not counted: while it is open, and for writes that were issued before it was closed, no write is
//! tried again.
//!
//! # Two contexts at once
//! The context that fails enters the range (A), then looks at the others' counts (B). The context
//! that issues counts its write (C), then looks at the ranges (D), then issues. Each has a
//! sequentially consistent fence between its two steps. So either the first sees the count, and
//! gives up, or the second sees the range, and holds its write back. A disk that is not counted
//! takes the place of (C) when it is opened.

use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence};
use crate::tag::Tag;
use alloc::boxed::Box;

/// How many writes a hardware context remembers.
const LOG_LEN: usize = 256;

/// How many retries there can be at once on a disk; one more fails without.
const RETRIES_MAX: usize = 16;

/// The writes that had been issued at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// By this context.
    own: u64,
    /// By all others.
    others: u64,
}

impl Moment {
    /// Before all writes.
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

    /// Notes a write that is issued.
    #[inline]
    pub(crate) fn push(&mut self, start: u64, len: u64, tag: Tag) {
        self.entries[self.count as usize % LOG_LEN] = (start, start + len, tag);
        self.count += 1;
    }

    /// Whether a write under another tag may have been issued into one of the ranges since.
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

/// The retries that are under way on a file or device, and the writes of the hardware contexts of
/// all disks on it.
#[derive(Debug)]
pub(crate) struct Retries {
    /// How many of `ranges` are in use, or about to be.
    nr: AtomicU32,
    /// First byte and byte after the last; free where both are 0.
    ranges: [(AtomicU64, AtomicU64); RETRIES_MAX],
    /// Empty where there is one context: its own writes are in its log.
    counts: Box<[WriteCount]>,
    /// Counts behind these were never in use.
    nr_counts: AtomicU32,
    /// Disks that are not counted: in the low half those that are open, in the high half all that
    /// ever were.
    uncounted: AtomicU64,
}

/// The writes of a hardware context. They are never set back, whichever context has it.
#[derive(Debug)]
struct WriteCount {
    /// Twice as many as the writes that were issued: changed by the holder of the context's token
    /// alone.
    nr: AtomicU64,
    /// 1 while a disk has it.
    is_taken: AtomicU32,
}

/// The place of a context without a count.
const NOT_COUNTED: u32 = u32::MAX;

/// A disk that is not counted, as [`Retries::uncounted`] counts it.
const UNCOUNTED_OPEN: u64 = 1;
const UNCOUNTED_EVER: u64 = 1 << 32;

/// The counts of a disk's hardware contexts. None where the disk is not counted.
#[derive(Debug)]
pub(crate) struct Counts(Option<Box<[u32]>>);

impl Counts {
    /// The place of the count of context `hctx`.
    pub(crate) fn of(&self, hctx: u32) -> u32 {
        self.0.as_ref().map_or(NOT_COUNTED, |counts| counts[hctx as usize])
    }
}

/// A place in the list of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetrySlot(u8);

impl Retries {
    /// The retries of one disk, which has at most `nr_hctxs` contexts.
    pub(crate) fn new(nr_hctxs: u32) -> Retries {
        Retries::with_counts(if nr_hctxs > 1 { nr_hctxs } else { 0 })
    }

    /// The retries of any number of disks, of which the first has `nr_hctxs` contexts.
    pub(crate) fn shared(nr_hctxs: u32) -> Retries {
        Retries::with_counts((4 * nr_hctxs).max(64))
    }

    fn with_counts(nr: u32) -> Retries {
        let count = || WriteCount { nr: AtomicU64::new(0), is_taken: AtomicU32::new(0) };
        Retries {
            nr: AtomicU32::new(0),
            ranges: core::array::from_fn(|_| (AtomicU64::new(0), AtomicU64::new(0))),
            counts: (0..nr).map(|_| count()).collect(),
            nr_counts: AtomicU32::new(0),
            uncounted: AtomicU64::new(0),
        }
    }

    /// A disk of `nr_hctxs` contexts is opened, and has not written yet.
    pub(crate) fn join(&self, nr_hctxs: u32) -> Counts {
        if self.counts.is_empty() {
            assert!(nr_hctxs == 1, "made for one context");
            return Counts(Some([NOT_COUNTED].into()));
        }
        // Acquire: with the release in `part`, the count goes on from its last owner's.
        let is_free = |count: &WriteCount| {
            let order = (Ordering::Acquire, Ordering::Relaxed);
            count.is_taken.compare_exchange(0, 1, order.0, order.1).is_ok()
        };
        let places = 0..self.counts.len() as u32;
        let free = places.filter(|at| is_free(&self.counts[*at as usize]));
        let taken: Box<[u32]> = free.take(nr_hctxs as usize).collect();
        // Before the first write is counted there, which a fence follows.
        let nr = taken.last().map_or(0, |last| last + 1);
        self.nr_counts.fetch_max(nr, Ordering::SeqCst);
        if taken.len() == nr_hctxs as usize {
            return Counts(Some(taken));
        }
        self.give_back(&taken);
        self.uncounted.fetch_add(UNCOUNTED_OPEN + UNCOUNTED_EVER, Ordering::SeqCst);
        // Instead of one for each write.
        fence(Ordering::SeqCst);
        Counts(None)
    }

    /// The disk is closed: all of its writes have ended.
    pub(crate) fn part(&self, counts: &Counts) {
        match &counts.0 {
            Some(taken) => self.give_back(taken),
            // Release: where it is seen to be closed its writes are seen to have ended.
            None => _ = self.uncounted.fetch_sub(UNCOUNTED_OPEN, Ordering::Release),
        }
    }

    fn give_back(&self, taken: &[u32]) {
        let counts = taken.iter().filter_map(|at| self.counts.get(*at as usize));
        counts.for_each(|count| count.is_taken.store(0, Ordering::Release));
    }

    /// The context whose count is at `at` is about to issue a write (C, and the fence). The count
    /// is odd until [`write_is_out`](Self::write_is_out).
    #[inline]
    pub(crate) fn count_write(&self, at: u32) {
        // Without a count: no other context is there, or all of them know of the disk.
        if let Some(WriteCount { nr, .. }) = self.counts.get(at as usize) {
            nr.store(nr.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// The write was issued, or will not be now. Release: who sees the count sees it issued.
    #[inline]
    pub(crate) fn write_is_out(&self, at: u32) {
        if let Some(WriteCount { nr, .. }) = self.counts.get(at as usize) {
            nr.store(nr.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    /// The moment before a write that the context whose count is at `at` is about to issue: what it
    /// notes of it in its log afterwards bears the write's own tag.
    pub(crate) fn moment(&self, at: u32, log: &WriteLog) -> Moment {
        // Where another is about to issue one, no later count is the same.
        Moment { own: log.count, others: self.writes_of_others(at).unwrap_or(u64::MAX) }
    }

    /// Counts the writes of all contexts but one. None where one is being issued, or may be: by a
    /// disk that is not counted.
    fn writes_of_others(&self, at: u32) -> Option<u64> {
        if self.counts.is_empty() {
            return Some(0);
        }
        let uncounted = self.uncounted.load(Ordering::Acquire);
        if !uncounted.is_multiple_of(UNCOUNTED_EVER) {
            return None;
        }
        // A count behind these is used for the first time by a context that sees the range (D).
        let counts = &self.counts[..self.nr_counts.load(Ordering::Acquire) as usize];
        let others = counts.iter().enumerate().filter(|(other, _)| *other != at as usize);
        others
            .map(|(_, count)| count.nr.load(Ordering::Acquire))
            .try_fold(uncounted, |sum, count| count.is_multiple_of(2).then(|| sum + count))
    }

    /// Enters a range that is to be tried again (A). `None` where too many are.
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
        // Until this, the range reads as one from 0 on, which holds back more than it must.
        self.ranges[at].0.store(start, Ordering::SeqCst);
        // Two that enter ranges which overlap see each other, one at least.
        fence(Ordering::SeqCst);
        Some(RetrySlot(at as u8))
    }

    /// The retries of a range have ended.
    // Release: who sees that it is gone sees what the retries did to the device as done.
    pub(crate) fn leave(&self, slot: RetrySlot) {
        self.ranges[usize::from(slot.0)].0.store(0, Ordering::Release);
        self.ranges[usize::from(slot.0)].1.store(0, Ordering::Release);
        self.nr.fetch_sub(1, Ordering::Release);
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
        self.writes_of_others(at) != Some(since.others)
            || log.overlaps_since(since.own, tag, ranges)
    }

    /// Whether any retry is under way (D; a write has been counted before).
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.nr.load(Ordering::Acquire) > 0
    }

    /// Whether one of the ranges overlaps a retry that is under way, other than `own`.
    #[cold]
    pub(crate) fn hold_back(
        &self,
        own: Option<RetrySlot>,
        mut ranges: impl Iterator<Item = (u64, u64)>,
    ) -> bool {
        let others = |at: usize| own != Some(RetrySlot(at as u8));
        ranges.any(|(start, len)| {
            self.ranges.iter().enumerate().any(|(at, (from, to))| {
                let (to, from) = (to.load(Ordering::Acquire), from.load(Ordering::Acquire));
                others(at) && from < start + len && start < to
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a disk with two contexts.
    fn of_two() -> Retries {
        let retries = Retries::new(2);
        assert_eq!((retries.join(2).of(0), retries.nr_counts.load(Ordering::Relaxed)), (0, 2));
        retries
    }

    #[test]
    fn a_write_is_overtaken_by_what_overlaps_it_or_by_any_of_another_context() {
        let (own, other) = (Tag::from_index(1), Tag::from_index(2));
        let retries = of_two();
        let mut log = WriteLog::new();
        log.push(0, 4096, own);
        let since = retries.moment(0, &log);
        let check = |retries: &Retries, log: &WriteLog, expected| {
            let ranges = [(0u64, 4096u64)].into_iter();
            assert_eq!(retries.was_overtaken(0, log, since, own, ranges), expected);
        };
        log.push(4096, 4096, other);
        log.push(512, 512, own);
        check(&retries, &log, false);
        retries.count_write(0);
        check(&retries, &log, false);
        retries.count_write(1);
        check(&retries, &log, true);
        retries.write_is_out(1);
        check(&retries, &log, true);
        let since = retries.moment(0, &log);
        assert!(!retries.was_overtaken(0, &log, since, own, [(0, 1)].into_iter()));
        retries.count_write(1);
        let since = retries.moment(0, &log);
        retries.write_is_out(1);
        assert!(retries.was_overtaken(0, &log, since, own, [(0, 1)].into_iter()));
        let retries = of_two();
        log.push(4095, 1, other);
        check(&retries, &log, true);
    }

    #[test]
    fn what_is_no_longer_remembered_counts_as_overlapping() {
        let (own, other) = (Tag::from_index(1), Tag::from_index(2));
        let retries = Retries::new(1);
        let mut log = WriteLog::new();
        let since = retries.moment(0, &log);
        for nth in 1..=LOG_LEN as u64 + 1 {
            assert!(!retries.was_overtaken(0, &log, since, own, [(0, 1)].into_iter()));
            log.push(nth * 4096, 4096, other);
        }
        assert!(retries.was_overtaken(0, &log, since, own, [(0, 1)].into_iter()));
    }

    #[test]
    fn a_range_is_held_until_its_retries_end() {
        let retries = Retries::new(1);
        let slot = retries.enter(8192, 12288).expect("a place");
        assert!(retries.any());
        for (start, len, held) in [(0, 8192, false), (8191, 2, true), (12287, 1, true)] {
            assert_eq!(retries.hold_back(None, [(start, len)].into_iter()), held, "{start}+{len}");
        }
        retries.leave(slot);
        assert!(!retries.any() && !retries.hold_back(None, [(8192, 1)].into_iter()));
        let slots: alloc::vec::Vec<_> = (0..RETRIES_MAX).map(|_| retries.enter(0, 1)).collect();
        assert!(slots.iter().all(Option::is_some) && retries.enter(0, 1).is_none());
    }

    #[test]
    fn counts_are_used_again_and_never_go_back() {
        let retries = Retries::shared(2);
        let (first, second) = (retries.join(2), retries.join(1));
        assert_eq!([first.of(0), first.of(1), second.of(0)], [0, 1, 2]);
        let log = WriteLog::new();
        let before = retries.moment(0, &log);
        retries.count_write(2);
        retries.write_is_out(2);
        retries.part(&second);
        let after = retries.moment(0, &log);
        assert_ne!(before, after);
        let third = retries.join(2);
        assert_eq!([third.of(0), third.of(1)], [2, 3]);
        assert_eq!(retries.moment(0, &log), after, "a disk that has not written changes nothing");
    }

    #[test]
    fn disk_without_room_for_its_counts_counts_as_one_that_writes_all_the_time() {
        let retries = Retries::shared(2);
        let (log, own) = (WriteLog::new(), Tag::from_index(1));
        let first = retries.join(2);
        let at = first.of(0);
        let before = retries.moment(at, &log);
        let is_overtaken =
            |at, since| retries.was_overtaken(at, &log, since, own, [(0, 1)].into_iter());
        assert!(!is_overtaken(at, before));
        let large = retries.join(63);
        assert_eq!(large.of(0), NOT_COUNTED);
        assert!(is_overtaken(at, before));
        let meanwhile = retries.moment(at, &log);
        assert!(is_overtaken(at, meanwhile));
        assert!(is_overtaken(large.of(0), retries.moment(large.of(0), &log)), "nor its own");
        retries.part(&large);
        assert!(is_overtaken(at, before) && is_overtaken(at, meanwhile));
        assert!(!is_overtaken(at, retries.moment(at, &log)));
        let last = retries.join(62);
        assert_eq!((last.of(0), last.of(61)), (2, 63), "its counts were given back");
    }
}
