//! Merging of requests: of a new bio with a plugged request, and of requests that have left their
//! plugs in a scheduler.
//!
//! Counterpart in Linux: `blk_attempt_bio_merge` (`block/blk-merge.c`). A bio merges at the back or
//! the front of a request under these conditions:
//!
//! - M1 both have the same operation, flags and origin, and neither is a flush, a write-zeroes,
//!   FUA, PREFLUSH, marked no-merge, or oversized;
//! - M2 they are neighbours on the device;
//! - M3 the result keeps every limit, including the size limit at its new start;
//! - M4 discards also merge without being neighbours, as a list of ranges, if the device accepts
//!   more than one range.
//!
//! A full request is marked no-merge, so later bios skip it at once.

use crate::bio::{BioFlags, Op, Segment};
use crate::limits::QueueLimits;
use crate::plant::plants;
use crate::request::Request;
use crate::split::has_gap;

/// How a bio merged with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeKind {
    /// After the request's end.
    Back,
    /// Before the request's start.
    Front,
    /// As an additional range of a discard.
    Discard,
}

impl MergeKind {
    /// All kinds, in the order of the counters.
    pub const ALL: [MergeKind; 3] = [MergeKind::Back, MergeKind::Front, MergeKind::Discard];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            MergeKind::Back => "back",
            MergeKind::Front => "front",
            MergeKind::Discard => "discard",
        }
    }
}

/// Merges `new`, a request of one bio, into `rq`. Returns `new` if they do not merge.
#[inline]
pub(crate) fn try_merge(
    limits: &QueueLimits,
    rq: &mut Request,
    new: Request,
) -> Result<MergeKind, Request> {
    match fit(limits, rq, &new) {
        None => Err(new),
        Some(kind) => {
            assert!(new.nr_bios == 1 && new.skip == 0);
            match kind {
                MergeKind::Front => rq.push_front(new),
                MergeKind::Back | MergeKind::Discard => rq.push_back(new),
            }
            Ok(kind)
        }
    }
}

/// Merges `new`, a request of any number of bios, into `rq`. Neither was issued. Returns `new` if
/// they do not merge.
pub(crate) fn try_join(
    limits: &QueueLimits,
    rq: &mut Request,
    new: Request,
) -> Result<MergeKind, Request> {
    let Some(kind) = fit(limits, rq, &new) else { return Err(new) };
    assert!(!new.was_issued && !rq.was_issued && new.skip == 0);
    rq.unplugged_ns = rq.unplugged_ns.min(new.unplugged_ns);
    match kind {
        MergeKind::Front => rq.prepend(new),
        MergeKind::Back | MergeKind::Discard => rq.append(new),
    }
    Ok(kind)
}

/// Extends the range of `rq` by that of `new` if they may merge. Returns how.
#[inline(always)]
fn fit(limits: &QueueLimits, rq: &mut Request, new: &Request) -> Option<MergeKind> {
    // M2 and M4 first: most requests that do not merge fail here.
    let (kind, start) = if rq.end() == new.start {
        (MergeKind::Back, rq.start)
    } else if new.end() == rq.start {
        (MergeKind::Front, new.start)
    } else if rq.op == Op::Discard {
        (MergeKind::Discard, rq.start)
    } else {
        return None;
    };
    if !are_alike(rq, new) {
        return None;
    }
    if rq.op == Op::Discard && limits.max_discard_segments > 1 {
        return fit_discard(limits, rq, new);
    }
    if kind == MergeKind::Discard {
        return None;
    }
    if !gapless(limits, rq, new, kind) {
        return None;
    }
    let full = rq.len + new.len > limits.max_bytes_at(rq.op, start)
        || rq.op.moves_data() && rq.nr_segments + new.nr_segments > limits.max_segments;
    if full {
        rq.nomerge = true;
        return None;
    }
    rq.len += new.len;
    rq.nr_segments += new.nr_segments;
    rq.start = start;
    Some(kind)
}

/// Returns whether two requests are of the same kind (M1).
#[inline]
fn are_alike(rq: &Request, new: &Request) -> bool {
    if plants!(MergeFua) && is_fua_planted(rq, new) {
        return are_alike_planted(rq, new);
    }
    let are_mergeable = !rq.nomerge && !new.nomerge && rq.op == new.op && rq.flags == new.flags;
    are_mergeable && rq.origin == new.origin
}

/// Returns whether a planted bug applies.
fn is_fua_planted(rq: &Request, new: &Request) -> bool {
    (rq.flags, new.flags) == (BioFlags::NONE, BioFlags::FUA)
}

/// Returns whether two requests of different flags merge by a planted bug.
fn are_alike_planted(rq: &Request, new: &Request) -> bool {
    !rq.nomerge && !new.oversized && rq.op == new.op
}

/// Extends a discard by the ranges of another (M4).
fn fit_discard(limits: &QueueLimits, rq: &mut Request, new: &Request) -> Option<MergeKind> {
    let full = rq.nr_bios + new.nr_bios > limits.max_discard_segments
        || rq.len + new.len > limits.max_bytes_at(Op::Discard, rq.start);
    if full {
        rq.nomerge = true;
        return None;
    }
    rq.len += new.len;
    rq.nr_segments += new.nr_segments;
    Some(MergeKind::Discard)
}

/// Returns whether the memory of both joins without a gap (L4 of `split`).
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
