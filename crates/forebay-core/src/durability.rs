//! What of a disk is durable: numbers that all its hardware contexts share.
//!
//! - Each batch of writes that end gets a number, the *durable point* of its bios, before they end.
//! - A flush is issued with the newest number in hand. When it has succeeded everything up to that
//!   number is durable, whoever wrote it.
//! - When it has failed, what ended since the last durable point is *lost-unknown*: after a failed
//!   flush a device, or a kernel, may have dropped it, and another flush proves nothing. Whoever
//!   asks for that to be durable fails, until somebody acknowledges the loss.
//!
//! Nothing waits here, and nothing is locked: contexts end writes, issue flushes and ask, at once.
//!
//! Counterpart in Linux: none for the block layer; `errseq_t` for the errors of a file.

use crate::primitive::{AtomicU64, Ordering};
use core::ops::RangeInclusive;

/// How many losses that nobody has acknowledged are told apart. Of more, each counts as a loss of
/// everything.
const NR_LOSSES: usize = 8;

/// The point of what was written before the disk was opened.
const FIRST: u64 = 1;

/// The durable points of a disk. All methods may be called by any thread at any time.
#[derive(Debug)]
pub struct Durability {
    /// The number of the batch of writes that ended last.
    point: AtomicU64,
    durable: AtomicU64,
    /// How many flushes have failed.
    nr_failures: AtomicU64,
    /// How many losses there were, and of how many everybody knows.
    nr_losses: AtomicU64,
    nr_acknowledged: AtomicU64,
    losses: [Loss; NR_LOSSES],
}

/// What a failed flush may have lost: points after the first, up to the second.
#[derive(Debug)]
struct Loss {
    after: AtomicU64,
    up_to: AtomicU64,
    /// Which loss this is, from 1 on; 0 while it is being written.
    number: AtomicU64,
}

/// Durable points of which nobody knows whether they are on stable storage, since a flush failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWrites {
    /// What ended up to this point is not concerned.
    pub after: u64,
    /// Nor is what ended after this one.
    pub up_to: u64,
}

/// What somebody wants to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Everything up to a point.
    All(u64),
    /// The writes of one point.
    Point(u64),
}

impl Wanted {
    /// The point that a flush has to have in hand.
    pub(crate) fn up_to(self) -> u64 {
        match self {
            Wanted::All(point) | Wanted::Point(point) => point,
        }
    }

    fn is_in(self, lost: LostWrites) -> bool {
        match self {
            Wanted::All(point) => lost.after < lost.up_to.min(point),
            Wanted::Point(point) => lost.after < point && point <= lost.up_to,
        }
    }
}

impl Default for Durability {
    fn default() -> Durability {
        Durability::new()
    }
}

impl Durability {
    /// Of a disk to which nothing was written yet, as far as is known: its first flush has
    /// something to do.
    pub fn new() -> Durability {
        Durability {
            point: AtomicU64::new(FIRST),
            durable: AtomicU64::new(0),
            nr_failures: AtomicU64::new(0),
            nr_losses: AtomicU64::new(0),
            nr_acknowledged: AtomicU64::new(0),
            losses: core::array::from_fn(|_| Loss {
                after: AtomicU64::new(0),
                up_to: AtomicU64::new(0),
                number: AtomicU64::new(0),
            }),
        }
    }

    /// The durable point of the writes that ended last: every write that has ended has this one or
    /// an earlier one.
    pub fn point(&self) -> u64 {
        // Acquire: with the release of each number up to the one that is read (changes of one
        // word form one chain). So who issues a flush after this does so after those writes have
        // completed at the device.
        self.point.load(Ordering::Acquire)
    }

    /// Everything up to this point was made durable by a flush; unless it is
    /// [lost](Durability::lost).
    pub fn durable(&self) -> u64 {
        // Acquire: with the release in `flushed`. What is concluded from it is that the flush
        // has ended.
        self.durable.load(Ordering::Acquire)
    }

    /// Whether everything up to `point` is on stable storage for certain.
    pub fn is_durable(&self, point: u64) -> bool {
        // In this order: a loss is noted before a later flush can be issued, and so before
        // that can move the durable point over it.
        let is_flushed = self.durable() >= point;
        is_flushed && self.check(Wanted::All(point)).is_some()
    }

