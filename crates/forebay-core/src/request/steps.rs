//! The steps that make a request durable: PREFLUSH, DATA, POSTFLUSH.
//!
//! Counterpart in Linux: `REQ_FSEQ_*` (`block/blk-flush.c`). A request that asks for durability
//! takes up to three commands at the device, one after another:
//!
//! - PRE, a flush, if it asks for one before its data and the device has a volatile cache;
//! - DATA, if it has any; with a mark if the command itself makes the data durable (native FUA);
//! - POST, a flush, if its data must be durable and the driver cannot ensure that in one command.
//!
//! The flush machine of a hardware context coalesces the flushes of its requests.

use crate::bio::{BioFlags, Op};
use crate::limits::QueueLimits;

/// The steps that a request still has to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps(u8);

impl Steps {
    pub(crate) const NONE: Steps = Steps(0);
    pub(crate) const PRE: Steps = Steps(1);
    pub(crate) const DATA: Steps = Steps(2);
    pub(crate) const POST: Steps = Steps(4);
    /// DATA as a native FUA write, issued in an even or in an odd period (F8).
    pub(crate) const FUA: Steps = Steps(Steps::DATA.0 | Steps::NATIVE);
    pub(crate) const FUA_ODD: Steps = Steps(Steps::FUA.0 | Steps::ODD);

    const NATIVE: u8 = 8;
    const ODD: u8 = 16;

    /// Returns the steps of a bio on a disk with these limits.
    #[inline]
    pub(crate) fn of(op: Op, flags: BioFlags, len: u64, limits: &QueueLimits) -> Steps {
        let mut steps = if len > 0 { Steps::DATA.0 } else { 0 };
        if limits.volatile_cache {
            if op == Op::Flush || flags.contains(BioFlags::PREFLUSH) {
                steps |= Steps::PRE.0;
            }
            // A driver accepts FUA only for a write; other operations that change data need the
            // flush.
            let native = limits.fua && op == Op::Write;
            if len > 0 && op.is_write() && flags.contains(BioFlags::FUA) {
                steps |= if native { Steps::NATIVE } else { Steps::POST.0 };
            }
        }
        Steps(steps)
    }

    /// Returns the current step; `None` if all are done.
    #[inline]
    pub(crate) fn current(self) -> Option<Steps> {
        (self.0 != 0).then(|| Steps(self.0 & self.0.wrapping_neg()))
    }

    /// Returns the steps that are left after `step`.
    #[inline]
    pub(crate) fn after(self, step: Steps) -> Steps {
        assert!(self.current() == Some(step), "steps are taken in order");
        let marks = if step == Steps::DATA { Steps::NATIVE | Steps::ODD } else { 0 };
        Steps(self.0 & !step.0 & !marks)
    }

    /// Returns whether the DATA step, which is the current step, is a native FUA write.
    #[inline]
    pub(crate) fn is_native_fua(self) -> bool {
        self.0 & Steps::NATIVE != 0
    }

    /// Returns the steps of both.
    #[inline]
    pub(crate) const fn and(self, other: Steps) -> Steps {
        Steps(self.0 | other.0)
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: Op, flags: BioFlags, len: u64, cache: bool, fua: bool, expected: u8) {
        let limits = QueueLimits::default().volatile_cache(cache).fua(fua);
        assert_eq!(Steps::of(op, flags, len, &limits), Steps(expected));
    }

    #[test]
    fn steps_follow_cache_and_fua() {
        let both = BioFlags::FUA.union(BioFlags::PREFLUSH);
        check(Op::Write, BioFlags::NONE, 512, true, true, 2);
        check(Op::Write, BioFlags::FUA, 512, true, true, 2 | 8);
        check(Op::Write, both, 512, true, true, 1 | 2 | 8);
        check(Op::Write, BioFlags::FUA, 512, true, false, 2 | 4);
        check(Op::Write, both, 512, true, false, 1 | 2 | 4);
        check(Op::Write, both, 512, false, false, 2);
        check(Op::Write, both, 0, true, false, 1);
        check(Op::Flush, BioFlags::NONE, 0, true, true, 1);
        check(Op::Flush, BioFlags::NONE, 0, false, false, 0);
        check(Op::WriteZeroes, BioFlags::FUA, 512, true, true, 2 | 4);
        check(Op::Read, BioFlags::FUA, 512, true, false, 2);
    }

    #[test]
    fn steps_come_in_order() {
        let steps = Steps(7);
        assert_eq!(steps.current(), Some(Steps::PRE));
        let steps = steps.after(Steps::PRE).after(Steps::DATA);
        assert_eq!(steps.current(), Some(Steps::POST));
        assert!(steps.after(Steps::POST).is_empty());
        let steps = Steps(1 | 2 | 8);
        let steps = steps.after(Steps::PRE);
        assert!(steps.is_native_fua() && steps.current() == Some(Steps::DATA));
        assert!(steps.after(Steps::DATA).is_empty());
        assert!(Steps::FUA_ODD.after(Steps::DATA).is_empty());
    }
}
