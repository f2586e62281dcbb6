//! Tests of the ring entry for each operation.
// An entry exposes its flags only as bytes.
#![allow(unsafe_code)]

use crate::arena::Arena;
use crate::driver::file::commands::Commands;
use crate::driver::ideal_limits;
use crate::driver::testing::{data, issue};
use crate::driver::zeroing::{self, Ranges, Way};
use crate::{BUF_ALIGN, Buf};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Completions, Driver, Issue, IssuedRequest, Op, QueueLimits, Reap,
    Segment, Tag,
};
use std::time::Duration;

/// Creates entries and shows their contents.
struct Entries {
    commands: Commands,
    /// The mode in which ranges are changed.
    mode: i32,
    shown: String,
    /// `fsync_flags`, which shares its field with the flags of other operations.
    flags: u32,
}

impl Driver for Entries {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _: bool) -> Issue {
        self.commands.note(rq, self.mode);
        let entry = self.commands.entry(rq.tag);
        self.shown = format!("{entry:?}");
        // SAFETY: an entry is the 64 bytes of `struct io_uring_sqe`, all of them numbers.
        let bytes: [u8; 64] = unsafe { std::mem::transmute(entry) };
        self.flags = u32::from_ne_bytes(bytes[28..32].try_into().expect("four bytes"));
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, _: &mut Completions, _: Reap) {}

    fn wait(&mut self, _: u32, _: Option<Duration>) {}
}

fn limits() -> QueueLimits {
    ideal_limits(1 << 30, 512).volatile_cache(true).fua(true)
}

/// Checks which io_uring operation a bio becomes. Each is on the registered file.
#[track_caller]
fn check(commands: Commands, bio: Bio, opcode: u8) -> u32 {
    check_mode(commands, libc::FALLOC_FL_ZERO_RANGE, bio, opcode)
}

/// Does the same, with ranges changed by `mode`.
#[track_caller]
fn check_mode(commands: Commands, mode: i32, bio: Bio, opcode: u8) -> u32 {
    check_flags(commands, mode, bio, opcode, FIXED_FILE).flags
}

/// Does the same, with these flags of the entry.
#[track_caller]
fn check_flags(commands: Commands, mode: i32, bio: Bio, opcode: u8, flags: u8) -> Entries {
    let mut entries = Entries { commands, mode, shown: String::new(), flags: 0 };
    assert_eq!(issue(&mut entries, 3, bio), Issue::Queued);
    let expected = format!("op_code: {opcode}, flags: {flags},");
    assert!(entries.shown.contains(&expected), "{} is not {expected}", entries.shown);
    entries
}

// `IOSQE_*` in <linux/io_uring.h>.
const FIXED_FILE: u8 = 1;
const ASYNC: u8 = 16;

// The numbers of `enum io_uring_op` in <linux/io_uring.h>.
const READV: u8 = 1;
const WRITEV: u8 = 2;
const FSYNC: u8 = 3;
const READ_FIXED: u8 = 4;
const WRITE_FIXED: u8 = 5;
const FALLOCATE: u8 = 17;
const READ: u8 = 22;
const WRITE: u8 = 23;
const URING_CMD: u8 = 46;

#[test]
fn one_stretch_of_memory_takes_no_vector() {
    let commands = || Commands::new(&limits(), 4, None);
    let mut buf = Buf::new(8192);
    check(commands(), data(Op::Read, 0, &mut buf, 8192), READ);
    check(commands(), data(Op::Write, 0, &mut buf, 8192), WRITE);
    // Adjacent segments become one vector.
    check(commands(), data(Op::Read, 0, &mut buf, 512), READ);
    let fua = Bio { flags: BioFlags::FUA, ..data(Op::Write, 0, &mut buf, 8192) };
    assert_eq!(check(commands(), fua, WRITE), libc::RWF_DSYNC as u32);
    let (first, last) = buf.split_at_mut(4096);
    let segment = |part: &mut [u8]| Segment {
        addr: part.as_mut_ptr().expose_provenance(),
        len: part.len() as u32,
    };
    let mut two = || vec![segment(&mut last[..512]), segment(&mut first[..512])];
    let bio = |op, list: Vec<Segment>| Bio {
        segments: forebay_core::Segments::Many(list.into_iter().collect()),
        ..Bio::range(op, 0, 1024)
    };
    check(commands(), bio(Op::Read, two()), READV);
    check(commands(), bio(Op::Write, two()), WRITEV);
}

