//! The files of descriptors, and the times of stages, for `forebay run --stats`.
//!
//! Files are counted and times are measured only if the area of the process is detailed. Otherwise
//! the clock is not read, and no call is made for it.
//!
//! An iocb of the layer counts for the file that it was submitted to: the layer has checked its
//! descriptor. Any other iocb has only the number of a descriptor, and a check of each would cost
//! too much. So its file is the one that the descriptor was seen to be in the same period of
//! [`PERIOD_NS`]: if the program reuses a number, its iocbs may count for the previous file for so
//! long.

use crate::program::{self, FileId};
use forebay_run::area::{self, Counter, FileNumber, LOOKUP_MS, Stage};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The time for which a descriptor is taken to be of the same file.
const PERIOD_NS: u64 = LOOKUP_MS * 1_000_000;

/// The descriptors that were seen, by the last bits of their number. 0 is none.
static SEEN: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// A descriptor that was seen, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    fd: u32,
    /// The number of the period; never 0.
    period: u16,
    number: FileNumber,
}

impl Seen {
    fn word(self) -> u64 {
        u64::from(self.fd) << 32 | u64::from(self.period) << 16 | u64::from(self.number.get())
    }

    fn of_word(word: u64) -> Seen {
        let number = FileNumber::from_number(word as u16);
        Seen { fd: (word >> 32) as u32, period: (word >> 16) as u16, number }
    }
}

/// Returns the time in nanoseconds, which is not 0. Returns 0 if times are not measured.
pub(crate) fn now() -> u64 {
    if area::is_detailed() { program::now_ns() } else { 0 }
}

/// Records the time of an I/O in a stage that it entered at `since`, as [`now`] returned it.
pub(crate) fn record_since(stage: Stage, number: FileNumber, since: u64) {
    if since > 0 {
        area::record(stage, number, now().saturating_sub(since));
    }
}

/// Returns the place of a file.
pub(crate) fn number_of(id: FileId) -> FileNumber {
    match now() {
        0 => FileNumber::OTHER,
        now => number_at(id.fd, Some(id), now),
    }
}

/// Returns the table index of a descriptor's file. `id` is its identity, if the caller has checked
/// it.
pub(crate) fn number_at(fd: u32, id: Option<FileId>, now: u64) -> FileNumber {
    let place = &SEEN[fd as usize % SEEN.len()];
    let seen = Seen::of_word(place.load(Ordering::Relaxed));
    let period = (now / PERIOD_NS % u64::from(u16::MAX)) as u16 + 1;
    let is_recent = seen.fd == fd && seen.period == period;
    let is_right = match id {
        Some(id) if seen.number != FileNumber::OTHER => {
            seen.fd == fd && area::is_of_file(seen.number, id.dev, id.ino)
        }
        _ => is_recent,
    };
    if is_right {
        return seen.number;
    }
    let id = id.or_else(|| program::identity_of(fd));
    let number = id.map_or(FileNumber::OTHER, |id| area::file(id.dev, id.ino, || path_of(fd)));
    place.store(Seen { fd, period, number }.word(), Ordering::Relaxed);
    number
}

/// Returns the path of the file of a descriptor, as the system has it.
fn path_of(fd: u32) -> Vec<u8> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    path.map(|path| path.into_os_string().into_vec()).unwrap_or_default()
}

/// Counts a read that is held.
pub(crate) fn count_held(number: FileNumber) {
    area::count(number, Counter::Held, 1);
    area::count(number, Counter::Iocbs, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_descriptor_is_one_word() {
        for (fd, period, number) in [(0, 1, 0), (u32::MAX, u16::MAX, 1023), (1 << 20, 7, 500)] {
            let number = FileNumber::from_number(number);
            let seen = Seen { fd, period, number };
            assert_eq!(Seen::of_word(seen.word()), seen);
            assert_ne!(seen.word(), 0);
        }
    }
}
