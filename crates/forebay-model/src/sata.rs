//! A SATA disk with a volatile cache and a flush that runs only by itself.

use crate::machine::{Done, Ends, Machine, transfer_ns};
use crate::parameters::{BYTES, NUMBER, PER_S, TIME_NS, params};
use crate::{Command, Random};
use forebay_core::Op;

params! {
    /// The constants of a [`Sata`].
    ///
    /// Source: "block: hold queue if flush is running for non-queueable flush drive" (2011). It
    /// describes a SATA disk whose flush is not queued, and reports one figure: sysbench's fileio
    /// lost about a fifth. All constants but one are usual figures of such disks at that time: 32
    /// commands at once (NCQ), a link of 3 Gbit/s, 32 MiB of cache, 100 MB/s from the cache to the
    /// medium, and 20 us per command besides its bytes. A clean flush took 0.2 to 0.5 ms; 0.35 is
    /// the middle. The remaining constant, `position_ns`, is calibrated on the published fifth;
    /// `bench/LAB.md` says how.
    pub struct SataParams {
        /// The serial cost of a command besides its bytes, ns.
        command_ns: 20_000, TIME_NS;
        /// Bytes that pass the link to the cache per second.
        link_bytes_per_s: 300_000_000, PER_S;
        /// The cost of a flush that finds the cache clean, ns.
        flush_ns: 350_000, TIME_NS;
        /// The cost of writing back one extent besides its bytes, ns: the arm's way from the last
        /// extent, with all of them in a good order.
        position_ns: 940_000, TIME_NS;
        /// Bytes that move between the cache and the medium per second.
        bytes_per_s: 100_000_000, PER_S;
        /// The size of the cache in bytes. A write without room waits for what it displaces.
        cache_bytes: 32 << 20, BYTES;
        /// The cost of a read besides its bytes, ns: 8.5 ms of the arm and half a rotation.
        seek_ns: 12_700_000, TIME_NS;
        /// The number of commands that the disk accepts at once.
        ncq_depth: 32, NUMBER;
    }
}

/// Commands are served one after another in order of arrival. A write goes into the cache and costs
/// a fixed time plus a time for its bytes. A flush writes back the dirty extents one by one. It
/// begins only while nothing else is at the device, and nothing else begins until it is done; a
/// command at another time is refused as busy. Otherwise nothing is written back unless the cache
/// is full. A write that begins where the previous one ended belongs to the same extent. A read
/// finds nothing in the cache. A discard or write-zeroes takes a command's time and is an extent
/// without bytes. Nothing fails.
#[derive(Clone, Debug)]
pub struct Sata {
    params: SataParams,
    /// When all accepted commands will be done.
    free_at_ns: u64,
    /// When the last flush is done.
    flushed_at_ns: u64,
    nr_dirty_extents: u64,
    dirty_bytes: u64,
    /// Where the last extent in the cache ends.
    end: Option<u64>,
    ends: Ends,
}

impl Sata {
    /// Creates an idle disk with a clean cache.
    ///
    /// # Panics
    /// Panics if `ncq_depth` is 0.
    pub fn new(params: SataParams) -> Sata {
        assert!(params.ncq_depth > 0, "it would take no command");
        Sata {
            params,
            free_at_ns: 0,
            flushed_at_ns: 0,
            nr_dirty_extents: 0,
            dirty_bytes: 0,
            end: None,
            ends: Ends::default(),
        }
    }

    /// Applies a command to the cache. Returns how long it keeps the disk busy, in nanoseconds.
    fn serve(&mut self, command: &Command) -> u64 {
        let SataParams { command_ns, flush_ns, seek_ns, link_bytes_per_s, .. } = self.params;
        match command.op {
            Op::Flush => flush_ns.saturating_add(self.write_back(u64::MAX)),
            Op::Read => command_ns + seek_ns + transfer_ns(command.len, self.params.bytes_per_s),
            Op::Write => {
                self.nr_dirty_extents += u64::from(self.end != Some(command.start));
                self.end = Some(command.start + command.len);
                self.dirty_bytes += command.len;
                let displaced = self.dirty_bytes.saturating_sub(self.params.cache_bytes);
                let of_link = transfer_ns(command.len, link_bytes_per_s);
                (command_ns + of_link).saturating_add(self.write_back(displaced))
            }
            Op::Discard | Op::WriteZeroes => {
                self.nr_dirty_extents += 1;
                self.end = None;
                command_ns
            }
        }
    }

