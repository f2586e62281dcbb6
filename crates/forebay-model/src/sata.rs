//! A SATA disk with a volatile cache, which takes a flush only by itself.

use crate::machine::{Done, Ends, Machine, transfer_ns};
use crate::parameters::{BYTES, NUMBER, PER_S, TIME_NS, params};
use crate::{Command, Random};
use forebay_core::Op;

params! {
    /// The constants of a [`Sata`].
    ///
    /// Source: "block: hold queue if flush is running for non-queueable flush drive" (2011), which
    /// says of its disk that it is one of SATA, whose flush is not queued, and of its experiment
    /// one figure: sysbench's fileio lost about a fifth. All constants but one are usual figures
    /// of such disks at that time: 32 commands at once (NCQ), a link of 3 Gbit/s, 32 MiB of cache,
    /// 100 MB/s from there to the medium; 20 us for what a command costs beside its bytes, and
    /// 0.3 ms for a flush that finds nothing to do. The one that is left, `position_ns`, is chosen
    /// so that the fifth comes out; `bench/LAB.md` says how.
    pub struct SataParams {
        /// What a command costs beside its bytes, one after another, ns.
        command_ns: 20_000, TIME_NS;
        /// Bytes that pass the link to the cache in a second.
        link_bytes_per_s: 300_000_000, PER_S;
        /// What a flush costs that finds the cache clean, ns.
        flush_ns: 300_000, TIME_NS;
        /// What a flush costs more that does not, however little there is to write back; and a
        /// read, ns: the arm's way, and half a turn.
        position_ns: 9_500_000, TIME_NS;
        /// Bytes that get from the cache to the medium in a second, or from there.
        bytes_per_s: 100_000_000, PER_S;
        /// Bytes that have room in the cache. A write that finds none waits for what it displaces.
        cache_bytes: 32 << 20, BYTES;
        /// How many commands it takes at once.
        ncq_depth: 32, NUMBER;
    }
}

/// Commands are served one after another, in the order of their coming. A write goes into the
/// cache, which takes a time and one for its bytes; a flush writes back what is dirty there. It
/// begins only while nothing else is at the device, and nothing else begins until it is done: what
/// comes at another time is refused as busy. Nothing is written back otherwise, unless the cache is
/// full. A read positions the arm each time. Discards and write-zeroes take a command's time, and
/// leave the cache dirty, though by no bytes. Nothing fails.
#[derive(Clone, Debug)]
pub struct Sata {
    params: SataParams,
    /// When all is done that it was given.
    free_at_ns: u64,
    /// When the last flush is done.
    flushed_at_ns: u64,
    is_dirty: bool,
    dirty_bytes: u64,
    ends: Ends,
}

impl Sata {
    /// A disk that is idle, and whose cache is clean.
    ///
    /// # Panics
    /// If it would take no command.
    pub fn new(params: SataParams) -> Sata {
        assert!(params.ncq_depth > 0, "it would take no command");
        Sata {
            params,
            free_at_ns: 0,
            flushed_at_ns: 0,
            is_dirty: false,
            dirty_bytes: 0,
            ends: Ends::default(),
        }
    }

    /// Does to the cache what a command does. Says how long that keeps the disk busy, ns.
    fn serve(&mut self, command: &Command) -> u64 {
        let SataParams { command_ns, flush_ns, position_ns, .. } = self.params;
        let of_link = transfer_ns(command.len, self.params.link_bytes_per_s);
        let of_medium = |len_bytes| transfer_ns(len_bytes, self.params.bytes_per_s);
        match command.op {
            Op::Flush if self.is_dirty => {
                let dirty_bytes = core::mem::take(&mut self.dirty_bytes);
                self.is_dirty = false;
                flush_ns + position_ns + of_medium(dirty_bytes)
            }
            Op::Flush => flush_ns,
            Op::Read => command_ns + position_ns + of_medium(command.len),
            Op::Write => {
                self.is_dirty = true;
                self.dirty_bytes += command.len;
                let displaced = self.dirty_bytes.saturating_sub(self.params.cache_bytes);
                self.dirty_bytes -= displaced;
                command_ns + of_link + of_medium(displaced)
            }
            Op::Discard | Op::WriteZeroes => {
                self.is_dirty = true;
                command_ns
            }
        }
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

    /// Figures that are easy to add up: a write of 4 KiB takes 10 + 4 us, a clean flush 100 us, a
    /// dirty one 1000 us more, and 41 us (rounded up) for each such write.
    const ROUND: SataParams = SataParams {
        command_ns: 10_000,
        link_bytes_per_s: 1_024_000_000,
        flush_ns: 100_000,
        position_ns: 1_000_000,
        bytes_per_s: 100_000_000,
        cache_bytes: 16 << 10,
        ncq_depth: 2,
    };

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

        /// Runs a command from its beginning to its end. Says how long it took.
        fn run(&mut self, command: &Command) -> u64 {
            self.begin(command);
            let begun = self.now;
            let done = finish(&mut self.sata, &mut self.random);
            self.now = done.last().expect("it was begun").done_at_ns;
            self.now - begun
        }
    }

    #[test]
    fn a_flush_costs_more_where_the_cache_is_dirty_and_more_for_more_bytes() {
        let mut disk = Disk::new(ROUND);
        assert_eq!(disk.run(&FLUSH), 100_000);
        assert_eq!(disk.run(&WRITE), 14_000);
        assert_eq!(disk.run(&FLUSH), 1_140_960);
        assert_eq!(disk.run(&FLUSH), 100_000, "the last one has left nothing");
        disk.run(&WRITE);
        disk.run(&WRITE);
        assert_eq!(disk.run(&FLUSH), 1_181_920);
    }

    #[test]
    fn a_discard_makes_the_cache_dirty_and_a_read_does_not() {
        let mut disk = Disk::new(ROUND);
        assert_eq!(disk.run(&READ), 10_000 + 1_000_000 + 40_960);
        assert_eq!(disk.run(&FLUSH), 100_000);
        assert_eq!(disk.run(&Command { op: Op::Discard, start: 0, len: 1 << 20 }), 10_000);
        assert_eq!(disk.run(&FLUSH), 1_100_000);
    }

    #[test]
    fn a_write_that_finds_the_cache_full_waits_for_what_it_displaces() {
        let mut disk = Disk::new(ROUND);
        for _ in 0..4 {
            assert_eq!(disk.run(&WRITE), 14_000);
        }
        assert_eq!(disk.run(&WRITE), 14_000 + 40_960);
        assert_eq!(disk.run(&FLUSH), 1_100_000 + 163_840, "four of them are left");
    }

    #[test]
    fn a_flush_begins_only_where_nothing_is_at_the_device() {
        let mut disk = Disk::new(ROUND);
        disk.begin(&WRITE);
        disk.now = 13_999;
        assert!(!disk.may_begin(&FLUSH));
        // It is done then, whether somebody has taken it or not.
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
    fn it_takes_so_many_at_once_and_no_more() {
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
    fn what_it_refuses_cannot_be_begun() {
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
