//! The request: what the driver is given, made of one bio, a part of one, or several neighbours.

use crate::bio::{Bio, BioFlags, Op};
use crate::flush::Steps;
use crate::limits::QueueLimits;
use crate::slab::{BioId, BioSlab};
use crate::split::{self, Front};

/// One request. Before it has a tag it waits in a plug or in the inbox of its hardware context;
/// then it lives in the tag's slot of the request table.
///
/// Counterpart in Linux: `struct request`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) flags: BioFlags,
    pub(crate) steps: Steps,
    /// Not a candidate for merging (any more).
    pub(crate) nomerge: bool,
    /// Longer than one request may be: it is cut when it takes its tags.
    pub(crate) oversized: bool,
    /// After a failure: only the first bio is at the driver, then the next.
    pub(crate) bio_by_bio: bool,
    /// The driver has taken it at least once.
    pub(crate) was_issued: bool,
    /// The plug level on which it was queued.
    pub(crate) level: u32,
    /// What is left to do: first byte on the device, and length.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The chain of bios that cover it, through the slab's links.
    pub(crate) head: BioId,
    pub(crate) tail: BioId,
    pub(crate) nr_bios: u32,
    pub(crate) nr_segments: u32,
    /// The bytes of the first bio that lie before `start`.
    pub(crate) skip: u64,
    /// When it left the plug, took its tag, and was issued last.
    pub(crate) unplugged_ns: u64,
    pub(crate) tagged_ns: u64,
    pub(crate) issued_ns: u64,
}

impl Request {
    /// A request of one bio, and the front of it that fits the limits.
    #[inline]
    pub(crate) fn of_bio(
        id: BioId,
        bio: &Bio,
        front: Front,
        limits: &QueueLimits,
        level: u32,
        now: u64,
    ) -> Request {
        let steps = Steps::of(bio.op, bio.flags, bio.len, limits);
        let oversized = front.len < bio.len;
        let special = BioFlags::FUA.union(BioFlags::PREFLUSH).union(BioFlags::NOMERGE);
        let nomerge = oversized
            || steps != Steps::DATA
            || bio.flags.intersects(special)
            || matches!(bio.op, Op::WriteZeroes | Op::Flush);
        Request {
            op: bio.op,
            flags: bio.flags,
            steps,
            nomerge,
            oversized,
            bio_by_bio: false,
            was_issued: false,
            level,
            start: bio.start,
            len: bio.len,
            head: id,
            tail: id,
            nr_bios: 1,
            nr_segments: front.nr_segments,
            skip: 0,
            unplugged_ns: now,
            tagged_ns: now,
            issued_ns: now,
        }
    }

    /// The byte after the last.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// The part of the first bio that this request still covers, bytes.
    #[inline]
    pub(crate) fn head_len(&self, bios: &BioSlab) -> u64 {
        (bios.get(self.head).bio.len - self.skip).min(self.len)
    }

    /// Whether the completion of the current command will be followed by another command, unless
    /// it fails.
    #[inline]
    pub(crate) fn has_more_commands(&self) -> bool {
        let step = self.steps.current();
        self.bio_by_bio && self.nr_bios > 1
            || step.is_some_and(|step| !self.steps.after(step).is_empty())
    }

    /// How much of the data goes to the driver at once, bytes.
    #[inline]
    pub(crate) fn window_len(&self, bios: &BioSlab) -> u64 {
        if self.bio_by_bio { self.head_len(bios) } else { self.len }
    }

    /// Takes the front that fits the limits off an oversized request. `None` where not even one
    /// logical block fits. Where all fits, nothing is left: the rest has no length.
    pub(crate) fn split_front(
        &mut self,
        bios: &mut BioSlab,
        limits: &QueueLimits,
    ) -> Option<Request> {
        assert!(self.oversized && self.nr_bios == 1 && self.len > 0);
        let segments = bios.segments(self.head, self.skip, self.len);
        let front = split::front(limits, self.op, self.start, self.len, segments);
        assert!(front.len <= self.len);
        if front.len == 0 {
            return None;
        }
        let part =
            Request { len: front.len, nr_segments: front.nr_segments, oversized: false, ..*self };
        self.start += front.len;
        self.skip += front.len;
        self.len -= front.len;
        if self.len > 0 {
            bios.get_mut(self.head).parts += 1;
        }
        Some(part)
    }
}
