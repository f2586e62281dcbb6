//! Devices that choose what to serve next.

use crate::{Command, Random};
use alloc::collections::VecDeque;
use core::fmt::Debug;
use forebay_core::BlockStatus;

/// A device that serves its commands in an order of its own.
///
/// A [`Model`](crate::Model) knows the completion time of a command when it begins. A machine does
/// not, because a later command may be served earlier. Its user asks when the next completion is
/// due, and advances the machine to that time. Its behaviour depends on the commands and on
/// their times, not on how often it is asked. One thread at a time uses it.
pub trait Machine: Debug + Send {
    /// Returns whether the machine accepts a command at this time. If not, its user answers "busy".
    /// The machine may accept the command once another one has completed.
    fn may_begin(&self, command: &Command, now: u64) -> bool {
        let _ = (command, now);
        true
    }

    /// Begins an accepted command. `id` names it until it completes. Times do not go backwards
    /// between calls of any of these methods.
    ///
    /// # Panics
    /// Panics if the machine [does not accept](Machine::may_begin) the command.
    fn begin(&mut self, id: u32, command: &Command, now: u64, random: &mut Random);

    /// Returns when the next command completes, in nanoseconds, or `None` if there is none. The
    /// time may be in the past. A command that begins later may make it earlier.
    fn next_at_ns(&self) -> Option<u64>;

    /// Takes the next command that completed by `now`, in order of time. The machine may begin
    /// others.
    fn take_done(&mut self, now: u64, random: &mut Random) -> Option<Done>;
}

/// A completed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The id that it was begun with.
    pub id: u32,
    /// The completion time in nanoseconds.
    pub done_at_ns: u64,
    /// The number of bytes moved from the start of the command, or the failure. For operations that
    /// move no data it is the command's length.
    pub result: Result<u64, BlockStatus>,
}

/// Commands with a known completion time, ordered by that time and then by arrival. Every machine
/// of this crate uses it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends(VecDeque<Done>);

impl Ends {
    /// Adds a command that completes successfully at `done_at_ns`.
    pub(crate) fn add(&mut self, id: u32, command: &Command, done_at_ns: u64) {
        // Usually the new one is the last.
        let at = self.0.partition_point(|done| done.done_at_ns <= done_at_ns);
        self.0.insert(at, Done { id, done_at_ns, result: Ok(command.len) });
    }

    /// Returns how many commands complete after `now`.
    pub(crate) fn nr_after(&self, now: u64) -> usize {
        self.0.len() - self.0.partition_point(|done| done.done_at_ns <= now)
    }

    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.0.front().map(|done| done.done_at_ns)
    }

    pub(crate) fn take(&mut self, now: u64) -> Option<Done> {
        let is_due = self.0.front().is_some_and(|done| done.done_at_ns <= now);
        if is_due { self.0.pop_front() } else { None }
    }
}

/// Returns how long a transfer takes at this rate, in nanoseconds, rounded up.
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