    /// Removes this many bytes from the cache, with the extents that hold them. Returns how long
    /// that takes, in nanoseconds.
    fn write_back(&mut self, len_bytes: u64) -> u64 {
        let SataParams { position_ns, bytes_per_s, .. } = self.params;
        let len_bytes = len_bytes.min(self.dirty_bytes);
        let nr_extents = match len_bytes == self.dirty_bytes {
            true => self.nr_dirty_extents,
            // All extents are assumed to have the same length.
            false => (u128::from(self.nr_dirty_extents) * u128::from(len_bytes))
                .div_ceil(self.dirty_bytes.into()) as u64,
        };
        self.dirty_bytes -= len_bytes;
        self.nr_dirty_extents -= nr_extents;
        if self.nr_dirty_extents == 0 {
            self.end = None;
        }
        nr_extents.saturating_mul(position_ns).saturating_add(transfer_ns(len_bytes, bytes_per_s))
    }
}

impl Machine for Sata {
    fn may_begin(&self, command: &Command, now: u64) -> bool {
        let nr_at_device = self.ends.nr_after(now) as u64;
        match command.op {
            Op::Flush => nr_at_device == 0,
            _ => now >= self.flushed_at_ns && nr_at_device < self.params.ncq_depth,
        }
    }

    fn begin(&mut self, id: u32, command: &Command, now: u64, _: &mut Random) {
        assert!(self.may_begin(command, now), "a command that the disk refuses was begun");
        let took_ns = self.serve(command);
        self.free_at_ns = self.free_at_ns.max(now).saturating_add(took_ns);
        if command.op == Op::Flush {
            self.flushed_at_ns = self.free_at_ns;
        }
        self.ends.add(id, command, self.free_at_ns);
    }

    fn next_at_ns(&self) -> Option<u64> {
        self.ends.next_at_ns()
    }

