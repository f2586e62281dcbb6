//! Discard and zeroing of ranges of a file or block device: the checks at open, and the
//! consequences for each engine.
//!
//! A block device lists its commands in sysfs. A file system lists nothing, and a trial call on the
//! file itself would change it, at least its allocated space. So the driver creates an unnamed file
//! on the same file system (`O_TMPFILE`), which vanishes when it is closed, and makes the trial
//! calls on that one. If it cannot be created, for example for lack of permission, the driver
//! assumes the best case. If the file system then refuses a call, the next best one is used.
// It makes system calls that the standard library does not wrap.
#![allow(unsafe_code)]

use super::commands::discard;
use crate::driver::zeroing::{self, Ranges, Way};
use crate::info::{DiskFacts, Feature};
use forebay_core::QueueLimits;
use io_uring::{IoUring, opcode};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The limit of discards and write-zeroes, 2 GiB: longer ones would occupy a kernel worker for
/// long.
const MAX_RANGE_SECTORS: u32 = 1 << 22;

/// Properties of ranges that are known before the engine is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// The best way in which the file system zeroes a range, if it was tested. A file system
    /// without holes has no discards.
    OfFile(Option<Way>),
    /// The commands that the device has.
    OfDevice {
        /// Discard.
        discards: bool,
        /// Write zeroes. Without this command the kernel writes them.
        zeroes: bool,
    },
}

/// How a range is discarded.
struct Discard {
    mode: i32,
    /// True if a discarded range is known to read as zeroes and to become a hole, which zeroing
    /// does not guarantee.
    to_zeroes: bool,
    how: &'static str,
}

/// The consequences for an engine.
pub(super) struct Settled {
    pub(super) ranges: Ranges,
    pub(super) facts: DiskFacts,
    pub(super) features: Vec<Feature>,
}

impl Knowledge {
    /// Returns the consequences for an engine, which may or may not support discards of block
    /// devices. Sets the limits.
    pub(super) fn settle(self, engine_discards: bool, limits: &mut QueueLimits) -> Settled {
        let (discard, way, (zeroes_fast, how)) = match self {
            Knowledge::OfFile(way) => (of_file(way), way.unwrap_or_default(), how_to_zero(way)),
            Knowledge::OfDevice { discards, zeroes } => {
                let how = match zeroes {
                    true => "fallocate: the device zeroes the range",
                    false => {
                        "the kernel writes zeroes: the device has no command for that \
                         (write_zeroes_max_bytes is 0 or unknown)"
                    }
                };
                (of_device(discards, zeroes, engine_discards), Way::ZeroRange, (zeroes, how))
            }
        };
        limits.max_write_zeroes_sectors = MAX_RANGE_SECTORS;
        let grows = limits.capacity_bytes.is_none();
        let goes_on = limits.exact_counts;
        let ranges = Ranges { grows, discard: zeroing::PUNCH_HOLE, way, goes_on };
        let mut facts = DiskFacts { zeroes_fast, ..DiskFacts::default() };
        let zeroes = Feature::present("write_zeroes", how);
        match discard {
            Ok(Discard { mode, to_zeroes, how }) => {
                limits.discard_granularity = limits.physical_block_size;
                limits.max_discard_sectors = MAX_RANGE_SECTORS;
                facts.discards_to_zeroes = to_zeroes;
                let how = format!("{how}{}", if to_zeroes { "; reads as zeroes" } else { "" });
                let features = vec![Feature::present("discard", how), zeroes];
                Settled { ranges: Ranges { discard: mode, ..ranges }, facts, features }
            }
            Err(why) => {
                let features = vec![Feature::missing("discard", why), zeroes];
                Settled { ranges, facts, features }
            }
        }
    }
}

