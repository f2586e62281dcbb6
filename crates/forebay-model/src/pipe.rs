//! The common part of devices without an arm: commands pass a latency stage, many at a time, and
//! then one pipe, one at a time.

use crate::Command;
use crate::machine::{Done, Ends};
use alloc::boxed::Box;

/// Channels that each hold a command for the device's latency, and the one pipe behind them. All
/// commands have the same latency, so they pass both stages in the order in which they began.
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    latency_ns: u64,
    /// When each channel becomes free. Channels take commands in turn, so the next one is the one
    /// that was used longest ago and is free first. `None` means no limit.
    channels: Option<Box<[u64]>>,
    next_channel: usize,
    /// When the pipe will have passed all of its commands.
    free_at_ns: u64,
    ends: Ends,
}

impl Pipe {
    /// Creates an idle pipe.
    ///
    /// # Panics
    /// Panics if the number of channels is 0.
    pub(crate) fn new(latency_ns: u64, nr_channels: Option<u64>) -> Pipe {
        assert!(nr_channels != Some(0), "a device has a channel");
        let channels = nr_channels.map(|nr| alloc::vec![0; nr as usize].into());
        Pipe { latency_ns, channels, next_channel: 0, free_at_ns: 0, ends: Ends::default() }
    }

    /// Begins a command that occupies the pipe for `cost_ns`. A command that moves no data
    /// completes at once, because its cost is not published.
    pub(crate) fn begin(&mut self, id: u32, command: &Command, cost_ns: u64, now: u64) {
        if !command.op.moves_data() {
            return self.ends.add(id, command, now);
        }
        let mut ready_at_ns = now.saturating_add(self.latency_ns);
        if let Some(channels) = &mut self.channels {
            let free_at_ns = &mut channels[self.next_channel];
            *free_at_ns = now.max(*free_at_ns).saturating_add(self.latency_ns);
            ready_at_ns = *free_at_ns;
            self.next_channel = (self.next_channel + 1) % channels.len();
        }
        self.free_at_ns = self.free_at_ns.max(ready_at_ns).saturating_add(cost_ns);
        self.ends.add(id, command, self.free_at_ns);
    }

    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.ends.next_at_ns()
    }

    pub(crate) fn take_done(&mut self, now: u64) -> Option<Done> {
        self.ends.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::READ;
    use alloc::vec::Vec;
    use forebay_core::Op;

    /// Returns when commands of this cost that begin at these times complete.
    fn ends(mut pipe: Pipe, cost_ns: u64, begins: &[u64]) -> Vec<u64> {
        begins.iter().for_each(|&now| pipe.begin(0, &READ, cost_ns, now));
        core::iter::from_fn(|| pipe.take_done(u64::MAX)).map(|done| done.done_at_ns).collect()
    }

    #[test]
    fn latencies_overlap_and_costs_do_not() {
        assert_eq!(ends(Pipe::new(100, None), 10, &[0, 0, 5, 500]), [110, 120, 130, 610]);
    }

    #[test]
    fn a_channel_has_one_command_at_a_time() {
        assert_eq!(ends(Pipe::new(100, Some(2)), 10, &[0, 0, 0, 50]), [110, 120, 210, 220]);
        assert_eq!(ends(Pipe::new(100, Some(1)), 10, &[0, 0, 300]), [110, 210, 410]);
    }

    #[test]
    fn command_without_data_does_not_wait() {
        let mut pipe = Pipe::new(100, Some(1));
        pipe.begin(0, &READ, 10, 0);
        pipe.begin(1, &Command { op: Op::Flush, start: 0, len: 0 }, 10, 5);
        assert_eq!(pipe.take_done(5).map(|done| (done.id, done.result)), Some((1, Ok(0))));
        assert_eq!((pipe.take_done(109), pipe.next_at_ns()), (None, Some(110)));
    }
}
