//! The request: what the driver is given, made of one bio, a part of one, or several neighbours.

use crate::bio::{BioFlags, Op};
use crate::chain::{Bios, Chain, Splits};
use crate::driver::Ranges;
use crate::flush::Steps;
use crate::limits::QueueLimits;
use crate::queued::{ChainSegments, QueuedBio};
use crate::retry::{Moment, RetrySlot};
use crate::split::{self, Front};
use alloc::boxed::Box;

/// One request. Before it has a tag it waits in a plug or in the backlog of its hardware context;
/// then it lives in the tag's slot of the request table.
///
/// Counterpart in Linux: `struct request`.
#[derive(Debug)]
pub struct Request {
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
    /// The turn of its hardware context that may be the first to issue it.
    pub(crate) first_turn: u32,
    /// What is left to do: first byte on the device, and length.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The bios that cover it.
    pub(crate) bios: Bios,
    pub(crate) nr_bios: u32,
    pub(crate) nr_segments: u32,
    /// The bytes of the first bio that lie before `start`.
    pub(crate) skip: u64,
    /// When it left the plug, took its tag, and was issued last.
    pub(crate) unplugged_ns: u64,
    pub(crate) tagged_ns: u64,
    pub(crate) issued_ns: u64,
    /// The writes that had been issued when it was: the first time, if it joins several bios.
    pub(crate) issued_after: Moment,
    /// Its place among the retries that are under way.
    pub(crate) retry: Option<RetrySlot>,
}

impl Request {
    /// A request of one bio, of which `front` fits the limits.
    #[inline]
    pub(crate) fn of_bio(
        mut queued: Box<QueuedBio>,
        front: Front,
        limits: &QueueLimits,
        level: u32,
        now: u64,
    ) -> Request {
        queued.nr_segments = front.nr_segments;
        queued.oversized = front.len < queued.bio.len;
        Request { level, ..Request::of_first(queued, limits, now) }
    }

    /// A request again, of the bios that [`Request::into_bios`] gave.
    pub fn of_bios(first: Box<QueuedBio>, limits: &QueueLimits) -> Request {
        let unplugged_ns = first.unplugged_ns;
        let mut rest = first.next.as_deref();
        let (mut len, mut nr_bios, mut nr_segments) = (first.bio.len, 1, first.nr_segments);
        while let Some(bio) = rest {
            len += bio.bio.len;
            nr_bios += 1;
            nr_segments += bio.nr_segments;
            rest = bio.next.as_deref();
        }
        Request { len, nr_bios, nr_segments, ..Request::of_first(first, limits, unplugged_ns) }
    }

    #[inline]
    fn of_first(first: Box<QueuedBio>, limits: &QueueLimits, now: u64) -> Request {
        let bio = &first.bio;
        let (op, flags, start, len) = (bio.op, bio.flags, bio.start, bio.len);
        let steps = Steps::of(op, flags, len, limits);
        let special = BioFlags::FUA.union(BioFlags::PREFLUSH).union(BioFlags::NOMERGE);
        let nomerge = first.oversized
            || steps != Steps::DATA
            || flags.intersects(special)
            || matches!(op, Op::WriteZeroes | Op::Flush);
        Request {
            op,
            flags,
            steps,
            nomerge,
            oversized: first.oversized,
            bio_by_bio: false,
            was_issued: false,
            level: 1,
            first_turn: 0,
            start,
            len,
            nr_bios: 1,
            nr_segments: first.nr_segments,
            skip: 0,
            unplugged_ns: now,
            tagged_ns: now,
            issued_ns: now,
            issued_after: Moment::default(),
            retry: None,
            bios: Bios::Chain(Chain::of(first)),
        }
    }

    /// Its bios, as a list that can go to another thread: the first, and each has the next.
    ///
    /// # Panics
    /// If it has been issued.
    pub fn into_bios(mut self) -> Box<QueuedBio> {
        self.seal();
        match self.bios {
            Bios::Chain(chain) => {
                let mut first = chain.into_first();
                first.unplugged_ns = self.unplugged_ns;
                first
            }
            Bios::Part(_) => unreachable!("only an issued request is a part of a bio"),
        }
    }

