//! Ways to change a range of a file or block device, and their order.
//!
//! A range is zeroed with one call if the file system can do that. Otherwise a hole is punched. If
//! there are no holes, zeroes are written. Zeroes behind the end of a growing file extend it, as a
//! write does. A hole cannot extend a file, so the range is allocated first.
//!
//! A range is discarded by punching a hole, or on a block device by the device's own command.
//! Devices without a queue of their own (zram, some device mapper targets) refuse a command that
//! must not wait. io_uring first issues it like that; a kernel worker then issues it without that
//! restriction.

use crate::buf::Buf;
use forebay_core::Segment;
use std::sync::LazyLock;

/// Punches a hole, which is also a way to discard a range.
pub(super) const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO_AND_GROW: i32 = libc::FALLOC_FL_ZERO_RANGE;
/// Allocates the range. A file that ends before the range grows; no file shrinks.
const GROW: i32 = 0;
/// Not a mode of `fallocate`: zeroes are written.
pub(super) const WRITE: i32 = -1;
/// Not a mode of `fallocate`: the device discards (`BLKDISCARD`).
pub(super) const DISCARD: i32 = -2;
/// As [`DISCARD`], but io_uring passes the command to a kernel worker.
pub(super) const DISCARD_BY_WORKER: i32 = -3;

/// The best way to zero a range that a file system is known to have; best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Way {
    /// With one call.
    #[default]
    ZeroRange,
    /// By punching a hole.
    PunchHole,
    /// By writing zeroes.
    Write,
}

impl Way {
    /// All ways, best first.
    pub(super) const ALL: [Way; 3] = [Way::ZeroRange, Way::PunchHole, Way::Write];

    /// Returns the way that a mode belongs to.
    pub(super) fn of(mode: i32) -> Way {
        match mode {
            GROW | PUNCH_HOLE => Way::PunchHole,
            WRITE => Way::Write,
            _ => Way::ZeroRange,
        }
    }
}

/// The ways to change ranges of one file or device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranges {
    /// Zeroes behind its end extend it, as a write does.
    pub(super) grows: bool,
    /// The mode that discards a range, as far as known: [`PUNCH_HOLE`], [`DISCARD`] or
    /// [`DISCARD_BY_WORKER`].
    pub(super) discard: i32,
    /// The best way to zero a range, as far as known at open.
    pub(super) way: Way,
    /// A partial write of zeroes is continued. False if more zeroes may have been written than were
    /// counted, because other data may have been written there since.
    pub(super) goes_on: bool,
}

/// Returns the mode of the first call that zeroes a range, if this way is known to be the best.
pub(super) fn first(grows: bool, way: Way) -> i32 {
    match (way, grows) {
        (Way::ZeroRange, true) => ZERO_AND_GROW,
        (Way::ZeroRange, false) => ZERO_RANGE,
        (Way::PunchHole, true) => GROW,
        (Way::PunchHole, false) => PUNCH_HOLE,
        (Way::Write, _) => WRITE,
    }
}

/// Returns the mode of the next call after one that ended with the error `failed`, or with none.
/// Returns `None` if that was the last. From then on the way of the returned mode is the best
/// known.
pub(super) fn next(mode: i32, failed: Option<i32>) -> Option<i32> {
    match (mode, failed) {
        (ZERO_RANGE, Some(libc::EOPNOTSUPP)) => Some(PUNCH_HOLE),
        (ZERO_AND_GROW, Some(libc::EOPNOTSUPP)) => Some(GROW),
        (GROW, None) => Some(PUNCH_HOLE),
        (GROW | PUNCH_HOLE, Some(libc::EOPNOTSUPP)) => Some(WRITE),
        _ => None,
    }
}

/// Returns the mode of the next call after a discard that ended with the error `failed`.
pub(super) fn next_discard(mode: i32, failed: Option<i32>) -> Option<i32> {
    match (mode, failed) {
        (DISCARD, Some(libc::EOPNOTSUPP)) => Some(DISCARD_BY_WORKER),
        _ => None,
    }
}

/// The number of zeroes in memory, which are written repeatedly.
const NR_ZEROES: usize = 64 << 10;

/// Aligned for every device, as any buffer is. Allocated at first use.
static ZEROES: LazyLock<Buf> = LazyLock::new(|| Buf::new(NR_ZEROES));

/// Returns at most `max` segments of zeroes, of at most `len` bytes in total.
pub(super) fn segments(len: u64, max: usize) -> impl Iterator<Item = Segment> {
    let part = NR_ZEROES as u64;
    let nr = len.div_ceil(part).min(max as u64);
    let addr = ZEROES.addr();
    (0..nr).map(move |nth| Segment { addr, len: (len - nth * part).min(part) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the calls for one range, on a file system that has this way to zero one, and no
    /// better.
    fn calls(grows: bool, known: Way, has: Way) -> Vec<i32> {
        let mut calls = vec![first(grows, known)];
        loop {
            let mode = *calls.last().expect("there is a first");
            let fails = Way::of(mode) < has;
            match next(mode, fails.then_some(libc::EOPNOTSUPP)) {
                Some(mode) => calls.push(mode),
                None => return calls,
            }
        }
    }

    #[test]
    fn a_file_that_grows_is_lengthened_before_the_hole_is_punched() {
        use Way::{PunchHole, ZeroRange};
        assert_eq!(calls(true, ZeroRange, ZeroRange), [ZERO_AND_GROW]);
        assert_eq!(calls(true, ZeroRange, PunchHole), [ZERO_AND_GROW, GROW, PUNCH_HOLE]);
        assert_eq!(calls(true, PunchHole, PunchHole), [GROW, PUNCH_HOLE]);
        assert_eq!(calls(false, ZeroRange, ZeroRange), [ZERO_RANGE]);
        assert_eq!(calls(false, ZeroRange, PunchHole), [ZERO_RANGE, PUNCH_HOLE]);
        assert_eq!(calls(false, PunchHole, PunchHole), [PUNCH_HOLE]);
    }

    #[test]
    fn zeroes_are_written_where_there_is_no_other_way() {
        for known in Way::ALL {
            for grows in [false, true] {
                assert_eq!(calls(grows, known, Way::Write).last(), Some(&WRITE));
            }
        }
        assert_eq!(calls(true, Way::Write, Way::Write), [WRITE]);
    }

    #[test]
    fn another_failure_is_the_last_word() {
        for mode in [ZERO_RANGE, ZERO_AND_GROW, GROW, PUNCH_HOLE, WRITE] {
            assert_eq!(next(mode, Some(libc::ENOSPC)), None);
        }
        assert_eq!(next(WRITE, Some(libc::EOPNOTSUPP)), None);
    }

    #[test]
    fn zeroes_are_as_many_as_are_asked_for_or_have_room() {
        let lens = |len, max| segments(len, max).map(|segment| segment.len).collect::<Vec<_>>();
        assert!(lens(0, 4).is_empty());
        assert_eq!(lens(512, 4), [512]);
        assert_eq!(lens((64 << 10) + 1, 4), [64 << 10, 1]);
        assert_eq!(lens(1 << 20, 4), [64 << 10; 4]);
    }
}