    fn take_done(&mut self, now: u64, _: &mut Random) -> Option<Done> {
        self.ends.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{READ, finish};
    use alloc::vec::Vec;

    const FLUSH: Command = Command { op: Op::Flush, start: 0, len: 0 };
    const WRITE: Command = Command { op: Op::Write, start: 0, len: 4096 };

    /// Figures that are easy to add up. A write of 4 KiB takes 10 + 4 us. A clean flush takes 100
    /// us, plus 1000 us per extent and 41 us (rounded up) per 4 KiB.
    const ROUND: SataParams = SataParams {
        command_ns: 10_000,
        link_bytes_per_s: 1_024_000_000,
        flush_ns: 100_000,
        position_ns: 1_000_000,
        bytes_per_s: 100_000_000,
        cache_bytes: 16 << 10,
        seek_ns: 5_000_000,
        ncq_depth: 2,
    };

    /// A write of 4 KiB that is no neighbour of a write with another number.
    fn write(nr: u64) -> Command {
        Command { start: nr << 20, ..WRITE }
    }

    struct Disk {
        sata: Sata,
        random: Random,
        now: u64,
    }

    impl Disk {
        fn new(params: SataParams) -> Disk {
            Disk { sata: Sata::new(params), random: Random::new(1, 0), now: 0 }
        }

        fn begin(&mut self, command: &Command) {
            self.sata.begin(0, command, self.now, &mut self.random);
        }

        fn may_begin(&self, command: &Command) -> bool {
            self.sata.may_begin(command, self.now)
        }

        /// Runs a command from start to end. Returns how long it took.
        fn run(&mut self, command: &Command) -> u64 {
            self.begin(command);
            let begun = self.now;
            let done = finish(&mut self.sata, &mut self.random);
            self.now = done.last().expect("it was begun").done_at_ns;
            self.now - begun
        }
    }

    #[test]
    fn a_flush_costs_a_positioning_for_each_extent_and_a_time_for_each_byte() {
        let mut disk = Disk::new(ROUND);
        assert_eq!(disk.run(&FLUSH), 100_000);
        assert_eq!(disk.run(&write(1)), 14_000);
        assert_eq!(disk.run(&FLUSH), 1_140_960);
        assert_eq!(disk.run(&FLUSH), 100_000, "the last one has left nothing");
        disk.run(&write(2));
        disk.run(&write(1));
        assert_eq!(disk.run(&FLUSH), 2_181_920);
    }

    #[test]
    fn write_that_continues_the_last_one_joins_its_extent() {
        let mut disk = Disk::new(ROUND);
        disk.run(&WRITE);
        disk.run(&Command { start: 4096, ..WRITE });
        assert_eq!(disk.run(&FLUSH), 1_181_920);
        disk.run(&Command { start: 8192, ..WRITE });
        assert_eq!(disk.run(&FLUSH), 1_140_960, "what was flushed is no extent any more");
    }

    #[test]
    fn a_discard_makes_the_cache_dirty_and_a_read_does_not() {
        let mut disk = Disk::new(ROUND);
        assert_eq!(disk.run(&READ), 10_000 + 5_000_000 + 40_960);
        assert_eq!(disk.run(&FLUSH), 100_000);
        assert_eq!(disk.run(&Command { op: Op::Discard, start: 0, len: 1 << 20 }), 10_000);
        assert_eq!(disk.run(&FLUSH), 1_100_000);
    }

    #[test]
    fn a_write_into_a_full_cache_waits_for_the_displaced_one() {
        let mut disk = Disk::new(ROUND);
        for nr in 0..4 {
            assert_eq!(disk.run(&write(nr)), 14_000);
        }
        assert_eq!(disk.run(&write(4)), 14_000 + 1_000_000 + 40_960);
        assert_eq!(disk.run(&FLUSH), 4_100_000 + 163_840, "four of them are left");
    }

    #[test]
    fn a_flush_begins_only_where_nothing_is_at_the_device() {
        let mut disk = Disk::new(ROUND);
        disk.begin(&WRITE);
        disk.now = 13_999;
        assert!(!disk.may_begin(&FLUSH));
        // It is done at that time, even if its completion was not taken.
        disk.now = 14_000;
        assert!(disk.may_begin(&FLUSH));
    }

    #[test]
    fn nothing_begins_while_a_flush_runs() {
        let mut disk = Disk::new(ROUND);
        disk.begin(&FLUSH);
        disk.now = 99_999;
        for command in [READ, WRITE, FLUSH] {
            assert!(!disk.may_begin(&command), "{command:?}");
        }
        disk.now = 100_000;
        for command in [READ, WRITE, FLUSH] {
            assert!(disk.may_begin(&command), "{command:?}");
        }
    }

    #[test]
    fn device_accepts_at_most_ncq_depth_commands() {
        let mut disk = Disk::new(ROUND);
        disk.begin(&WRITE);
        assert!(disk.may_begin(&WRITE));
        disk.begin(&WRITE);
        assert!(!disk.may_begin(&WRITE));
        disk.now = 14_000;
        assert!(disk.may_begin(&WRITE), "the first is done");
        disk.begin(&WRITE);
        assert!(!disk.may_begin(&WRITE));
        assert_eq!(SataParams::default().ncq_depth, 32);
    }

    #[test]
    #[should_panic(expected = "a command that the disk refuses was begun")]
    fn refused_command_cannot_be_begun() {
        let mut disk = Disk::new(ROUND);
        disk.begin(&WRITE);
        disk.begin(&FLUSH);
    }

    #[test]
    fn commands_are_served_one_after_another() {
        let mut disk = Disk::new(ROUND);
        disk.sata.begin(7, &WRITE, 0, &mut disk.random);
        disk.sata.begin(3, &WRITE, 1_000, &mut disk.random);
        let done = finish(&mut disk.sata, &mut disk.random);
        let ends: Vec<_> = done.iter().map(|done| (done.id, done.done_at_ns)).collect();
        assert_eq!(ends, [(7, 14_000), (3, 28_000)]);
    }
}
