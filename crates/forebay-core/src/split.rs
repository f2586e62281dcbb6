//! Splitting of a bio at the limits of its disk.
//!
//! Counterpart in Linux: `bio_split_rw_at`, `bio_split_discard` (`block/blk-merge.c`). The rules,
//! in the order of their application:
//!
//! - L1 a read or write has at most `max_sectors` and crosses no chunk boundary;
//! - L2 if it must be cut, it is cut at the end of a physical block where possible, so that the
//!   rest begins aligned;
//! - L3 it has at most `max_segments` segments; a segment longer than `max_segment_size`, or one
//!   that crosses `seg_boundary_mask`, counts as several;
//! - L4 segments join without a gap with respect to `virt_boundary_mask`;
//! - L5 every cut is at a logical block boundary;
//! - L6 a discard is cut at `max_discard_sectors` and at its granularity, a write-zeroes at its own
//!   limit.

use crate::bio::{Op, Segment};
use crate::limits::QueueLimits;

/// The front of a range that fits one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    /// The length in bytes; 0 if not even one logical block fits.
    pub(crate) len: u64,
    /// The number of segments it counts as.
    pub(crate) nr_segments: u32,
}

/// Returns the longest front of (`start`, `len`) that fits one request.
#[inline]
pub(crate) fn front(
    limits: &QueueLimits,
    op: Op,
    start: u64,
    len: u64,
    segments: impl Iterator<Item = Segment>,
) -> Front {
    match op {
        Op::Read | Op::Write => {
            let max = max_rw(limits, op, start, len);
            front_of_segments(limits, max, segments)
        }
        Op::Discard => Front { len: max_discard(limits, start, len), nr_segments: 1 },
        Op::WriteZeroes => {
            let max = round_down(limits.max_bytes_at(op, start), limits.logical_block_size);
            Front { len: len.min(max), nr_segments: 0 }
        }
        Op::Flush => Front { len: 0, nr_segments: 0 },
    }
}

/// Returns the largest read or write by L1, L2 and L5.
#[inline]
fn max_rw(limits: &QueueLimits, op: Op, start: u64, len: u64) -> u64 {
    let max = limits.max_bytes_at(op, start);
    if len <= max {
        return len;
    }
    let aligned_end = round_down(start + max, limits.physical_block_size);
    if aligned_end > start {
        return aligned_end - start;
    }
    round_down(max, limits.logical_block_size)
}

/// Returns the largest discard by L6.
fn max_discard(limits: &QueueLimits, start: u64, len: u64) -> u64 {
    let granularity = u64::from(limits.discard_granularity.max(1));
    let max = limits.max_bytes_at(Op::Discard, start);
    let max = max - max % granularity;
    if len <= max {
        return len;
    }
    let beyond = (start + max) % granularity;
    if max > beyond { max - beyond } else { max }
}

/// Returns as many segments as fit by L3, L4 and L5, at most `max` bytes.
#[inline]
fn front_of_segments(
    limits: &QueueLimits,
    max: u64,
    segments: impl Iterator<Item = Segment>,
) -> Front {
    let mut len = 0;
    let mut nr_segments = 0;
    let mut previous_end = None;
    for segment in segments.filter(|segment| segment.len > 0) {
        if len == max {
            break;
        }
        if previous_end.is_some_and(|end| has_gap(limits, end, segment.addr)) {
            return cut(limits, len, nr_segments);
        }
        let want = u64::from(segment.len).min(max - len);
        let room = limits.max_segments - nr_segments;
        let (taken, pieces) = pieces(limits, segment.addr, want, room);
        len += taken;
        nr_segments += pieces;
        if taken < want {
            return cut(limits, len, nr_segments);
        }
        previous_end = Some(segment.addr + segment.len as usize);
    }
    Front { len, nr_segments }
}

/// Rounds down a front that a segment limit ended inside a logical block (L5).
fn cut(limits: &QueueLimits, len: u64, nr_segments: u32) -> Front {
    Front { len: round_down(len, limits.logical_block_size), nr_segments }
}

/// Returns how many of `want` bytes at `addr` fit `room` segments, and how many segments they take.
#[inline]
fn pieces(limits: &QueueLimits, addr: usize, want: u64, room: u32) -> (u64, u32) {
    let max_piece = u64::from(limits.max_segment_size);
    if room > 0 && want <= max_piece && limits.seg_boundary_mask == u64::MAX {
        return (want, 1);
    }
    let mut taken = 0;
    let mut nr = 0;
    while taken < want && nr < room {
        let at = addr as u64 + taken;
        let to_boundary =
            (limits.seg_boundary_mask - (at & limits.seg_boundary_mask)).saturating_add(1);
        taken += (want - taken).min(max_piece).min(to_boundary);
        nr += 1;
    }
    (taken, nr)
}

/// Returns whether a segment at `addr` must not follow one that ends at `previous_end` (L4).
#[inline]
pub(crate) fn has_gap(limits: &QueueLimits, previous_end: usize, addr: usize) -> bool {
    (previous_end as u64 | addr as u64) & limits.virt_boundary_mask != 0
}

#[inline]
fn round_down(bytes: u64, unit: u32) -> u64 {
    bytes & !(u64::from(unit) - 1)
}
