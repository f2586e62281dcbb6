//! Each block is a register: a read returns a value that the block may have had.
//!
//! Every write gives every block a unique value. A read may return a value if its write began
//! before the read ended, and the value was not *superseded* before the read began. A value is
//! superseded:
//!
//! - by a successful write that began after the value's own write had ended;
//! - by another read that has ended, began after the value's own write had ended, and returned
//!   another value. So once a read has returned a newer value, no later read returns the old one.
//!
//! A write that failed, or a discard, may or may not have been done. Its value is as legal as any,
//! and supersedes others only when a read returns it.

use super::{Verdict, broken, rules};
use crate::few::Few;
use crate::sparse::Sparse;

/// How many values of a block are kept in place. At this number, a write drops old values.
const NR_KEPT: usize = 2;

/// Above `NR_KEPT`, a write drops old values only if their number is a multiple of this, because it
/// visits all values.
const DROP_OF: usize = 8;

const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    value: u64,
    /// When its write began, if the write is under way; otherwise when the write ended.
    time: u64,
    /// When it was superseded, [`NEVER`], or [`UNDER_WAY`].
    superseded: u64,
}

/// A value whose write is under way is not superseded.
const UNDER_WAY: u64 = NEVER - 1;

/// A block that was never written reads as 0.
const INITIAL: Candidate = Candidate { value: 0, time: 0, superseded: NEVER };

/// The values of one block.
type Candidates = Few<Candidate, NR_KEPT>;

/// The values of all blocks.
#[derive(Debug, Default)]
pub(crate) struct Register {
    blocks: Sparse<Candidates>,
}

impl Register {
    /// Restores the initial state, and keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.blocks.all().for_each(Candidates::clear);
    }

    /// Returns whether only the first `nr` blocks were ever used.
    pub(crate) fn is_within(&self, nr: u64) -> bool {
        self.blocks.is_within(nr)
    }

    /// Returns how many values of a block are kept.
    pub(crate) fn nr_values(&self, block: u64) -> usize {
        self.blocks.at(block).map_or(0, |candidates| candidates.len())
    }

    #[inline]
    fn of(&mut self, block: u64) -> &mut Candidates {
        let candidates = self.blocks.at_mut(block);
        if candidates.is_empty() {
            candidates.push(INITIAL);
        }
        candidates
    }

    /// Records that a write begins. `oldest` is when the oldest I/O under way began.
    pub(crate) fn begin_write(&mut self, block: u64, value: u64, now: u64, oldest: u64) {
        let candidates = self.of(block);
        let nr = candidates.len();
        if nr == NR_KEPT || nr > NR_KEPT && nr.is_multiple_of(DROP_OF) {
            candidates.retain(|other| other.superseded >= oldest);
        }
        candidates.push(Candidate { value, time: now, superseded: UNDER_WAY });
    }

    /// Removes the value of a write that was refused.
    pub(crate) fn forget_write(&mut self, block: u64, value: u64) {
        self.of(block).retain(|other| other.value != value);
    }

    /// Records that a write ends. `is_done` if it was certainly done.
    pub(crate) fn end_write(&mut self, block: u64, value: u64, is_done: bool, now: u64) {
        let candidates = self.of(block);
        let own = candidates.iter_mut().rev().find(|other| other.value == value);
        let own = own.expect("a write that is under way is kept");
        let began = own.time;
        (own.time, own.superseded) = (now, NEVER);
        if is_done {
            supersede(candidates, value, began, now);
        }
    }

    /// Records and checks that a read, from `began` to `now`, has returned `value`.
    pub(crate) fn end_read(
        &mut self,
        block: u64,
        value: u64,
        began: u64,
        now: u64,
        serial: u64,
    ) -> Verdict {
        // A block that was never written takes no memory.
        if value == INITIAL.value
            && self.blocks.at(block).is_none_or(|candidates| candidates.is_empty())
        {
            return Ok(());
        }
        let candidates = self.of(block);
        let is_legal = |other: &Candidate| other.value == value && other.superseded > began;
        // It is most often one of the newest.
        if !candidates.iter().rev().any(is_legal) {
            let what = format!(
                "bio {serial}, a read from {began} to {now}, brought {value:#x} of block {block}, \
                 whose values are {candidates:x?}"
            );
            return broken(rules::REGISTER, what);
        }
        supersede(candidates, value, began, now);
        Ok(())
    }
}

/// Supersedes every other value whose write ended before `ended_before`. Times never go back, so a
/// value that was superseded earlier stays so, and a value whose write is under way is not yet.
fn supersede(candidates: &mut [Candidate], value: u64, ended_before: u64, now: u64) {
    for other in candidates {
        let is_current = other.superseded == NEVER;
        if is_current && other.time < ended_before && other.value != value {
            other.superseded = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Write 1 lasts from 10 to 20, and write 2 from 15 to 30.
    fn overlapping() -> Register {
        let mut register = Register::default();
        register.begin_write(0, 1, 10, 10);
        register.begin_write(0, 2, 15, 10);
        register.end_write(0, 1, true, 20);
        register.end_write(0, 2, true, 30);
        register
    }

    fn read(register: &mut Register, value: u64, began: u64, now: u64) -> bool {
        register.end_read(0, value, began, now, 0).is_ok()
    }

    #[test]
    fn either_of_two_concurrent_writes_may_be_last() {
        assert!(read(&mut overlapping(), 1, 40, 50));
        assert!(read(&mut overlapping(), 2, 40, 50));
        assert!(!read(&mut overlapping(), 0, 40, 50));
        assert!(read(&mut overlapping(), 0, 5, 50));
        assert!(!read(&mut overlapping(), 3, 40, 50));
    }

    #[test]
    fn value_seen_as_overwritten_is_not_legal() {
        let mut register = overlapping();
        assert!(read(&mut register, 2, 40, 50));
        assert!(read(&mut register, 1, 45, 60), "it began before the other read ended");
        let mut register = overlapping();
        assert!(read(&mut register, 2, 40, 50));
        assert!(!read(&mut register, 1, 51, 60));
    }

    #[test]
    fn a_write_that_failed_is_possible_until_another_succeeds() {
        let mut register = Register::default();
        register.begin_write(0, 1, 10, 10);
        register.end_write(0, 1, false, 20);
        for value in [0, 1] {
            let mut register = Register::default();
            register.begin_write(0, 1, 10, 10);
            register.end_write(0, 1, false, 20);
            assert!(read(&mut register, value, 30, 40));
        }
        register.begin_write(0, 2, 50, 50);
        register.end_write(0, 2, true, 60);
        assert!(!read(&mut register, 1, 70, 80));
    }
}
