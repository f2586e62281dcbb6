//! Durable points and losses of a disk, shared by all its hardware contexts.
//!
//! - Each batch of completed writes draws a number before its bios end: their *durable point*.
//! - A flush takes the newest number when it is issued. When the flush has succeeded, all writes up
//!   to that number are durable, whichever context they ended on.
//! - When it has failed, all writes that ended after the last durable point are *lost-unknown*. A
//!   device or a kernel may have dropped them, and another flush proves nothing. Flushes and waits
//!   that cover them fail until the loss is acknowledged.
//!
//! Nothing here blocks or takes a lock. Contexts end writes, issue flushes and query at once.
//!
//! Counterpart in Linux: none for the block layer; `errseq_t` for the errors of a file.

use crate::primitive::{AtomicU64, Ordering};
use core::ops::RangeInclusive;

/// The number of losses whose ranges are kept. An older loss that is not acknowledged counts as a
/// loss of all writes.
const NR_LOSSES: usize = 8;

/// The durable point of writes from before the disk was opened.
const FIRST: u64 = 1;

/// The durable points and losses of a disk. Any thread may call any method at any time.
#[derive(Debug)]
pub struct Durability {
    /// The number of the last batch of writes that ended.
    point: AtomicU64,
    durable: AtomicU64,
    /// The number of failed flushes.
    nr_failures: AtomicU64,
    /// The number of losses so far, and how many of them are acknowledged.
    nr_losses: AtomicU64,
    nr_acknowledged: AtomicU64,
    losses: [Loss; NR_LOSSES],
}

/// The durable points that a failed flush may have lost: those after `after`, up to `up_to`.
#[derive(Debug)]
struct Loss {
    after: AtomicU64,
    up_to: AtomicU64,
    /// The number of this loss, from 1; 0 while it is being written.
    number: AtomicU64,
}

/// A range of durable points whose writes may be lost, because a flush failed. It is unknown
/// whether they are on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWrites {
    /// Writes up to and including this point are not affected.
    pub after: u64,
    /// The last affected point. Writes after it are not affected.
    pub up_to: u64,
}

/// The writes that a flush or a wait has to cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Everything up to a point.
    All(u64),
    /// The writes of one point.
    Point(u64),
}

impl Wanted {
    /// Returns the point that a flush must have when it is issued.
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
    /// Creates the state of a newly opened disk. Writes from before the open may not be durable, so
    /// the first flush is not elided.
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

    /// Returns the durable point of the writes that ended last. Every ended write has this point or
    /// an earlier one.
    pub fn point(&self) -> u64 {
        // Acquire: pairs with the release of every number up to the one read, because all changes
        // of the word form one release sequence. So a flush that is issued after this load is
        // issued after those writes have completed at the device.
        self.point.load(Ordering::Acquire)
    }

    /// Returns the point up to which flushes have made all writes durable, except those that are
    /// [lost](Durability::lost).
    pub fn durable(&self) -> u64 {
        // Acquire: pairs with the release in `flushed`. The caller concludes that the flush has
        // ended.
        self.durable.load(Ordering::Acquire)
    }

    /// Returns whether all writes up to `point` are known to be on stable storage.
    pub fn is_durable(&self, point: u64) -> bool {
        // In this order: a loss is recorded before a later flush can be issued. So it is recorded
        // before that flush can move the durable point past it.
        let is_flushed = self.durable() >= point;
        is_flushed && self.check(Wanted::All(point)).is_some()
    }

