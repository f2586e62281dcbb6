//! Devices that choose what to serve next.

use crate::{Command, Random};
use alloc::collections::VecDeque;
use core::fmt::Debug;
use forebay_core::BlockStatus;

/// A device that works through what it was given in an order of its own.
///
/// A [`Model`](crate::Model) says at the beginning of a command when it will be done. A machine
/// cannot: what comes later may be served earlier. So it is asked when something is done next, and
/// told when that time has come. What it does depends on what it was given and when, and not on how
/// often it was asked in between. One thread at a time uses it.
pub trait Machine: Debug + Send {
    /// Whether it takes a command at this time. What it does not take, whoever drives it answers as
    /// busy; it may take it once one of those that are under way is done.
    fn may_begin(&self, command: &Command, now: u64) -> bool {
        let _ = (command, now);
        true
    }

    /// Begins a command that was handed over; `id` names it until it is done. Times do not go
    /// backwards, from one call of any of these functions to the next.
    ///
    /// # Panics
    /// If it [does not take](Machine::may_begin) the command.
    fn begin(&mut self, id: u32, command: &Command, now: u64, random: &mut Random);

    /// When the next command is done, ns; None where nothing is under way. It may be in the past.
    /// What begins later may make it earlier.
    fn next_at_ns(&self) -> Option<u64>;

    /// Takes the next command that is done by `now`, in order of time. It may begin others in its
    /// place.
    fn take_done(&mut self, now: u64, random: &mut Random) -> Option<Done>;
}

/// A command that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The name under which it was begun.
    pub id: u32,
    /// When it was done, ns.
    pub done_at_ns: u64,
    /// Bytes moved from its start (its length for what moves none), or the failure.
    pub result: Result<u64, BlockStatus>,
}

/// Commands whose end is known, in the order of their ends; of one time, in the order of their
/// coming. What every machine here ends with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends(VecDeque<Done>);

impl Ends {
    /// A command will be done at this time, and succeed.
    pub(crate) fn add(&mut self, id: u32, command: &Command, done_at_ns: u64) {
        // Mostly it is the last.
        let at = self.0.partition_point(|done| done.done_at_ns <= done_at_ns);
        self.0.insert(at, Done { id, done_at_ns, result: Ok(command.len) });
    }

    /// How many are done after this time.
    pub(crate) fn nr_after(&self, now: u64) -> usize {
        self.0.len() - self.0.partition_point(|done| done.done_at_ns <= now)
    }

    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.0.front().map(|done| done.done_at_ns)
    }

    pub(crate) fn take(&mut self, now: u64) -> Option<Done> {
        self.0.pop_front_if(|done| done.done_at_ns <= now)
    }
}

/// How long so many bytes take at this rate, ns, rounded up.
pub(crate) fn transfer_ns(len_bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(len_bytes) * 1_000_000_000).div_ceil(bytes_per_s.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Op;

    #[test]
    fn ends_come_in_the_order_of_time_and_then_of_coming() {
        let command = Command { op: Op::Flush, start: 0, len: 0 };
        let mut ends = Ends::default();
        for (id, done_at_ns) in [(0, 20), (1, 10), (2, 20), (3, 10)] {
            ends.add(id, &command, done_at_ns);
        }
        assert_eq!((ends.next_at_ns(), ends.take(9)), (Some(10), None));
        assert_eq!([9, 10, 19, 20].map(|now| ends.nr_after(now)), [4, 2, 2, 0]);
        let ids: [Option<u32>; 5] = core::array::from_fn(|_| ends.take(20).map(|done| done.id));
        assert_eq!(ids, [Some(1), Some(3), Some(0), Some(2), None]);
    }

    #[test]
    fn a_transfer_is_rounded_up() {
        assert_eq!(transfer_ns(256 << 10, 209_715_200), 1_250_000);
        assert_eq!((transfer_ns(1, 3_000_000_000), transfer_ns(0, 1)), (1, 0));
    }
}
