//! Durability: data acknowledged as durable survives a crash, and the rest is in a legal state
//! (P2).
//!
//! There are two images of what each block may hold after a crash. The device's image follows from
//! its commands, the user's from the results that the layer reports. After every event, the
//! device's values of each block must be among the user's. That covers a crash at every event, with
//! every subset of the volatile cache. Only two events can break it, so only these are checked: a
//! command that writes a version which the user may assume gone, and a promise that the device has
//! not kept.
//!
//! The user's image follows these rules:
//! - A successful flush makes durable every write that had ended before the flush was queued.
//! - The PREFLUSH of a write does the same, as soon as the write's own data is at the device.
//! - A write with FUA is durable when it succeeds; without a volatile cache, every write is.
//! - A flush up to a durable point makes durable every write with that point or an earlier one.
//! - The disk's own durable point does the same as soon as it moves.
//! - None of this holds for writes that a failed flush has lost, once the user acknowledged the
//!   loss.
//!
//! The device is as weak as these rules allow. A flush makes durable the writes that had been
//! reaped before it was issued. A failed flush loses every write that is not durable, and every
//! write under way. A device that is a file may also lose a single block at any time, when its
//! write-back fails; a later sync reports that (`file.rs`).

use super::{Verdict, broken, rules};
use crate::image::{Image, Outcome};
use forebay_core::Durability;

/// The two images.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    device: Image,
    user: Image,
    settled: Vec<u64>,
    /// Losses that the user has acknowledged: points after the first, up to the second.
    lost: Vec<(u64, u64)>,
    /// The newest point that the disk has reported as durable.
    claimed: u64,
    /// The number of crash points: events at which, for at least one unflushed block, the values
    /// that a crash may leave were compared with the legal ones. An event counts once.
    pub(crate) nr_crash_points: u64,
    /// The number of writes that were promised to be durable.
    pub(crate) nr_promises: u64,
}

impl Durable {
    /// Restores the initial state, and keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.device.reset();
        self.user.reset();
        self.settled.clear();
        self.lost.clear();
        (self.claimed, self.nr_crash_points, self.nr_promises) = (0, 0, 0);
    }

    /// Returns whether only the first `nr` blocks were ever used.
    pub(crate) fn is_within(&self, nr: u64) -> bool {
        self.device.is_within(nr) && self.user.is_within(nr)
    }
}

/// The user's view.
impl Durable {
    /// Returns the time of queueing of a bio; the bio makes durable every write that has ended
    /// before.
    pub(crate) fn user_mark(&mut self) -> u64 {
        self.user.mark()
    }

    pub(crate) fn queue(&mut self, block: u64, value: u64) {
        self.user.begin(block, value);
    }

    /// Removes a write that the layer refused.
    pub(crate) fn refuse(&mut self, block: u64, value: u64) {
        self.user.forget(block, value);
    }

    /// Records that a write has ended for one block. [`Durable::check_ended`] follows, after the
    /// last block of its bio.
    pub(crate) fn end(&mut self, block: u64, value: u64, outcome: Outcome) {
        let is_lost = |point| self.lost.iter().any(|&(after, to)| after < point && point <= to);
        let outcome = match outcome {
            Outcome::Cached(point) if is_lost(point) => Outcome::Unsure,
            other => other,
        };
        self.user.end(block, value, outcome);
        if outcome == Outcome::Durable {
            self.settled.push(block);
        }
    }

    /// Checks the blocks that have become durable with the end of a bio.
    pub(crate) fn check_ended(&mut self) -> Verdict {
        self.check(self.settled.len())
    }

    /// Records and checks the promise that every write that had ended before this time is durable.
    pub(crate) fn promise(&mut self, before: u64) -> Verdict {
        let nr = self.user.settle(before, &mut self.settled);
        self.check(nr)
    }

    /// Records and checks the promise that every write up to this point is durable.
    pub(crate) fn promise_up_to(&mut self, point: u64) -> Verdict {
        let nr = self.user.settle_up_to(point, &mut self.settled);
        self.check(nr)
    }

    /// Returns how many blocks were written, and for how many of them the user may expect several
    /// values after a crash.
    pub(crate) fn count_blocks(&mut self) -> (u64, u64) {
        self.user.count_blocks()
    }

