//! Each block is a register: what is read of it is a value that it may have had.
//!
//! Every write gives every block a value of its own. A read may bring a value if its write began
//! before the read ended, and the value was not *superseded* before the read began:
//!
//! - by a write that began after the value's write had ended, and that has succeeded itself;
//! - by another read, which ended, began after the value's write had ended, and brought another
//!   value: so nobody sees an old value after somebody has seen a newer one.
//!
//! A write that failed, and a discard, may have been done or not: such a value is as good as any,
//! and supersedes none unless it is read.

use super::{Verdict, broken, rules};
use crate::sparse::Sparse;

/// How many values of a block are kept before old ones are looked for.
const NR_KEPT: usize = 4;

const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: u64,
    began: u64,
    ended: u64,
    superseded: u64,
}

/// What nobody has written is 0.
const INITIAL: Candidate = Candidate { value: 0, began: 0, ended: 0, superseded: NEVER };

/// The values of all blocks.
#[derive(Debug, Default)]
pub(crate) struct Register {
    blocks: Sparse<Vec<Candidate>>,
}

impl Register {
    fn of(&mut self, block: u64) -> &mut Vec<Candidate> {
        let candidates = self.blocks.at_mut(block);
        if candidates.is_empty() {
            candidates.push(INITIAL);
        }
        candidates
    }

    /// A write begins. `oldest` is when the oldest I/O that is under way began.
    pub(crate) fn begin_write(&mut self, block: u64, value: u64, now: u64, oldest: u64) {
        let candidates = self.of(block);
        if candidates.len() >= NR_KEPT {
            candidates.retain(|other| other.superseded >= oldest || other.ended == NEVER);
        }
        candidates.push(Candidate { value, began: now, ended: NEVER, superseded: NEVER });
    }

    /// The write was refused.
    pub(crate) fn forget_write(&mut self, block: u64, value: u64) {
        self.of(block).retain(|other| other.value != value);
    }

    /// A write ends. `is_done` if it is known to have been done.
    pub(crate) fn end_write(&mut self, block: u64, value: u64, is_done: bool, now: u64) {
        let candidates = self.of(block);
        let own = candidates.iter_mut().find(|other| other.value == value);
        let own = own.expect("a write that is under way is kept");
        own.ended = now;
        let began = own.began;
        if is_done {
            supersede(candidates, value, began, now);
        }
    }

    /// A read, from `began` to `now`, has brought `value`.
    pub(crate) fn end_read(
        &mut self,
        block: u64,
        value: u64,
        began: u64,
        now: u64,
        serial: u64,
    ) -> Verdict {
        let candidates = self.of(block);
        let is_legal = |other: &Candidate| other.value == value && other.superseded > began;
        if !candidates.iter().any(is_legal) {
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

/// Every value but one whose write had ended by then is gone.
fn supersede(candidates: &mut [Candidate], value: u64, ended_before: u64, now: u64) {
    for other in candidates {
        if other.value != value && other.ended < ended_before {
            other.superseded = other.superseded.min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes 1 from 10 to 20, and 2 from 15 to 30.
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
    fn of_two_writes_at_once_either_may_be_last() {
        assert!(read(&mut overlapping(), 1, 40, 50));
        assert!(read(&mut overlapping(), 2, 40, 50));
        assert!(!read(&mut overlapping(), 0, 40, 50));
        assert!(read(&mut overlapping(), 0, 5, 50));
        assert!(!read(&mut overlapping(), 3, 40, 50));
    }

    #[test]
    fn what_was_seen_to_be_overwritten_is_gone() {
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
