//! Write counts: how many writes each hardware context has issued, for all disks on one file.
//!
//! A disk takes a count for each of its contexts when it is opened, and gives them back when it is
//! closed. There are as many counts as four disks like the first need, and at least 64. A disk that
//! finds too few free counts is *uncounted*. While such a disk is open, no write is tried again;
//! nor later, if the write was issued before the disk was closed.
//!
//! The letters A to D are those of the argument in [`retry`](super).

use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence};
use alloc::boxed::Box;

/// The counts of all contexts of all disks on one file.
#[derive(Debug)]
pub(crate) struct WriteCounts {
    /// Empty if there is only one context: its own writes are in its log.
    counts: Box<[WriteCount]>,
    /// Counts at or after this index were never in use.
    nr_ever_used: AtomicU32,
    /// Uncounted disks: the low half counts those that are open, the high half all that were ever
    /// opened.
    uncounted: AtomicU64,
}

/// The writes of a hardware context. The number never decreases, even when another context takes
/// it.
#[derive(Debug)]
struct WriteCount {
    /// Twice the number of writes that were issued, plus one while a write is being issued. Only
    /// the holder of the context's token changes it.
    nr: AtomicU64,
    /// 1 while a disk owns the count.
    is_taken: AtomicU32,
}

/// The index of a context without a count.
const NOT_COUNTED: u32 = u32::MAX;

/// One uncounted disk, in the two halves of [`WriteCounts::uncounted`].
const UNCOUNTED_OPEN: u64 = 1;
const UNCOUNTED_EVER: u64 = 1 << 32;

/// The counts of a disk's hardware contexts. `None` if the disk is uncounted.
#[derive(Debug)]
pub(crate) struct Counts(Option<Box<[u32]>>);

impl Counts {
    /// Returns the index of the count of context `hctx`.
    pub(crate) fn of(&self, hctx: u32) -> u32 {
        self.0.as_ref().map_or(NOT_COUNTED, |counts| counts[hctx as usize])
    }
}

impl WriteCounts {
    /// Creates `nr` counts.
    pub(super) fn new(nr: u32) -> WriteCounts {
        let count = || WriteCount { nr: AtomicU64::new(0), is_taken: AtomicU32::new(0) };
        WriteCounts {
            counts: (0..nr).map(|_| count()).collect(),
            nr_ever_used: AtomicU32::new(0),
            uncounted: AtomicU64::new(0),
        }
    }

    /// Takes counts for a disk of `nr_hctxs` contexts that is being opened and has not written yet.
    pub(crate) fn join(&self, nr_hctxs: u32) -> Counts {
        if self.counts.is_empty() {
            assert!(nr_hctxs == 1, "made for one context");
            return Counts(Some([NOT_COUNTED].into()));
        }
        // Acquire: pairs with the release in `part`, so that the count continues from its last
        // owner's.
        let is_free = |count: &WriteCount| {
            let order = (Ordering::Acquire, Ordering::Relaxed);
            count.is_taken.compare_exchange(0, 1, order.0, order.1).is_ok()
        };
        let places = 0..self.counts.len() as u32;
        let free = places.filter(|at| is_free(&self.counts[*at as usize]));
        let taken: Box<[u32]> = free.take(nr_hctxs as usize).collect();
        // This precedes the first counted write of these contexts, and that write passes a fence.
        let nr = taken.last().map_or(0, |last| last + 1);
        self.nr_ever_used.fetch_max(nr, Ordering::SeqCst);
        if taken.len() == nr_hctxs as usize {
            return Counts(Some(taken));
        }
        self.give_back(&taken);
        self.uncounted.fetch_add(UNCOUNTED_OPEN + UNCOUNTED_EVER, Ordering::SeqCst);
        // This replaces the fence of each write.
        fence(Ordering::SeqCst);
        Counts(None)
    }

    /// Gives back the counts of a disk that is closed. All its writes have ended.
    pub(crate) fn part(&self, counts: &Counts) {
        match &counts.0 {
            Some(taken) => self.give_back(taken),
            // Release: a thread that sees the disk closed also sees its writes as ended.
            None => _ = self.uncounted.fetch_sub(UNCOUNTED_OPEN, Ordering::Release),
        }
    }

