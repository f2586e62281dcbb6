//! Limits: a request keeps every limit of the device (K3). The check is written from the definition
//! of the limits, so that it shares no mistake with the layer's arithmetic.

use super::{Verdict, broken, rules};
use forebay_core::{IssuedRequest, Op, QueueLimits, Segment};

/// Checks one request.
pub(crate) fn check(limits: &QueueLimits, rq: &IssuedRequest<'_>) -> Verdict {
    let rule = |holds: bool, name: &str| match holds {
        true => Ok(()),
        false => {
            let (op, start, len, nr) = (rq.op.name(), rq.start, rq.len, rq.nr_bios);
            let what = format!("{name}: {op} of {len} bytes at {start}, of {nr} bios");
            broken(rules::K3, what)
        }
    };
    let block = u64::from(limits.logical_block_size);
    rule(rq.start.is_multiple_of(block) && rq.len.is_multiple_of(block), "logical_block_size")?;
    let end = rq.start + rq.len;
    let ends_within = |end: u64| limits.capacity_bytes.is_none_or(|capacity| end <= capacity);
    let is_within = match rq.op {
        Op::Discard => rq.ranges().all(|(start, len)| ends_within(start + len)),
        _ => ends_within(end),
    };
    rule(is_within, "capacity_bytes")?;
    rule(!rq.fua || limits.fua && limits.volatile_cache && rq.op == Op::Write, "fua")?;
    match rq.op {
        Op::Flush => rule(rq.len == 0 && limits.volatile_cache, "volatile_cache"),
        Op::Read | Op::Write => {
            rule(rq.len > 0, "a length")?;
            rule(rq.len <= u64::from(limits.max_sectors) * 512, "max_sectors")?;
            let chunk = u64::from(limits.chunk_sectors) * 512;
            let crosses = chunk > 0 && rq.start / chunk != (end - 1) / chunk;
            rule(!crosses, "chunk_sectors")?;
            let nr_segments = count(limits, rq.segments());
            rule(nr_segments.is_some(), "virt_boundary_mask")?;
            let nr_segments = nr_segments.unwrap_or(0);
            rule(nr_segments <= limits.max_segments, "max_segments")?;
            rule(nr_segments <= rq.nr_segments, "nr_segments")
        }
        Op::Discard => {
            rule(rq.len <= u64::from(limits.max_discard_sectors) * 512, "max_discard_sectors")?;
            let nr_ranges = rq.ranges().count() as u32;
            rule(nr_ranges <= limits.max_discard_segments.max(rq.nr_bios), "ranges")?;
            let may_be_many = limits.max_discard_segments > 1;
            let is_one = contiguous(rq);
            rule(is_one || may_be_many && nr_ranges <= limits.max_discard_segments, "one range")
        }
        Op::WriteZeroes => {
            let max = u64::from(limits.max_write_zeroes_sectors) * 512;
            rule(rq.len > 0 && rq.len <= max, "max_write_zeroes_sectors")
        }
    }
}

/// Returns the number of segments that the device sees, or `None` if two of them join with a gap.
fn count(limits: &QueueLimits, segments: impl Iterator<Item = Segment>) -> Option<u32> {
    let mut nr = 0;
    let mut previous_end = None;
    for Segment { addr, len } in segments {
        let (start, end) = (addr as u64, addr as u64 + u64::from(len));
        // A part of the caller's segment continues where the previous part ended.
        let goes_on = previous_end == Some(start);
        let gap = |end: u64| (end | start) & limits.virt_boundary_mask != 0;
        if !goes_on && previous_end.is_some_and(gap) {
            return None;
        }
        let mut at = start;
        while at < end {
            let to_boundary =
                (limits.seg_boundary_mask - (at & limits.seg_boundary_mask)).saturating_add(1);
            at += (end - at).min(to_boundary).min(limits.max_segment_size.into());
            nr += 1;
        }
        previous_end = Some(end);
    }
    Some(nr)
}

/// Returns whether the ranges of a request are adjacent and in order.
fn contiguous(rq: &IssuedRequest<'_>) -> bool {
    let mut at = rq.start;
    rq.ranges().all(|(start, len)| {
        let follows = start == at;
        at = start + len;
        follows
    })
}