fn of_file(way: Option<Way>) -> Result<Discard, &'static str> {
    let mode = zeroing::PUNCH_HOLE;
    match way {
        Some(Way::ZeroRange | Way::PunchHole) => {
            Ok(Discard { mode, to_zeroes: true, how: "fallocate, punching a hole" })
        }
        Some(Way::Write) => Err("its file system punches no holes"),
        // The discard may fail as unsupported. A caller that wants zeroes must not get that error.
        None => {
            let how = "fallocate, punching a hole; fails where the file system cannot";
            Ok(Discard { mode, to_zeroes: false, how })
        }
    }
}

/// Returns whether zeroing is known to be faster than writing zeroes, and how it is done.
fn how_to_zero(way: Option<Way>) -> (bool, &'static str) {
    match way {
        Some(Way::ZeroRange) => (true, "fallocate, zeroing the range"),
        Some(Way::PunchHole) => {
            (true, "fallocate, punching a hole, since its file system zeroes no ranges")
        }
        Some(Way::Write) => (false, "zeroes are written: the file system has no other way"),
        None => {
            let how =
                "fallocate, zeroing the range, or else punching a hole, or else writing zeroes";
            (false, how)
        }
    }
}

fn of_device(discards: bool, zeroes: bool, engine_discards: bool) -> Result<Discard, &'static str> {
    let to_zeroes = false;
    match (discards, zeroes, engine_discards) {
        (true, _, true) => {
            let how = "BLKDISCARD; the device decides what discarded blocks read as";
            Ok(Discard { mode: zeroing::DISCARD, to_zeroes, how })
        }
        (_, true, _) => {
            let how =
                "fallocate, punching a hole: the device zeroes the range, and may give it back";
            Ok(Discard { mode: zeroing::PUNCH_HOLE, to_zeroes, how })
        }
        (true, false, false) => {
            Err("io_uring has them with direct=on and Linux 6.12; engine=psync has them always")
        }
        (false, false, _) => {
            Err("the device neither discards nor zeroes ranges (discard_max_bytes and \
                 write_zeroes_max_bytes are 0 or unknown)")
        }
    }
}

/// Creates an unnamed file on the file system of `path`, with device number `dev`, for trial calls.
pub(super) fn beside(path: &Path, dev: u64) -> Option<File> {
    // Resolves a symbolic link to the folder of the file itself.
    let path = path.canonicalize().ok()?;
    let beside = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(path.parent()?)
        .ok()?;
    // A file may be mounted over another.
    (beside.metadata().ok()?.dev() == dev).then_some(beside)
}

/// Returns the best way in which the file system zeroes a range. `None` if the test was not
/// possible.
pub(super) fn ways(beside: &File) -> Option<Way> {
    const LEN: libc::off_t = 4096;
    for way in [Way::ZeroRange, Way::PunchHole] {
        let mode = zeroing::first(false, way);
        // SAFETY: numbers only.
        match unsafe { libc::fallocate(beside.as_raw_fd(), mode, 0, LEN) } {
            0 => return Some(way),
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            // Another error, such as no space, proves nothing.
            _ => return None,
        }
    }
    Some(Way::Write)
}

/// Returns whether io_uring supports the discard command of a block device. Tests with an empty
/// range, which is refused with another error than an unknown command.
pub(super) fn uring_discards(file: &File) -> io::Result<bool> {
    let mut ring = IoUring::new(1)?;
    let mut probe = io_uring::Probe::new();
    let knows_commands = ring.submitter().register_probe(&mut probe).is_ok()
        && probe.is_supported(opcode::UringCmd16::CODE);
    if !knows_commands {
        return Ok(false);
    }
    ring.submitter().register_files(&[file.as_raw_fd()])?;
    // SAFETY: the entry names no memory.
    let queued = unsafe { ring.submission().push(&discard(0, 0)) };
    assert!(queued.is_ok(), "a new ring has room for one entry");
    ring.submit_and_wait(1)?;
    let answer = ring.completion().next().map(|entry| entry.result());
    Ok(answer == Some(-libc::EINVAL))
}
