//! The state of a context after a turn, packed so that a turn returns it in registers.

use core::fmt;
use core::num::NonZeroU64;

/// The state of a context after a turn.
// Two numbers, which are returned in registers. The compiler would copy a struct of more fields
// through memory, and wait for the writes. One is never 0, so an option of a state has this size
// too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Turned {
    /// [`WORK_LEFT`], [`IS_DRAINED`], [`IS_TIMED`] and [`ALWAYS`], and above them the number of
    /// requests at the driver.
    state: NonZeroU64,
    /// The time at which a turn is due even if nothing happens until then ([`Turned::deadline`]).
    next_at_ns: u64,
}

const WORK_LEFT: u64 = 1;
const IS_DRAINED: u64 = 2;
const ALWAYS: NonZeroU64 = NonZeroU64::new(4).unwrap();
const IS_TIMED: u64 = 8;
const NR_SHIFT: u32 = 32;

/// The time of a deadline that does not exist.
pub(super) const NO_DEADLINE: u64 = u64::MAX;

impl Turned {
    /// The result of a turn that finds nothing to do.
    pub const NOTHING: Turned = Turned::new(0, false, true, NO_DEADLINE);

    /// Creates the result of a turn. `next_at_ns` is `u64::MAX` without a deadline.
    #[inline]
    pub(crate) const fn new(
        nr_in_flight: u32,
        work_left: bool,
        is_drained: bool,
        next_at_ns: u64,
    ) -> Turned {
        let flags = (work_left as u64 * WORK_LEFT) | (is_drained as u64 * IS_DRAINED);
        let state = ((nr_in_flight as u64) << NR_SHIFT) | flags;
        Turned { next_at_ns, ..Turned::of_state(state) }
    }

    /// Returns this state with the mark that the requests that are left wait only for the deadline,
    /// if `is_timed`.
    #[inline]
    pub(super) const fn timed(self, is_timed: bool) -> Turned {
        let Turned { state, next_at_ns } = self;
        let mark = if is_timed { IS_TIMED } else { 0 };
        Turned { next_at_ns, ..Turned::of_state(state.get() | mark) }
    }

    /// Returns all but the deadline as a number, for [`Turned::of_state`].
    #[inline]
    pub const fn state(self) -> u64 {
        self.state.get()
    }

    /// Returns the result without its deadline, from a number that [`Turned::state`] has returned.
    #[inline]
    pub const fn of_state(state: u64) -> Turned {
        let state = match NonZeroU64::new(state | ALWAYS.get()) {
            Some(state) => state,
            None => ALWAYS,
        };
        Turned { state, next_at_ns: NO_DEADLINE }
    }

    /// Returns the number of requests at the driver, except those that were given up (H5): nothing
    /// waits for them, and they may never complete.
    #[inline]
    pub const fn nr_in_flight(self) -> u32 {
        (self.state() >> NR_SHIFT) as u32
    }

    /// Returns whether requests remain that could not be issued: no tag was free, the driver was
    /// busy, or a retry or a gate holds them back.
    #[inline]
    pub const fn work_left(self) -> bool {
        self.state() & WORK_LEFT != 0
    }

    /// Returns whether no admitted request is left in the context, except those whose bios have
    /// ended (H5).
    #[inline]
    pub const fn is_drained(self) -> bool {
        self.state() & IS_DRAINED != 0
    }

    /// Returns whether requests remain that neither a completion nor the deadline moves on, because
    /// the driver was busy or a gate is closed.
    #[inline]
    pub fn is_stuck(self) -> bool {
        let is_held_back = self.is_drained() && self.next_at_ns != NO_DEADLINE;
        let is_timed = is_held_back || self.state() & IS_TIMED != 0;
        self.work_left() && self.nr_in_flight() == 0 && !is_timed
    }

    /// Returns the time of the context's clock at which a turn is due even if nothing happens until
    /// then; `None` if only events make progress possible. For a time limit of requests the time is
    /// a lower bound: that turn may find nothing to do, and leaves a later deadline.
    #[inline]
    pub fn deadline(self) -> Option<u64> {
        (self.next_at_ns != NO_DEADLINE).then_some(self.next_at_ns)
    }

    /// Returns whether nothing remains: neither requests at the driver nor waiting ones.
    #[inline]
    pub fn is_idle(self) -> bool {
        self.nr_in_flight() == 0 && !self.work_left()
    }
}

impl fmt::Debug for Turned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turned")
            .field("nr_in_flight", &self.nr_in_flight())
            .field("work_left", &self.work_left())
            .field("is_drained", &self.is_drained())
            .field("deadline", &self.deadline())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_state_has_all_but_the_deadline() {
        for (nr, work_left, is_drained) in
            [(0, false, true), (0, true, false), (0, true, true), (7, true, false)]
        {
            let turned = Turned::new(nr, work_left, is_drained, 70);
            let stored = Turned::of_state(turned.state());
            assert_eq!(stored, Turned::new(nr, work_left, is_drained, NO_DEADLINE));
            assert_eq!(stored.is_stuck(), work_left && nr == 0);
            assert_eq!(size_of_val(&Some(turned)), 16, "an option needs no more registers");
            let timed = turned.timed(true);
            assert!(!timed.is_stuck() && timed.deadline() == turned.deadline());
            assert!(!Turned::of_state(timed.state()).is_stuck());
            assert_eq!((timed.nr_in_flight(), turned.timed(false)), (nr, turned));
        }
    }
}
