//! Data and holes of an image, from the list of its objects.
// It passes a list to a callback of librbd.
#![allow(unsafe_code)]

use super::image::Image;
use crate::extent::{ExtentKind, Extents};
use forebay_core::{BlockStatus, Op};
use std::ffi::{c_int, c_void};

/// The length of a query, bytes. Each object of it costs an operation at an OSD.
const QUERY: u64 = 256 << 20;

/// Maximum number of queries per call. The caller treats the rest of the range as data.
const NR_QUERIES: u32 = 16;

/// A range that was written, or written and discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    len: u64,
    is_data: bool,
}

/// Describes an image of `size` bytes from byte `offset` on.
///
/// # Errors
/// Returns the status of librbd's error.
pub(super) fn of_image(
    image: &Image,
    size: u64,
    offset: u64,
    extents: &mut Extents<'_>,
) -> Result<(), BlockStatus> {
    let mut at = offset;
    let mut found = Vec::new();
    for _ in 0..NR_QUERIES {
        // A query ends at the end of an object, so that the next one has whole objects.
        let len = (QUERY - at % QUERY).min(extents.left()).min(size.saturating_sub(at));
        if len == 0 {
            break;
        }
        found.clear();
        let list: *mut Vec<Range> = &raw mut found;
        // SAFETY: the list exists until the call returns, and nothing else uses it meanwhile.
        // librbd makes one call of the callback at a time.
        let listed = unsafe { image.diff(at, len, collect, list.cast()) };
        listed.map_err(|error| image.status_of(error, Op::Read))?;
        describe(at, len, &mut found, extents);
        at += len;
    }
    Ok(())
}

/// Adds a range to a list.
extern "C" fn collect(start: u64, len: usize, exists: c_int, list: *mut c_void) -> c_int {
    // SAFETY: the caller has passed the address of this list, and librbd makes one call at a time.
    let list = unsafe { &mut *list.cast::<Vec<Range>>() };
    list.push(Range { start, len: len as u64, is_data: exists != 0 });
    0
}

/// Describes the `len` bytes from byte `start` on. Bytes in no range were never written. The
/// ranges may have any order.
fn describe(start: u64, len: u64, ranges: &mut [Range], extents: &mut Extents<'_>) {
    // Data comes first where a range was reported twice.
    ranges.sort_unstable_by_key(|range| (range.start, !range.is_data));
    let end = start + len;
    let mut at = start;
    for range in ranges.iter().filter(|range| range.is_data) {
        let from = range.start.clamp(at, end);
        let until = (range.start + range.len).clamp(from, end);
        if until == from {
            continue;
        }
        extents.push(from - at, ExtentKind::Hole);
        extents.push(until - from, ExtentKind::Data);
        at = until;
    }
    extents.push(end - at, ExtentKind::Hole);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Extent;
    use ExtentKind::{Data, Hole};

    #[test]
    fn ranges_in_any_order_describe_data_and_holes() {
        let check = |ranges: &[(u64, u64, bool)], expected: &[(u64, ExtentKind)]| {
            let mut ranges: Vec<Range> =
                ranges.iter().map(|&(start, len, is_data)| Range { start, len, is_data }).collect();
            let mut list = Vec::new();
            let mut extents = Extents::new(&mut list, 100, 10);
            describe(1000, 100, &mut ranges, &mut extents);
            assert_eq!(extents.left(), 0);
            let expected: Vec<Extent> =
                expected.iter().map(|&(len, kind)| Extent { len, kind }).collect();
            assert_eq!(list, expected, "{ranges:?}");
        };
        check(&[], &[(100, Hole)]);
        check(&[(1000, 100, true)], &[(100, Data)]);
        check(
            &[(1050, 10, true), (1010, 20, true)],
            &[(10, Hole), (20, Data), (20, Hole), (10, Data), (40, Hole)],
        );
        check(&[(1000, 50, false), (1050, 50, true)], &[(50, Hole), (50, Data)]);
        // Overlapping ranges, and ranges that begin before the query or end behind it.
        check(&[(990, 20, true), (1000, 30, true), (1005, 5, false)], &[(30, Data), (70, Hole)]);
        check(&[(1090, 50, true)], &[(90, Hole), (10, Data)]);
        check(&[(900, 50, true), (1200, 50, true)], &[(100, Hole)]);
    }
}