    fn give_back(&self, taken: &[u32]) {
        let counts = taken.iter().filter_map(|at| self.counts.get(*at as usize));
        counts.for_each(|count| count.is_taken.store(0, Ordering::Release));
    }

    /// Counts a write that the context whose count is at `at` is about to issue (C, and the fence).
    /// The count is odd until [`write_is_out`](Self::write_is_out).
    #[inline]
    pub(crate) fn count_write(&self, at: u32) {
        // Without a count, there is no other context, or all others see that an uncounted disk is
        // open.
        if let Some(WriteCount { nr, .. }) = self.counts.get(at as usize) {
            nr.store(nr.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// Records that the write was issued, or will not be issued now. Release: a context that sees
    /// the count also sees the write as issued.
    #[inline]
    pub(crate) fn write_is_out(&self, at: u32) {
        if let Some(WriteCount { nr, .. }) = self.counts.get(at as usize) {
            nr.store(nr.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    /// Returns the number of writes of all contexts except the one whose count is at `at`. Returns
    /// `None` if a write is being issued, or may be, because an uncounted disk is open.
    pub(super) fn of_others(&self, at: u32) -> Option<u64> {
        if self.counts.is_empty() {
            return Some(0);
        }
        let uncounted = self.uncounted.load(Ordering::Acquire);
        if !uncounted.is_multiple_of(UNCOUNTED_EVER) {
            return None;
        }
        // A context that uses a count after these for the first time sees the range (D).
        let counts = &self.counts[..self.nr_ever_used.load(Ordering::Acquire) as usize];
        let others = counts.iter().enumerate().filter(|(other, _)| *other != at as usize);
        others
            .map(|(_, count)| count.nr.load(Ordering::Acquire))
            .try_fold(uncounted, |sum, count| count.is_multiple_of(2).then(|| sum + count))
    }

    #[cfg(test)]
    pub(super) fn nr_ever_used(&self) -> u32 {
        self.nr_ever_used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Retries, WriteLog};
    use super::NOT_COUNTED;
    use crate::tag::Tag;

    #[test]
    fn counts_are_used_again_and_never_go_back() {
        let retries = Retries::shared(2);
        let (first, second) = (retries.writes.join(2), retries.writes.join(1));
        assert_eq!([first.of(0), first.of(1), second.of(0)], [0, 1, 2]);
        let log = WriteLog::new();
        let before = retries.moment(0, &log);
        retries.writes.count_write(2);
        retries.writes.write_is_out(2);
        retries.writes.part(&second);
        let after = retries.moment(0, &log);
        assert_ne!(before, after);
        let third = retries.writes.join(2);
        assert_eq!([third.of(0), third.of(1)], [2, 3]);
        assert_eq!(retries.moment(0, &log), after, "a disk that has not written changes nothing");
    }

    #[test]
    fn disk_without_room_for_its_counts_counts_as_one_that_writes_all_the_time() {
        let retries = Retries::shared(2);
        let (log, own) = (WriteLog::new(), Tag::from_index(1));
        let first = retries.writes.join(2);
        let at = first.of(0);
        let before = retries.moment(at, &log);
        let is_overtaken =
            |at, since| retries.was_overtaken(at, &log, since, own, [(0, 1)].into_iter());
        assert!(!is_overtaken(at, before));
        let large = retries.writes.join(63);
        assert_eq!(large.of(0), NOT_COUNTED);
        assert!(is_overtaken(at, before));
        let meanwhile = retries.moment(at, &log);
        assert!(is_overtaken(at, meanwhile));
        assert!(is_overtaken(large.of(0), retries.moment(large.of(0), &log)), "nor its own");
        retries.writes.part(&large);
        assert!(is_overtaken(at, before) && is_overtaken(at, meanwhile));
        assert!(!is_overtaken(at, retries.moment(at, &log)));
        let last = retries.writes.join(62);
        assert_eq!((last.of(0), last.of(61)), (2, 63), "its counts were given back");
    }
}
