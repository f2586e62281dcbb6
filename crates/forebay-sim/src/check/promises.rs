//! Effects of bios and commands on durability: passes the events of a run to [`Durable`].
//!
//! [`Durable`]: super::durable::Durable

use super::bios::Unit;
use super::cover::Piece;
use super::{Checks, Verdict, broken, rules};
use crate::image::Outcome;
use forebay_core::{Bio, BioFlags, BlockStatus, LostWrites, Op, QueuedBio};

impl Checks {
    /// Records that a bio enters the layer.
    pub(crate) fn queue_bio(&mut self, slot: u32, bio: &Bio, now: u64) {
        self.bios.queue(slot, bio, now, &mut self.register);
        let mark = self.durable.user_mark();
        let row = self.bios.row_mut(slot);
        row.mark = mark;
        if row.op.is_write() {
            for unit in 0..row.nr_units() {
                self.durable.queue(row.block + unit as u64, row.value(unit));
            }
        }
    }

    /// Removes a bio that the layer refused.
    pub(crate) fn refuse_bio(&mut self, slot: u32) {
        let row = self.bios.row(slot);
        if row.op.is_write() {
            for unit in 0..row.nr_units() {
                self.durable.refuse(row.block + unit as u64, row.value(unit));
            }
        }
        self.bios.refuse(slot, &mut self.register);
    }

    /// Records that a command goes to the device, which may refuse it. Returns the time of issue,
    /// which matters for a flush.
    pub(crate) fn issue(&mut self, op: Op, pieces: &[Piece], is_refused: bool) -> u64 {
        let nr_crash_points = self.durable.nr_crash_points;
        for piece in pieces {
            if op.is_write() {
                let verdict = self.retries.issue(piece, is_refused, &self.bios);
                self.expect(verdict);
            }
            let issued = self.bios.issue(piece.slot, piece.units());
            self.expect(issued);
            if op.is_write() {
                self.issue_write(piece);
            }
        }
        self.durable.count_as_one(nr_crash_points);
        self.durable.device_mark()
    }

    fn issue_write(&mut self, piece: &Piece) {
        let row = self.bios.row(piece.slot);
        if row.flags.contains(BioFlags::PREFLUSH) {
            // From now on its data may survive a crash.
            let verdict = self.durable.promise(row.mark);
            self.expect(verdict);
        }
        for unit in piece.units() {
            let row = self.bios.row(piece.slot);
            let verdict = self.durable.issue(row.block + unit as u64, row.value(unit));
            self.expect(verdict);
        }
    }

    /// Records that a write command has completed, with `nr` blocks certainly done.
    pub(crate) fn complete_write(&mut self, op: Op, is_fua: bool, pieces: &[Piece], nr: usize) {
        let is_durable = is_fua || !self.limits.volatile_cache;
        let units = pieces.iter().flat_map(|piece| piece.units().map(|unit| (piece.slot, unit)));
        for (nth, (slot, unit)) in units.enumerate() {
            let outcome = match op {
                Op::Write | Op::WriteZeroes if nth < nr && is_durable => Outcome::Durable,
                Op::Write | Op::WriteZeroes if nth < nr => Outcome::Cached(0),
                _ => Outcome::Unsure,
            };
            let row = self.bios.row(slot);
            self.durable.complete(row.block + unit as u64, row.value(unit), outcome);
        }
    }

    /// Returns whether blocks of a command that is under way were lost by a failed write-back.
    pub(crate) fn is_struck(&self, pieces: &[Piece]) -> bool {
        pieces.iter().any(|piece| {
            let row = self.bios.row(piece.slot);
            let is_struck = |unit: usize| {
                row.op.is_write()
                    && self.durable.is_struck(row.block + unit as u64, row.value(unit))
            };
            piece.units().any(is_struck)
        })
    }

    /// Records the completion of a flush that was issued at that time.
    pub(crate) fn complete_flush(&mut self, issued: u64, result: Result<u64, BlockStatus>) {
        match result {
            Ok(_) => self.durable.flushed(issued),
            Err(_) => self.durable.flush_failed(),
        }
    }

    /// Records and checks the end of a bio. `is_early` if the driver has it.
    pub(crate) fn end_bio(&mut self, bio: &QueuedBio, is_early: bool) -> Verdict {
        self.owner_depths.end(bio.number());
        self.bios.end(bio, is_early, &mut self.register)?;
        let nr_crash_points = self.durable.nr_crash_points;
        let verdict = self.end_promises(bio);
        self.durable.count_as_one(nr_crash_points);
        verdict
    }

    /// Records and checks what the end of a bio promises.
    fn end_promises(&mut self, bio: &QueuedBio) -> Verdict {
        let row = self.bios.row(bio.number());
        let is_good = bio.result().is_ok();
        let is_durable = row.flags.contains(BioFlags::FUA) || !self.limits.volatile_cache;
        let outcome = match row.op {
            Op::Write | Op::WriteZeroes if is_good && is_durable => Outcome::Durable,
            Op::Write | Op::WriteZeroes if is_good => Outcome::Cached(bio.durable_point()),
            _ => Outcome::Unsure,
        };
        if row.op.is_write() {
            for unit in 0..row.nr_units() {
                self.durable.end(row.block + unit as u64, row.value(unit), outcome);
            }
            self.durable.check_ended()?;
        }
        match row.op {
            Op::Flush if !is_good => Ok(()),
            Op::Flush if row.flags.contains(BioFlags::UP_TO) => {
                self.durable.promise_up_to(bio.bio().start)
            }
            Op::Flush => self.durable.promise(row.mark),
            _ if is_good && row.flags.contains(BioFlags::PREFLUSH) => {
                self.durable.promise(row.mark)
            }
            _ => Ok(()),
        }
    }

    /// Records that a task acknowledges the writes that a failed flush may have lost.
    pub(crate) fn acknowledge(&mut self, lost: LostWrites) {
        self.durable.acknowledge(lost.after, lost.up_to);
    }

    /// Records the completion that the layer gets: `nr_moved` blocks were transferred, and the rest
    /// is in state `rest`.
    pub(crate) fn complete_units(&mut self, pieces: &[Piece], nr_moved: usize, rest: Unit) {
        let mut left = nr_moved;
        for piece in pieces {
            let moved = piece.nr.min(left);
            left -= moved;
            let units = piece.units();
            let end = units.start + moved;
            if moved > 0 {
                self.bios.complete(piece.slot, units.start..end, Unit::Moved);
            }
            if moved < piece.nr {
                self.bios.complete(piece.slot, end..units.end, rest);
            }
        }
    }

    /// Checks, at the end of a flush, how many flushes its context has completed since it accepted
    /// this one (F6). The context has completed `nr_flushes` in total.
    pub(crate) fn check_flush_wait(&mut self, slot: u32, nr_flushes: u64) {
        let row = self.bios.row(slot);
        // One that a freeze held back may end before a flush that was about to be reaped.
        let nr = nr_flushes.saturating_sub(row.nr_flushes_before);
        if row.op == Op::Flush && nr > 2 {
            let what = format!("{} waited for {nr} flushes", row.name());
            self.expect(broken(rules::F6, what));
        }
    }

    /// Checks the issue of a flush by a context that has `nr_flushing` flushes at the device
    /// already.
    pub(crate) fn check_flush(&mut self, hctx: usize, nr_flushing: usize) {
        if nr_flushing > 0 {
            let what = format!("context {hctx} has {nr_flushing} there, and issues another");
            self.expect(broken(rules::F1, what));
        }
    }
}
