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
    // `max` holds one granule, and this is less than that.
    let beyond = (start + max) % granularity;
    max - beyond
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const PAGE: u64 = 4096;

    /// Returns the lengths of the requests that a range is cut into, until one has no length.
    fn parts(limits: &QueueLimits, op: Op, start: u64, len: u64, memory: &[Segment]) -> Vec<u64> {
        let (mut done, mut parts) = (0, Vec::new());
        while done < len {
            let mut skip = done;
            let segments = memory.iter().map(|segment| {
                let skipped = skip.min(segment.len.into());
                skip -= skipped;
                let addr = segment.addr + skipped as usize;
                Segment { addr, len: segment.len - skipped as u32 }
            });
            let part = front(limits, op, start + done, len - done, segments).len;
            parts.push(part);
            if part == 0 {
                break;
            }
            done += part;
        }
        parts
    }

    fn memory(lens: &[u32]) -> Vec<Segment> {
        // Each begins a page after the end of the one before.
        let mut addr = 0x10_0000;
        let segments = lens.iter().map(|&len| {
            let segment = Segment { addr, len };
            addr += len as usize + PAGE as usize;
            segment
        });
        segments.collect()
    }

    fn reads(limits: &QueueLimits, start: u64, lens: &[u32]) -> Vec<u64> {
        let len = lens.iter().map(|len| u64::from(*len)).sum();
        parts(limits, Op::Read, start, len, &memory(lens))
    }

    #[test]
    fn rest_of_a_read_begins_at_a_physical_block() {
        let limits = QueueLimits::default().physical_block_size(4096).max_sectors(15);
        assert_eq!(reads(&limits, 0, &[10_240]), [4096, 6144], "L2: not up to byte 7680");
        assert_eq!(reads(&limits, 512, &[10_240]), [7680, 2560], "up to byte 8192");
        // A request that holds no physical block is cut at logical ones (L5).
        assert_eq!(reads(&limits.max_sectors(4), 4096, &[4096]), [2048, 2048]);
    }

    #[test]
    fn discards_are_cut_at_their_granularity() {
        let limits = QueueLimits::default().discard_granularity(8192).max_discard_sectors(20);
        let discard = |start, len| parts(&limits, Op::Discard, start, len, &[]);
        assert_eq!(discard(4096, 24_576), [4096, 8192, 8192, 4096], "L6");
        assert_eq!(discard(8192, 8192), [8192]);
        assert_eq!(discard(8192, 8704), [8192, 512]);
    }

    #[test]
    fn request_has_as_many_segments_as_fit_and_whole_blocks() {
        let limits = QueueLimits::default().max_segments(3);
        let front_of = |limits: &QueueLimits, lens: &[u32]| {
            let len = lens.iter().map(|len| u64::from(*len)).sum();
            let front = front(limits, Op::Write, 0, len, memory(lens).into_iter());
            (front.len, front.nr_segments)
        };
        assert_eq!(front_of(&limits, &[4096, 512, 512]), (5120, 3), "all of it");
        assert_eq!(front_of(&limits, &[4096, 512, 512, 512]), (5120, 3));
        assert_eq!(front_of(&limits, &[256, 256, 256, 256]), (512, 3), "L5: no part of a block");
        assert_eq!(front_of(&limits, &[512, 0, 512, 0, 512]), (1536, 3), "empty ones do not count");
        assert_eq!(front_of(&limits.max_segments(1), &[256, 256]), (0, 1), "not even a block");
    }

    #[test]
    fn long_segments_count_as_several() {
        let large = QueueLimits::default().max_segment_size(4096);
        let bounded = QueueLimits::default().seg_boundary_mask(4095);
        for limits in [large, bounded] {
            let front = |lens: &[u32]| {
                let len = lens.iter().map(|len| u64::from(*len)).sum();
                front(&limits, Op::Read, 0, len, memory(lens).into_iter())
            };
            assert_eq!(front(&[4096]), Front { len: 4096, nr_segments: 1 });
            assert_eq!(front(&[8192]), Front { len: 8192, nr_segments: 2 });
            assert_eq!(front(&[4096, 8192]), Front { len: 12_288, nr_segments: 3 });
        }
    }

    #[test]
    fn segments_join_only_without_a_gap() {
        let limits = QueueLimits::default().virt_boundary_mask(4095);
        assert_eq!(reads(&limits, 0, &[4096, 4096]), [8192]);
        // The first ends within a page, so the second begins within one.
        assert_eq!(reads(&limits, 0, &[512, 512]), [512, 512], "L4");
    }
}
