//! Two flash disks: many channels and one pipe behind them.

use crate::machine::{Done, Machine, transfer_ns};
use crate::parameters::{NUMBER, PER_S, TIME_NS, params};
use crate::pipe::Pipe;
use crate::{Command, Random};

params! {
    /// The constants of an [`SsdSas`].
    ///
    /// Source: the 1.8 TB disk of the mails "blk-mq: provide more tags for woken-up process when
    /// tag allocation is busy" (2020). Its 1077 reads of 1 MiB per second give the byte rate; no
    /// SATA link is that fast, hence the name. Its 198k reads of 4 KiB per second give the command
    /// rate. (Rows of 394k to 986k exceed the byte rate several times, so they are not the
    /// device's.) Latency and channels are not published. The values are typical of flash and far
    /// from the limit at the published depths.
    pub struct SsdSasParams {
        /// Bytes that the disk moves per second: 1077 x 1 MiB.
        bytes_per_s: 1_129_000_000, PER_S;
        /// The maximum number of commands per second.
        commands_per_s: 198_000, PER_S;
        /// The time from the start of a command to its data, ns.
        latency_ns: 90_000, TIME_NS;
        /// The number of commands in the latency stage at once.
        nr_channels: 64, NUMBER;
    }
}

params! {
    /// The constants of an [`Nvme`].
    ///
    /// Source: the 1.5 TB disk of the same mails as [`SsdSasParams`]. One rate explains both its
    /// 3018 reads of 1 MiB and its 774k reads of 4 KiB per second, within 0.3 %. A single job
    /// reaches 369k to 406k, which is a limit of its processor (2.5 us per I/O) and not of the
    /// disk. Latency and channels are not published. The values are typical of flash and far from
    /// the limit at the published depths.
    pub struct NvmeParams {
        /// Bytes that the disk moves per second: 3018 x 1 MiB.
        bytes_per_s: 3_165_000_000, PER_S;
        /// The time from the start of a command to its data, ns.
        latency_ns: 80_000, TIME_NS;
        /// The number of commands in the latency stage at once.
        nr_channels: 128, NUMBER;
    }
}

/// A flash disk with two limits, bytes and commands per second. A command occupies the one pipe for
/// the longer of the two times. Commands complete in the order in which they began. Commands that
/// move no data complete at once. Nothing fails.
#[derive(Clone, Debug)]
pub struct SsdSas {
    params: SsdSasParams,
    pipe: Pipe,
}

impl SsdSas {
    /// Creates an idle disk.
    ///
    /// # Panics
    /// Panics if a rate or the number of channels is 0.
    pub fn new(params: SsdSasParams) -> SsdSas {
        assert!(params.bytes_per_s > 0 && params.commands_per_s > 0, "it would do nothing");
        SsdSas { params, pipe: Pipe::new(params.latency_ns, Some(params.nr_channels)) }
    }
}

impl Machine for SsdSas {
    fn begin(&mut self, id: u32, command: &Command, now: u64, _: &mut Random) {
        let by_bytes_ns = transfer_ns(command.len, self.params.bytes_per_s);
        let by_commands_ns = transfer_ns(1, self.params.commands_per_s);
        self.pipe.begin(id, command, by_bytes_ns.max(by_commands_ns), now);
    }

    fn next_at_ns(&self) -> Option<u64> {
        self.pipe.next_at_ns()
    }

    fn take_done(&mut self, now: u64, _: &mut Random) -> Option<Done> {
        self.pipe.take_done(now)
    }
}

/// A flash disk with one limit, the bytes per second of its pipe. Commands complete in the order in
/// which they began. Commands that move no data complete at once. Nothing fails.
#[derive(Clone, Debug)]
pub struct Nvme {
    bytes_per_s: u64,
    pipe: Pipe,
}

impl Nvme {
    /// Creates an idle disk.
    ///
    /// # Panics
    /// Panics if the rate or the number of channels is 0.
    pub fn new(params: NvmeParams) -> Nvme {
        assert!(params.bytes_per_s > 0, "it would do nothing");
        let pipe = Pipe::new(params.latency_ns, Some(params.nr_channels));
        Nvme { bytes_per_s: params.bytes_per_s, pipe }
    }
}

impl Machine for Nvme {
    fn begin(&mut self, id: u32, command: &Command, now: u64, _: &mut Random) {
        self.pipe.begin(id, command, transfer_ns(command.len, self.bytes_per_s), now);
    }

    fn next_at_ns(&self) -> Option<u64> {
        self.pipe.next_at_ns()
    }

    fn take_done(&mut self, now: u64, _: &mut Random) -> Option<Done> {
        self.pipe.take_done(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::closed_loop;

    #[test]
    fn the_sas_disk_has_both_published_ceilings() {
        let disk = || SsdSas::new(SsdSasParams::default());
        let iops = closed_loop(&mut disk(), 256, 1 << 20, 256 << 10, 20_000);
        assert!((1075..=1078).contains(&iops), "{iops}");
        let iops = closed_loop(&mut disk(), 256, 4096, 4096, 200_000);
        assert!((197_000..=198_000).contains(&iops), "{iops}");
    }

    #[test]
    fn the_nvme_disk_has_both_published_ceilings() {
        let disk = || Nvme::new(NvmeParams::default());
        let iops = closed_loop(&mut disk(), 256, 1 << 20, 256 << 10, 20_000);
        assert!((3015..=3020).contains(&iops), "{iops}");
        let iops = closed_loop(&mut disk(), 256, 4096, 4096, 200_000);
        assert!((770_000..=775_000).contains(&iops), "{iops}");
    }

    #[test]
    fn a_command_alone_takes_the_latency_and_its_transfer() {
        let mut random = Random::new(0, 0);
        let mut disk = SsdSas::new(SsdSasParams::default());
        disk.begin(0, &crate::testing::READ, 1000, &mut random);
        assert_eq!(disk.next_at_ns(), Some(1000 + 90_000 + 5051));
        let mut disk = Nvme::new(NvmeParams::default());
        disk.begin(0, &crate::testing::READ, 1000, &mut random);
        assert_eq!(disk.next_at_ns(), Some(1000 + 80_000 + 1295));
    }
}
