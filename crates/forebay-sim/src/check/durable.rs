//! What was acknowledged as durable is there after a crash, and the rest is a legal state (P2).
//!
//! There are two images of what each block may hold after a crash: the device's, by its commands,
//! and the user's, by what the layer has said. After every event, the device's must be among the
//! user's, block for block. That is a crash at every event, with every subset of what the volatile
//! cache holds. Only two events can break it: a command that brings a version which the user was
//! told is gone, and a promise that the device has not kept. There it is looked at.
//!
//! What the user was told:
//! - a flush that succeeds makes durable what had ended before it was queued;
//! - so does the PREFLUSH of a write, as soon as its own data is at the device;
//! - a write with FUA is durable when it succeeds, and without a volatile cache every write;
//! - a flush up to a durable point, what was given that point or an earlier one;
//! - the disk's own durable point does the same, as soon as it moves;
//! - nothing of this for what a failed flush has lost, once that was acknowledged.
//!
//! The device is as weak as that: a flush makes durable what had been reaped before it was issued,
//! and a flush that fails loses what it has not made durable, and what is under way. A device that
//! is a file may also lose a single block at any time, when its write-back fails; a later sync
//! reports that (`file.rs`).

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
    /// The newest point that the disk was known to call durable.
    claimed: u64,
    /// Moments at which a crash was looked at.
    pub(crate) nr_crash_points: u64,
    /// Writes that were promised to be durable.
    pub(crate) nr_promises: u64,
}

impl Durable {
    /// As it was at first, in the same memory.
    pub(crate) fn reset(&mut self) {
        self.device.reset();
        self.user.reset();
        self.settled.clear();
        self.lost.clear();
        (self.claimed, self.nr_crash_points, self.nr_promises) = (0, 0, 0);
    }
}

/// What the user sees.
impl Durable {
    /// The moment at which a bio is queued that makes durable what has ended before.
    pub(crate) fn user_mark(&mut self) -> u64 {
        self.user.mark()
    }

    pub(crate) fn queue(&mut self, block: u64, value: u64) {
        self.user.begin(block, value);
    }

    /// The layer refused it.
    pub(crate) fn refuse(&mut self, block: u64, value: u64) {
        self.user.forget(block, value);
    }

    /// A write's block has ended.
    pub(crate) fn end(&mut self, block: u64, value: u64, outcome: Outcome) -> Verdict {
        let is_lost = |point| self.lost.iter().any(|&(after, to)| after < point && point <= to);
        let outcome = match outcome {
            Outcome::Cached(point) if is_lost(point) => Outcome::Unsure,
            other => other,
        };
        self.user.end(block, value, outcome);
        let is_durable = outcome == Outcome::Durable;
        if is_durable {
            self.settled.push(block);
        }
        self.check(is_durable.into())
    }

    /// It was said that all is durable that had ended before this moment.
    pub(crate) fn promise(&mut self, before: u64) -> Verdict {
        let nr = self.user.settle(before, &mut self.settled);
        self.check(nr)
    }

    /// It was said that all is durable up to this point.
    pub(crate) fn promise_up_to(&mut self, point: u64) -> Verdict {
        let nr = self.user.settle_up_to(point, &mut self.settled);
        self.check(nr)
    }

    /// Checks what the disk calls durable by itself, without a flush that has ended.
    pub(crate) fn check_durable_point(&mut self, durability: &Durability) -> Verdict {
        let durable = durability.durable();
        let up_to = durability.lost().map_or(durable, |lost| lost.after.min(durable));
        if up_to == self.claimed || !durability.is_durable(up_to) {
            return Ok(());
        }
        self.claimed = up_to;
        self.promise_up_to(up_to)
    }

    /// The user acknowledges that what has points after the first and up to the second may be
    /// lost.
    pub(crate) fn acknowledge(&mut self, after: u64, up_to: u64) {
        self.lost.push((after, up_to));
        self.user.lose(after, up_to);
    }

    /// Whether the device keeps what was promised just now, of so many writes.
    fn check(&mut self, nr: usize) -> Verdict {
        self.nr_crash_points += 1;
        self.nr_promises += nr as u64;
        let blocks = std::mem::take(&mut self.settled);
        let verdict = blocks.iter().try_for_each(|&block| self.check_block(block));
        self.settled = blocks;
        self.settled.clear();
        verdict
    }

    /// Whether what a crash may leave in a block is what the user expects.
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

/// What the device sees.
impl Durable {
    /// A command that writes is issued.
    pub(crate) fn issue(&mut self, block: u64, value: u64) -> Verdict {
        self.nr_crash_points += 1;
        self.device.begin(block, value);
        match self.user.may_hold(block, value) {
            true => Ok(()),
            false => self.p2(block, value),
        }
    }

    /// Its completion is handed over.
    pub(crate) fn complete(&mut self, block: u64, value: u64, outcome: Outcome) {
        self.nr_crash_points += 1;
        self.device.end(block, value, outcome);
    }

    /// The moment at which a flush is issued.
    pub(crate) fn device_mark(&mut self) -> u64 {
        self.device.mark()
    }

    /// A flush is done that was issued then.
    pub(crate) fn flushed(&mut self, issued: u64) {
        self.nr_crash_points += 1;
        self.device.settle(issued, &mut self.settled);
        self.settled.clear();
    }

    /// The write-back of a block has failed.
    pub(crate) fn write_back_failed(&mut self, block: u64) {
        self.nr_crash_points += 1;
        self.device.lose_block(block);
    }

    /// Returns whether a write that is under way was lost by a failed write-back.
    pub(crate) fn is_struck(&self, block: u64, value: u64) -> bool {
        self.device.is_struck(block, value)
    }

    /// Returns whether the page cache of the device has something of a block to write back.
    pub(crate) fn is_dirty(&self, block: u64) -> bool {
        self.device.is_dirty(block)
    }

    /// A flush has failed, and what was not durable may never be.
    pub(crate) fn flush_failed(&mut self) {
        self.nr_crash_points += 1;
        self.device.lose_all();
    }
}
