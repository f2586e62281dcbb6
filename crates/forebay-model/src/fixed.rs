//! A device with a fixed latency and several channels.

use crate::{Command, Model, Random, Service};
use alloc::boxed::Box;

/// Every command takes the same time, on the channel that becomes free first. Nothing fails. With
/// one channel, commands complete in the order in which they began.
#[derive(Clone, Debug)]
pub struct Fixed {
    latency_ns: u64,
    /// When each channel will have finished its commands.
    free_at_ns: Box<[u64]>,
}

impl Fixed {
    /// Creates a device that works on `nr_channels` commands at once.
    ///
    /// # Panics
    /// Panics if `nr_channels` is 0.
    pub fn new(latency_ns: u64, nr_channels: u32) -> Fixed {
        assert!(nr_channels > 0, "a device has a channel");
        Fixed { latency_ns, free_at_ns: alloc::vec![0; nr_channels as usize].into() }
    }
}

impl Model for Fixed {
    fn serve(&mut self, command: &Command, now: u64, _: &mut Random) -> Service {
        let free_at = self.free_at_ns.iter_mut().min().expect("a device has a channel");
        *free_at = (*free_at).max(now) + self.latency_ns;
        Service { done_at_ns: *free_at, result: Ok(command.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Op;

    fn check(nr_channels: u32, begun: &[u64], done: &[u64]) {
        let mut model = Fixed::new(100, nr_channels);
        let command = Command { op: Op::Read, start: 0, len: 4096 };
        let mut random = Random::new(0, 0);
        for (&now, &done_at_ns) in begun.iter().zip(done) {
            let service = model.serve(&command, now, &mut random);
            assert_eq!(service, Service { done_at_ns, result: Ok(4096) });
        }
    }

    #[test]
    fn a_channel_does_one_command_at_a_time() {
        check(1, &[0, 0, 50, 1000], &[100, 200, 300, 1100]);
        check(2, &[0, 0, 50, 1000], &[100, 100, 200, 1100]);
    }
}