    /// Draws the number of a batch of writes that the device has completed. The caller ends their
    /// bios afterwards.
    #[inline]
    pub fn writes_end(&self) -> u64 {
        // AcqRel: see `point`. The bios end after this, so code that sees their end sees the
        // number.
        self.point.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Records the success of a flush that was issued when `point` was the newest number.
    pub fn flushed(&self, point: u64) {
        self.durable.fetch_max(point, Ordering::AcqRel);
    }

    /// Draws a number as [`writes_end`](Durability::writes_end) does, for writes that were at the
    /// device when a flush failed. Their data may already have been in the cache, so the returned
    /// point is within a loss.
    pub fn doubtful_writes_end(&self) -> u64 {
        let point = self.writes_end();
        let acknowledged = self.nr_acknowledged.load(Ordering::Acquire);
        let losses = remembered_losses(acknowledged, self.nr_losses.load(Ordering::Acquire));
        // A recorded loss reports these writes too. A loss that is being recorded does not, because
        // its end is not known yet.
        let noted = losses.filter_map(|number| self.noted_loss(number));
        let point_lost = noted.filter(|lost| lost.after < lost.up_to).map(|lost| lost.up_to).max();
        point_lost.unwrap_or_else(|| {
            self.note_loss(|| (point - 1, point));
            point
        })
    }

    /// Returns the number of failed flushes. If a thread draws a number and then does not see a
    /// failure here, that failure counts the number as lost.
    pub fn nr_failures(&self) -> u64 {
        self.nr_failures.load(Ordering::Acquire)
    }

    /// Records a failed flush. Contexts with writes at the device check `nr_failures` when those
    /// complete.
    pub fn flush_failed(&self) {
        self.nr_failures.fetch_add(1, Ordering::AcqRel);
        // All changes of `point` form one release sequence, and this `fetch_add` is part of it. A
        // number drawn before it is in the range. A thread that draws a later one sees the failure.
        self.note_loss(|| (self.durable(), self.point.fetch_add(0, Ordering::AcqRel)));
    }

    fn note_loss(&self, range: impl FnOnce() -> (u64, u64)) {
        let number = self.nr_losses.fetch_add(1, Ordering::AcqRel) + 1;
        let loss = &self.losses[(number % NR_LOSSES as u64) as usize];
        // Each store is a release after the count. A reader that finds a newer loss in the slot
        // therefore sees from the count that its own was replaced.
        loss.number.store(0, Ordering::Release);
        let (after, up_to) = range();
        loss.after.store(after, Ordering::Release);
        loss.up_to.store(up_to, Ordering::Release);
        loss.number.store(number, Ordering::Release);
    }

    /// Returns the range of all losses that are not acknowledged.
    pub fn lost(&self) -> Option<LostWrites> {
        self.lost_since(self.nr_acknowledged.load(Ordering::Acquire)).0
    }

    /// Acknowledges all losses so far and returns their range. Flushes and waits that begin later
    /// do not fail because of them. Those that began earlier still do.
    pub fn acknowledge_loss(&self) -> Option<LostWrites> {
        let (lost, nr_losses) = self.lost_since(self.nr_acknowledged.load(Ordering::Acquire));
        self.nr_acknowledged.fetch_max(nr_losses, Ordering::AcqRel);
        lost
    }

    /// Checks the losses that are not acknowledged, when a wait begins. Returns `None` if one of
    /// them covers `wanted`, otherwise the number of losses so far.
    pub(crate) fn check(&self, wanted: Wanted) -> Option<u64> {
        let acknowledged = self.nr_acknowledged.load(Ordering::Acquire);
        self.check_since(acknowledged, wanted)
    }

    /// Checks all losses after the first `nr_losses`, acknowledged or not, for a wait that began at
    /// that number. Returns the same as [`check`](Durability::check).
    pub(crate) fn check_since(&self, nr_losses: u64, wanted: Wanted) -> Option<u64> {
        let now = self.nr_losses.load(Ordering::Acquire);
        let is_lost =
            remembered_losses(nr_losses, now).any(|number| wanted.is_in(self.loss(number)));
        (!is_lost).then_some(now)
    }

    /// Returns the union of all losses after the first `nr_losses`, and the number of losses so
    /// far.
    fn lost_since(&self, nr_losses: u64) -> (Option<LostWrites>, u64) {
        let now = self.nr_losses.load(Ordering::Acquire);
        let losses = remembered_losses(nr_losses, now).map(|number| self.loss(number));
        let all = losses.filter(|lost| lost.after < lost.up_to).reduce(|one, other| LostWrites {
            after: one.after.min(other.after),
            up_to: one.up_to.max(other.up_to),
        });
        (all, now)
    }

    /// Returns one loss: of all writes if its range is not yet recorded, or no longer kept.
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

/// Returns the numbers of the losses after the first `nr_losses`, up to `now`. One number stands
/// for all whose ranges are no longer kept, because a device that is gone may fail any number of
/// flushes.
fn remembered_losses(nr_losses: u64, now: u64) -> RangeInclusive<u64> {
    (nr_losses + 1).max(now.saturating_sub(NR_LOSSES as u64))..=now
}

#[cfg(all(test, blk_loom))]
mod models;
#[cfg(test)]
mod tests;
