//! Commands over their time limit, as the checkers find them (H1, H3), and the memory of bios that
//! have ended before their commands (H5).
//!
//! Only live commands are visited, and only when one of them can be due.

use super::{DriverState, Row};
use crate::check::{Broken, Checks, Verdict, broken, rules};
use crate::scenario::OVERTAKEN_MAX_WITH_FAULTS;
use forebay_core::{BlockStatus, MemoryHold, Op};
use std::sync::Arc;

impl Row {
    /// Returns the ranges of the command, as (first block, number). That of a flush is empty.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let flush = self.pieces.is_empty().then_some((0, 0));
        self.pieces.iter().map(|piece| (piece.block, piece.nr as u64)).chain(flush)
    }
}

impl DriverState {
    /// Returns how many commands are over the time limit now, and were not before.
    pub(crate) fn count_overdue(&mut self, now: u64, limit_ns: u64) -> u64 {
        if now < self.oldest_ns.saturating_add(limit_ns) {
            return 0;
        }
        let mut nr = 0;
        self.oldest_ns = u64::MAX;
        for tag in self.live.iter() {
            let row = &mut self.rows[tag];
            match row.overdue_ns {
                Some(_) => {}
                None if now >= row.issued_ns + limit_ns => {
                    row.overdue_ns = Some(now);
                    nr += 1;
                }
                None => self.oldest_ns = self.oldest_ns.min(row.issued_ns),
            }
        }
        self.nr_overdue += nr as usize;
        nr
    }

    /// Marks the commands whose grace period is over, and those of their bios that may end before
    /// the command (H5). Returns the boxes of these bios.
    pub(crate) fn give_up(
        &mut self,
        now: u64,
        grace_ns: u64,
        checks: &mut Checks,
        is_file: bool,
    ) -> Vec<u32> {
        let mut slots = Vec::new();
        if self.nr_given_up == self.nr_overdue {
            return slots;
        }
        for tag in self.live.iter() {
            let row = &mut self.rows[tag];
            let is_lost = row.overdue_ns.is_some_and(|at_ns| now >= at_ns + grace_ns);
            if !is_lost || std::mem::replace(&mut row.is_given_up, true) {
                continue;
            }
            self.nr_given_up += 1;
            checks.order.allow(OVERTAKEN_MAX_WITH_FAULTS);
            checks.bios.failed(row.command.op, BlockStatus::Timeout);
            if is_file && row.is_fua {
                checks.bios.flush_failed(BlockStatus::Timeout);
            }
            if row.command.op != Op::Read {
                checks.bios.block(row.ranges());
            }
            let own = row.pieces.iter().map(|piece| piece.slot);
            slots.extend(own.filter(|slot| checks.bios.give_up(*slot)));
        }
        slots
    }

    /// Returns the number of commands whose grace period is over.
    pub(crate) fn nr_given_up(&self) -> usize {
        self.nr_given_up
    }

    /// Returns whether the driver still has commands with a bio that ends. All of these commands
    /// must have been given up (H5).
    pub(crate) fn check_early_end(&self, slot: u32) -> Result<bool, Broken> {
        let has = |row: &&Row| row.pieces.iter().any(|piece| piece.slot == slot);
        let mut rows = self.live.iter().map(|tag| &self.rows[tag]).filter(has).peekable();
        let is_early = rows.peek().is_some();
        match rows.find(|row| !row.is_given_up) {
            None => Ok(is_early),
            Some(row) => {
                let what = format!("box {slot}: at the driver since {} ns", row.issued_ns);
                Err(Broken::new(rules::H5, what))
            }
        }
    }

    /// Records memory in quarantine, and the box that a command has, if one does.
    pub(crate) fn hold(&mut self, slot: Option<u32>, hold: MemoryHold) {
        self.held.push((slot, hold));
    }

    /// Checks that the layer keeps memory in quarantine as long as a command may use it.
    pub(crate) fn check_holds(&mut self) -> Verdict {
        if self.held.is_empty() {
            return Ok(());
        }
        let (live, rows) = (&self.live, &self.rows);
        let has = |slot: u32| {
            let has = |tag: usize| rows[tag].pieces.iter().any(|piece| piece.slot == slot);
            live.iter().any(has)
        };
        let mut verdict = Ok(());
        self.held.retain(|(slot, hold)| {
            let is_kept = Arc::strong_count(hold) > 1;
            if let Some(slot) = slot.filter(|slot| !is_kept && has(*slot)) {
                verdict = broken(rules::H5, format!("the memory of box {slot} is not kept"));
            }
            is_kept
        });
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::cover::Piece;

    #[test]
    fn memory_must_be_kept_only_as_long_as_a_command_has_it() {
        let piece = |slot| Piece { slot, first: 0, nr: 1, block: 0 };
        for (slot, is_live, is_right) in [
            (Some(7), true, false),
            (Some(7), false, true),
            (Some(8), true, true),
            (None, true, true),
        ] {
            let mut state = DriverState::new(0, 1);
            state.rows[0].pieces.push(piece(7));
            if is_live {
                state.live.insert(0);
            }
            let hold: MemoryHold = Arc::new(());
            let layer = Arc::clone(&hold);
            let weak = Arc::downgrade(&hold);
            state.hold(slot, hold);
            assert!(state.check_holds().is_ok() && weak.strong_count() == 2, "the layer keeps it");
            drop(layer);
            assert_eq!((state.check_holds().is_ok(), weak.strong_count()), (is_right, 0));
        }
    }
}
