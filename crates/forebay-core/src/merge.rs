//! Joining a new bio with a request that is still plugged.
//!
//! Counterpart in Linux: `blk_attempt_bio_merge` (`block/blk-merge.c`). A bio joins at the back or
//! the front of a request if
//!
//! - M1 both do the same, have the same flags, and neither is a flush, a write-zeroes, FUA,
//!   PREFLUSH, or marked no-merge, or oversized;
//! - M2 they are neighbours on the device;
//! - M3 the sum keeps every limit, the size limit at the place where it then begins;
//! - M4 discards also join without being neighbours, as a list of ranges, if the device takes more
//!   than one range.
//!
//! A request that is full is marked no-merge, so that nobody asks it again.

use crate::bio::{Op, Segment};
use crate::limits::QueueLimits;
use crate::request::Request;
use crate::split::has_gap;

/// How a bio joined a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeKind {
    /// After its end.
    Back,
    /// Before its start.
    Front,
    /// As one more range of a discard.
    Discard,
}

impl MergeKind {
    /// Every kind, in the order of the counters.
    pub const ALL: [MergeKind; 3] = [MergeKind::Back, MergeKind::Front, MergeKind::Discard];

    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            MergeKind::Back => "back",
            MergeKind::Front => "front",
            MergeKind::Discard => "discard",
        }
    }
}

/// Tries to join `new`, a request of one bio, with `rq`. Gives it back where they do not join.
#[inline]
pub(crate) fn try_merge(
    limits: &QueueLimits,
    rq: &mut Request,
    new: Request,
) -> Result<MergeKind, Request> {
    if rq.nomerge || new.nomerge || rq.op != new.op || rq.flags != new.flags {
        return Err(new);
    }
    assert!(new.nr_bios == 1 && new.skip == 0);
    if rq.op == Op::Discard && limits.max_discard_segments > 1 {
        return merge_discard(limits, rq, new);
    }
    let (kind, start) = if rq.end() == new.start {
        (MergeKind::Back, rq.start)
    } else if new.end() == rq.start {
        (MergeKind::Front, new.start)
    } else {
        return Err(new);
    };
    if !gapless(limits, rq, &new, kind) {
        return Err(new);
    }
    let full = rq.len + new.len > limits.max_bytes_at(rq.op, start)
        || rq.op.moves_data() && rq.nr_segments + new.nr_segments > limits.max_segments;
    if full {
        rq.nomerge = true;
        return Err(new);
    }
    rq.len += new.len;
    rq.nr_segments += new.nr_segments;
    rq.start = start;
    match kind {
        MergeKind::Front => rq.push_front(new),
        MergeKind::Back | MergeKind::Discard => rq.push_back(new),
    }
    Ok(kind)
}

/// M4.
fn merge_discard(
    limits: &QueueLimits,
    rq: &mut Request,
    new: Request,
) -> Result<MergeKind, Request> {
    let full = rq.nr_bios >= limits.max_discard_segments
        || rq.len + new.len > limits.max_bytes_at(Op::Discard, rq.start);
    if full {
        rq.nomerge = true;
        return Err(new);
    }
    rq.len += new.len;
    rq.nr_segments += 1;
    rq.push_back(new);
    Ok(MergeKind::Discard)
}

/// Whether the memory of both joins without a gap (L4 of `split`).
#[inline]
fn gapless(limits: &QueueLimits, rq: &Request, new: &Request, kind: MergeKind) -> bool {
    if limits.virt_boundary_mask == 0 || !rq.op.moves_data() {
        return true;
    }
    let (first, second) = match kind {
        MergeKind::Front => (new, rq),
        MergeKind::Back | MergeKind::Discard => (rq, new),
    };
    let is_memory = |segment: &&Segment| segment.len > 0;
    let last = first.last().bio.segments.as_slice().iter().rfind(is_memory);
    let next = second.first().bio.segments.as_slice().iter().find(is_memory);
    match (last, next) {
        (Some(last), Some(next)) => !has_gap(limits, last.addr + last.len as usize, next.addr),
        _ => true,
    }
}