    /// Nothing merges with it any more.
    #[inline]
    pub(crate) fn seal(&mut self) {
        if let Bios::Chain(chain) = &mut self.bios
            && self.nr_bios > 1
        {
            chain.seal();
        }
    }

    pub(crate) fn is_nowait(&self) -> bool {
        self.flags.contains(BioFlags::NOWAIT)
    }

    /// The byte after the last.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// The first bio.
    #[inline]
    pub(crate) fn head<'a>(&'a self, splits: &'a Splits) -> &'a QueuedBio {
        match &self.bios {
            Bios::Chain(chain) => chain.first(),
            Bios::Part(at) => splits.bio(*at),
        }
    }

    #[inline]
    pub(crate) fn head_mut<'a>(&'a mut self, splits: &'a mut Splits) -> &'a mut QueuedBio {
        match &mut self.bios {
            Bios::Chain(chain) => chain.first_mut(),
            Bios::Part(at) => splits.bio_mut(*at),
        }
    }

    /// The part of the first bio that this request still covers, bytes.
    #[inline]
    pub(crate) fn head_len(&self, splits: &Splits) -> u64 {
        (self.head(splits).bio.len - self.skip).min(self.len)
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
    pub(crate) fn window_len(&self, splits: &Splits) -> u64 {
        if self.bio_by_bio { self.head_len(splits) } else { self.len }
    }

    /// The ranges on the device that are left to do, as (first byte, length).
    pub(crate) fn ranges<'a>(&'a self, splits: &'a Splits) -> Ranges<'a> {
        Ranges::new(self.head(splits), self.skip, self.len)
    }

    /// Takes the front that fits the limits off an oversized request. `None` where not even one
    /// logical block fits. Where all fits, nothing is left: the rest has no length.
    pub(crate) fn split_front(
        &mut self,
        splits: &mut Splits,
        limits: &QueueLimits,
    ) -> Option<Request> {
        assert!(self.oversized && self.nr_bios == 1 && self.len > 0);
        let front = self.next_front(splits, limits);
        if front.len == 0 {
            return None;
        }
        let at = self.cut(splits);
        let part = Request {
            len: front.len,
            nr_segments: front.nr_segments,
            oversized: false,
            bios: Bios::Part(at),
            ..*self
        };
        self.start += front.len;
        self.skip += front.len;
        self.len -= front.len;
        if self.len > 0 {
            splits.add_part(at);
        }
        Some(part)
    }

    /// The front that fits the limits.
    fn next_front(&self, splits: &Splits, limits: &QueueLimits) -> Front {
        let segments = ChainSegments::new(self.head(splits), self.skip, self.len);
        let front = split::front(limits, self.op, self.start, self.len, segments);
        assert!(front.len <= self.len);
        front
    }

    /// Where its bio is kept while it is cut.
    fn cut(&mut self, splits: &mut Splits) -> u32 {
        if let Bios::Part(at) = self.bios {
            return at;
        }
        // Every cut has a part in the table, or this one does next: there is room.
        let bios = core::mem::replace(&mut self.bios, Bios::Part(u32::MAX));
        let Bios::Chain(chain) = bios else { unreachable!("it was no part") };
        let at = splits.insert(chain.into_first());
        self.bios = Bios::Part(at);
        at
    }
}

/// How many requests a bio takes, or `max` if more.
pub(crate) fn nr_parts(bio: &QueuedBio, limits: &QueueLimits, max: u32) -> u32 {
    let (mut start, mut skip, mut left, mut nr) = (bio.bio.start, 0, bio.bio.len, 0);
    while left > 0 && nr < max {
        let segments = ChainSegments::new(bio, skip, left);
        let front = split::front(limits, bio.bio.op, start, left, segments);
        start += front.len.max(1);
        skip += front.len.max(1);
        left = left.saturating_sub(front.len.max(1));
        nr += 1;
    }
    nr.max(1)
}