#[test]
fn one_stretch_of_registered_memory_is_named_by_its_place() {
    let arena = Arena::new(4 * BUF_ALIGN).expect("memory");
    let commands = || Commands::new(&limits(), 4, Some(arena.clone()));
    let mut buf = Buf::new_in(&arena, 4 * BUF_ALIGN).expect("all of it");
    check(commands(), data(Op::Read, 0, &mut buf, 16384), READ_FIXED);
    check(commands(), data(Op::Write, 0, &mut buf, 512), WRITE_FIXED);
    check(commands(), data(Op::Read, 0, &mut buf[16384 - 512..], 512), READ_FIXED);
    let mut elsewhere = Buf::new(4096);
    check(commands(), data(Op::Read, 0, &mut elsewhere, 4096), READ);
    // Memory that crosses either end of the arena is not registered. No I/O reaches these
    // addresses.
    for (first, opcode) in [(arena.addr() - 512, READ), (arena.addr() + 15872, READ)] {
        let bio = Bio::data(Op::Read, 0, Segment { addr: first, len: 1024 });
        check(commands(), bio, opcode);
    }
}

#[test]
fn a_durable_write_says_so_in_every_kind_of_entry() {
    let arena = Arena::new(2 * BUF_ALIGN).expect("memory");
    let commands = || Commands::new(&limits(), 4, Some(arena.clone()));
    let mut registered = Buf::new_in(&arena, 2 * BUF_ALIGN).expect("all of it");
    let mut buf = Buf::new(8192);
    let (first, last) = buf.split_at_mut(4096);
    let segments = [last, first].map(|part| Segment {
        addr: part.as_mut_ptr().expose_provenance(),
        len: part.len() as u32,
    });
    let segments = forebay_core::Segments::Many(segments.into_iter().collect());
    for (flags, expected) in [(BioFlags::FUA, libc::RWF_DSYNC as u32), (BioFlags::default(), 0)] {
        let bio = Bio { flags, ..data(Op::Write, 0, &mut registered, 8192) };
        assert_eq!(check(commands(), bio, WRITE_FIXED), expected);
        let bio = Bio { flags, segments: segments.clone(), ..Bio::range(Op::Write, 0, 8192) };
        assert_eq!(check(commands(), bio, WRITEV), expected);
    }
}

#[test]
fn flushes_sync_and_ranges_are_allocated() {
    let commands = || Commands::new(&limits(), 4, None);
    const DATASYNC: u32 = 1;
    assert_eq!(check(commands(), Bio::flush(), FSYNC), DATASYNC);
    assert_eq!(check(commands(), Bio::fsync(), FSYNC), 0, "metadata as well");
    check(commands(), Bio::range(Op::Discard, 0, 4096), FALLOCATE);
    check(commands(), Bio::range(Op::WriteZeroes, 0, 4096), FALLOCATE);
    check_mode(commands(), zeroing::DISCARD, Bio::range(Op::Discard, 0, 4096), URING_CMD);
    let zeroes = Bio::range(Op::WriteZeroes, 0, 4096);
    check_mode(commands(), zeroing::WRITE, zeroes, WRITEV);
}

#[test]
fn discard_that_a_device_refuses_is_tried_once_more_by_a_worker() {
    let (tag, refused) = (Tag::from_index(3), -libc::EOPNOTSUPP);
    let bio = || Bio::range(Op::Discard, 0, 4096);
    let mut ranges =
        Ranges { grows: false, discard: zeroing::DISCARD, way: Way::default(), goes_on: true };
    for (answer, expected) in [(0, Ok(4096)), (refused, Err(BlockStatus::NotSupported))] {
        let commands = Commands::new(&limits(), 4, None);
        let mut entries = check_flags(commands, zeroing::DISCARD, bio(), URING_CMD, FIXED_FILE);
        assert_eq!(entries.commands.ended(tag, refused), None, "it is sent again");
        let again = format!("{:?}", entries.commands.entry(tag));
        let flags = FIXED_FILE | ASYNC;
        assert!(again.contains(&format!("op_code: {URING_CMD}, flags: {flags},")), "{again}");
        entries.commands.of(tag).teach(&mut ranges);
        assert_eq!(entries.commands.ended(tag, answer), Some(expected));
    }
    // The next discard uses this way at once.
    let commands = Commands::new(&limits(), 4, None);
    check_flags(commands, ranges.discard, bio(), URING_CMD, FIXED_FILE | ASYNC);
}
