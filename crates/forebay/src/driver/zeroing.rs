//! Zeroing a range of a file: the modes of `fallocate`, and which follows which.
//!
//! A range is zeroed with one call where the file system can do that, and otherwise a hole is
//! punched. Zeroes behind the end of a file that grows make it grow, as a write would; a hole
//! cannot, so the range is allocated before it.

/// Punches a hole, which is also how a range is discarded.
pub(super) const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO_AND_GROW: i32 = libc::FALLOC_FL_ZERO_RANGE;
/// Allocates, which makes the file longer where it ends before the range, and never shorter.
const GROW: i32 = 0;

/// The mode of the first call. `goes_around`: an earlier one has shown that the file system cannot
/// zero a range.
pub(super) fn first(grows: bool, goes_around: bool) -> i32 {
    match (grows, goes_around) {
        (true, false) => ZERO_AND_GROW,
        (true, true) => GROW,
        (false, false) => ZERO_RANGE,
        (false, true) => PUNCH_HOLE,
    }
}

/// The mode of the call that goes on where one came back with the error `failed`, or with none.
/// None: that was the last. From here on the file system is known not to zero ranges.
pub(super) fn next(mode: i32, failed: Option<i32>) -> Option<i32> {
    match (mode, failed) {
        (ZERO_RANGE, Some(libc::EOPNOTSUPP)) => Some(PUNCH_HOLE),
        (ZERO_AND_GROW, Some(libc::EOPNOTSUPP)) => Some(GROW),
        (GROW, None) => Some(PUNCH_HOLE),
        _ => None,
    }
}

/// Whether this mode of zeroing is taken only where a file system cannot zero a range.
pub(super) fn goes_around(mode: i32) -> bool {
    matches!(mode, GROW | PUNCH_HOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls for one range, on a file system that refuses to zero ranges or does not.
    fn calls(grows: bool, goes_around: bool, refuses: bool) -> Vec<i32> {
        let mut calls = vec![first(grows, goes_around)];
        loop {
            let mode = *calls.last().expect("there is a first");
            let fails = refuses && matches!(mode, ZERO_RANGE | ZERO_AND_GROW);
            match next(mode, fails.then_some(libc::EOPNOTSUPP)) {
                Some(mode) => calls.push(mode),
                None => return calls,
            }
        }
    }

    #[test]
    fn a_file_that_grows_is_lengthened_before_the_hole_is_punched() {
        assert_eq!(calls(true, false, false), [ZERO_AND_GROW]);
        assert_eq!(calls(true, false, true), [ZERO_AND_GROW, GROW, PUNCH_HOLE]);
        assert_eq!(calls(true, true, true), [GROW, PUNCH_HOLE]);
        assert_eq!(calls(false, false, false), [ZERO_RANGE]);
        assert_eq!(calls(false, false, true), [ZERO_RANGE, PUNCH_HOLE]);
        assert_eq!(calls(false, true, true), [PUNCH_HOLE]);
    }

    #[test]
    fn another_failure_is_the_last_word() {
        for mode in [ZERO_RANGE, ZERO_AND_GROW, GROW, PUNCH_HOLE] {
            assert_eq!(next(mode, Some(libc::ENOSPC)), None);
        }
    }
}
