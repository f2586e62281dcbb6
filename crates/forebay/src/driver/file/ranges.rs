//! How ranges of a file or block device are discarded and zeroed: what is asked of the system at
//! open, and what follows for each engine.
//!
//! A block device says in sysfs what commands it has. Of a file system there is nothing to be read,
//! and to ask with a call on the file would change it, if only where it has space. So a file
//! without a name is made beside it, on the same file system, which is gone when it is closed
//! (`O_TMPFILE`); that one is asked. Where it cannot be made, for want of a permission, say, the
//! file system is taken at its best, and what it refuses then is done in the next best way.
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

/// Of discards and write-zeroes, 2 GiB: longer ones would keep a kernel worker for long.
const MAX_RANGE_SECTORS: u32 = 1 << 22;

/// What is known of ranges before it is known what does the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// The best way that the file system has to zero a range, if it was asked. Without holes there
    /// are no discards.
    OfFile(Option<Way>),
    /// The commands that the device has.
    OfDevice {
        /// Discard.
        discards: bool,
        /// Write zeroes; without it the kernel writes them.
        zeroes: bool,
    },
}

/// How a range is discarded.
struct Discard {
    mode: i32,
    /// Whether it is known to read as zeroes then, and a hole is there that zeroing may not leave.
    to_zeroes: bool,
    how: &'static str,
}

/// What it means for an engine.
pub(super) struct Settled {
    pub(super) ranges: Ranges,
    pub(super) facts: DiskFacts,
    pub(super) features: Vec<Feature>,
}

impl Knowledge {
    /// What it means for an engine, which can have a block device discard or not. Sets the limits.
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
        // Who wants zeroes must not be told that there are no holes.
        None => {
            let how = "fallocate, punching a hole; fails where the file system cannot";
            Ok(Discard { mode, to_zeroes: false, how })
        }
    }
}

/// Whether it is known to be faster than to write zeroes, and how it is done.
fn how_to_zero(way: Option<Way>) -> (bool, &'static str) {
    match way {
        Some(Way::ZeroRange) => (true, "fallocate, zeroing the range"),
        Some(Way::PunchHole) => {
            (true, "fallocate, punching a hole, since its file system zeroes no ranges")
        }
        Some(Way::Write) => (false, "zeroes are written, since its file system has nothing else"),
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
            let how = "BLKDISCARD; what it reads as is the device's choice";
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

/// A file without a name on the file system of `path`, whose device is `dev`, to be asked what that
/// can do.
pub(super) fn beside(path: &Path, dev: u64) -> Option<File> {
    // Of a link, the folder of the file itself.
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

/// The best way that the file system of a file has to zero a range. None: that could not be asked.
pub(super) fn ways(beside: &File) -> Option<Way> {
    const LEN: libc::off_t = 4096;
    for way in [Way::ZeroRange, Way::PunchHole] {
        let mode = zeroing::first(false, way);
        // SAFETY: numbers only.
        match unsafe { libc::fallocate(beside.as_raw_fd(), mode, 0, LEN) } {
            0 => return Some(way),
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            // No space, for instance: that says nothing.
            _ => return None,
        }
    }
    Some(Way::Write)
}

/// Whether io_uring can have a block device discard, which is asked with a range of no length: that
/// is refused, in other words than a command that is not there.
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
