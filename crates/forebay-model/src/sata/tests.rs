//! Unit tests of `sata`.

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