    /// Checks the point that the disk reports as durable without a flush that has ended.
    pub(crate) fn check_durable_point(&mut self, durability: &Durability) -> Verdict {
        let durable = durability.durable();
        let up_to = durability.lost().map_or(durable, |lost| lost.after.min(durable));
        if up_to == self.claimed || !durability.is_durable(up_to) {
            return Ok(());
        }
        self.claimed = up_to;
        self.promise_up_to(up_to)
    }

    /// Records the user's acknowledgement that writes with points after `after` and up to `up_to`
    /// may be lost.
    pub(crate) fn acknowledge(&mut self, after: u64, up_to: u64) {
        self.lost.push((after, up_to));
        self.user.lose(after, up_to);
    }

    /// Checks that the device keeps the new promises, of so many writes.
    fn check(&mut self, nr: usize) -> Verdict {
        self.nr_promises += nr as u64;
        let mut blocks = std::mem::take(&mut self.settled);
        let is_point = blocks.iter().any(|&block| self.is_unflushed(block));
        self.nr_crash_points += u64::from(is_point);
        let verdict = blocks.iter().try_for_each(|&block| self.check_block(block));
        blocks.clear();
        self.settled = blocks;
        verdict
    }

    /// Returns whether a crash may leave one of several values in a block.
    pub(crate) fn is_unflushed(&self, block: u64) -> bool {
        self.device.nr_values(block) > 1
    }

    /// Merges the crash points counted since there were `before` of them into one: they belong to
    /// one event.
    pub(crate) fn count_as_one(&mut self, before: u64) {
        self.nr_crash_points = self.nr_crash_points.min(before + 1);
    }

    /// Returns how many values of a block the two images have.
    pub(crate) fn nr_values(&self, block: u64) -> usize {
        self.device.nr_values(block) + self.user.nr_values(block)
    }

    /// Checks that the user expects every value that a crash may leave in a block.
    pub(crate) fn check_block(&self, block: u64) -> Verdict {
        let unexpected = |value: &u64| !self.user.may_hold(block, *value);
        self.device.values(block).find(unexpected).map_or(Ok(()), |value| self.p2(block, value))
    }

    fn p2(&self, block: u64, value: u64) -> Verdict {
        let expected: Vec<_> = self.user.values(block).collect();
        let what = format!(
            "a crash may leave {value:#x} in block {block}, whose values are {expected:x?}"
        );
        broken(rules::P2, what)
    }
}

/// The device's view.
impl Durable {
    /// Records and checks the issue of a command that writes, for one block: the new value may
    /// reach the medium at any time from now on.
    pub(crate) fn issue(&mut self, block: u64, value: u64) -> Verdict {
        self.nr_crash_points += 1;
        self.device.begin(block, value);
        match self.user.may_hold(block, value) {
            true => Ok(()),
            false => self.p2(block, value),
        }
    }

    /// Records that the device has completed the command.
    pub(crate) fn complete(&mut self, block: u64, value: u64, outcome: Outcome) {
        self.device.end(block, value, outcome);
    }

    /// Returns the time at which a flush is issued.
    pub(crate) fn device_mark(&mut self) -> u64 {
        self.device.mark()
    }

    /// Records the success of a flush that was issued at that time.
    pub(crate) fn flushed(&mut self, issued: u64) {
        self.device.settle(issued, &mut self.settled);
        self.settled.clear();
    }

    /// Records that the write-back of a block has failed.
    pub(crate) fn write_back_failed(&mut self, block: u64) {
        self.device.lose_block(block);
    }

    /// Returns whether a write that is under way was lost by a failed write-back.
    pub(crate) fn is_struck(&self, block: u64, value: u64) -> bool {
        self.device.is_struck(block, value)
    }

    /// Returns whether the page cache of the device has something of a block to write back.
    pub(crate) fn is_dirty(&mut self, block: u64) -> bool {
        self.device.is_dirty(block)
    }

    /// Records a failed flush: writes that are not durable may never become so.
    pub(crate) fn flush_failed(&mut self) {
        self.device.lose_all();
    }
}