    /// A batch of writes that the device has completed is about to end: its number.
    #[inline]
    pub fn writes_end(&self) -> u64 {
        // AcqRel: see `point`. Who is told of the end comes after this, and so sees it.
        self.point.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A flush that was issued when `point` was the newest has succeeded.
    pub fn flushed(&self, point: u64) {
        self.durable.fetch_max(point, Ordering::AcqRel);
    }

    /// As [`writes_end`](Durability::writes_end), of writes that were at the device when a flush
    /// failed: their number, which is lost. They may have been in the cache already.
    pub fn doubtful_writes_end(&self) -> u64 {
        let point = self.writes_end();
        let acknowledged = self.nr_acknowledged.load(Ordering::Acquire);
        let losses = told_apart(acknowledged, self.nr_losses.load(Ordering::Acquire));
        // Who is told of one of those is told of these too. Not of one that is being noted just
        // now: nobody knows yet where it ends.
        let noted = losses.filter_map(|number| self.noted_loss(number));
        let point_lost = noted.filter(|lost| lost.after < lost.up_to).map(|lost| lost.up_to).max();
        point_lost.unwrap_or_else(|| {
            self.note_loss(|| (point - 1, point));
            point
        })
    }

    /// How many flushes have failed. Who draws a number first and does not see a failure here then
    /// has a number that the failure counts as lost.
    pub fn nr_failures(&self) -> u64 {
        self.nr_failures.load(Ordering::Acquire)
    }

    /// A flush has failed just now. Whoever has writes at the device is to look at
    /// `nr_failures`.
    pub fn flush_failed(&self) {
        self.nr_failures.fetch_add(1, Ordering::AcqRel);
        // Changes of the point form one chain, and this is one: a number that is drawn before it is
        // in the range; who draws a later one sees the failure.
        self.note_loss(|| (self.durable(), self.point.fetch_add(0, Ordering::AcqRel)));
    }

    fn note_loss(&self, range: impl FnOnce() -> (u64, u64)) {
        let number = self.nr_losses.fetch_add(1, Ordering::AcqRel) + 1;
        let loss = &self.losses[(number % NR_LOSSES as u64) as usize];
        // Each with release, after the count: who reads one that replaces what it looks for sees
        // by the count that it was replaced.
        loss.number.store(0, Ordering::Release);
        let (after, up_to) = range();
        loss.after.store(after, Ordering::Release);
        loss.up_to.store(up_to, Ordering::Release);
        loss.number.store(number, Ordering::Release);
    }

    /// What a failed flush has lost, as long as nobody has acknowledged it.
    pub fn lost(&self) -> Option<LostWrites> {
        self.lost_since(self.nr_acknowledged.load(Ordering::Acquire)).0
    }

    /// Says that the losses so far are known, and what they are: whoever asks for these points
    /// from now on is not told any more. (Whoever waits already is.)
    pub fn acknowledge_loss(&self) -> Option<LostWrites> {
        let (lost, nr_losses) = self.lost_since(self.nr_acknowledged.load(Ordering::Acquire));
        self.nr_acknowledged.fetch_max(nr_losses, Ordering::AcqRel);
        lost
    }

    /// For who begins to wait: how many losses there are, unless one of them that is not
    /// acknowledged concerns what is wanted.
    pub(crate) fn check(&self, wanted: Wanted) -> Option<u64> {
        let acknowledged = self.nr_acknowledged.load(Ordering::Acquire);
        self.check_since(acknowledged, wanted)
    }

    /// For who waits since there were `nr_losses`: likewise, of those that came later, acknowledged
    /// or not.
    pub(crate) fn check_since(&self, nr_losses: u64, wanted: Wanted) -> Option<u64> {
        let now = self.nr_losses.load(Ordering::Acquire);
        let is_lost = told_apart(nr_losses, now).any(|number| wanted.is_in(self.loss(number)));
        (!is_lost).then_some(now)
    }

    /// All losses since there were `nr_losses`, as one range; and how many there are now.
    fn lost_since(&self, nr_losses: u64) -> (Option<LostWrites>, u64) {
        let now = self.nr_losses.load(Ordering::Acquire);
        let losses = told_apart(nr_losses, now).map(|number| self.loss(number));
        let all = losses.filter(|lost| lost.after < lost.up_to).reduce(|one, other| LostWrites {
            after: one.after.min(other.after),
            up_to: one.up_to.max(other.up_to),
        });
        (all, now)
    }

    /// One loss; of everything, where it is not known yet, or any more.
    fn loss(&self, number: u64) -> LostWrites {
        let all = || LostWrites { after: 0, up_to: self.point() };
        self.noted_loss(number).unwrap_or_else(all)
    }

    fn noted_loss(&self, number: u64) -> Option<LostWrites> {
        let loss = &self.losses[(number % NR_LOSSES as u64) as usize];
        let is_this = loss.number.load(Ordering::Acquire) == number;
        let after = loss.after.load(Ordering::Acquire);
        let up_to = loss.up_to.load(Ordering::Acquire);
        let is_kept = self.nr_losses.load(Ordering::Acquire) - number < NR_LOSSES as u64;
        (is_this && is_kept).then_some(LostWrites { after, up_to })
    }
}

/// The losses after the first number, up to the second. Of all that are not told apart any more,
/// one stands for the others: a gone device may fail any number of flushes.
fn told_apart(nr_losses: u64, now: u64) -> RangeInclusive<u64> {
    (nr_losses + 1).max(now.saturating_sub(NR_LOSSES as u64))..=now
}

#[cfg(test)]
#[path = "durability_tests.rs"]
mod tests;
