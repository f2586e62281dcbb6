//! The request: the unit that a driver receives. It consists of one bio, a part of one, or several
//! neighbours.

mod chain;
mod parts;
mod queued;
mod steps;

use crate::bio::{Bio, BioFlags, Op};
use crate::limits::QueueLimits;
use crate::split::{self, Front};
use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};

pub(crate) use chain::ChainSegments;
pub use chain::Ranges;
pub(crate) use parts::Splits;
pub(crate) use queued::Header;
pub use queued::{MemoryHold, NewMemoryHold, QueuedBio};
pub(crate) use steps::Steps;

/// One request. Without a tag it waits in a plug or in the backlog of its hardware context. With a
/// tag it occupies that tag's slot of the request table.
///
/// A request is the box of its first bio; the other bios follow in the order of the bytes on the
/// device. A part of a split bio has a box of its own. So a request moves between lists as one
/// pointer.
///
/// Counterpart in Linux: `struct request`.
#[derive(Debug)]
pub struct Request(Box<QueuedBio>);

impl QueuedBio {
    /// Returns the length of the next command of the request of which this is the box.
    #[inline]
    pub(crate) fn window_len(&self, splits: &Splits) -> u64 {
        let rq = &self.rq;
        if !rq.bio_by_bio {
            return rq.len;
        }
        let head = rq.part_of.map_or(self, |at| splits.bio(at));
        (head.bio.len - rq.skip).min(rq.len)
    }
}

impl Deref for Request {
    type Target = Header;

    #[inline]
    fn deref(&self) -> &Header {
        &self.0.rq
    }
}

impl DerefMut for Request {
    #[inline]
    fn deref_mut(&mut self) -> &mut Header {
        &mut self.0.rq
    }
}

impl Request {
    /// Creates a request from one plain bio ([`crate::ctx`]).
    #[inline]
    pub(crate) fn of_plain(mut queued: Box<QueuedBio>, level: u32) -> Request {
        let QueuedBio { bio, rq, .. } = &mut *queued;
        rq.begin(bio, level);
        Request(queued)
    }

    /// Creates a request from one bio, of which `front` fits the limits.
    pub(crate) fn of_bio(
        mut queued: Box<QueuedBio>,
        front: Front,
        limits: &QueueLimits,
        level: u32,
    ) -> Request {
        let QueuedBio { bio, rq, .. } = &mut *queued;
        rq.begin(bio, level);
        let steps = Steps::of(bio.op, bio.flags, bio.len, limits);
        let oversized = front.len < bio.len;
        let special = BioFlags::FUA.union(BioFlags::PREFLUSH).union(BioFlags::NOMERGE);
        let nomerge = oversized
            || steps != Steps::DATA
            || bio.flags.intersects(special)
            || matches!(bio.op, Op::WriteZeroes | Op::Flush);
        rq.steps = steps;
        rq.nomerge = nomerge;
        rq.oversized = oversized;
        rq.nr_segments = front.nr_segments;
        Request(queued)
    }

    /// Rebuilds a request from the list that [`Request::into_bios`] returned.
    #[inline]
    pub fn of_bios(first: Box<QueuedBio>) -> Request {
        Request(first)
    }

    /// Converts the request to a list of its bios that can move to another thread. The first bio is
    /// returned; each has the next.
    #[inline]
    pub fn into_bios(mut self) -> Box<QueuedBio> {
        self.seal();
        self.0
    }

    /// Links all bios into one list in order. The request accepts no merges afterwards.
    #[inline]
    pub(crate) fn seal(&mut self) {
        if self.joined_back.is_some() {
            self.link_joined();
        }
    }

    #[inline(never)]
    fn link_joined(&mut self) {
        let mut newest = self.joined_back.take();
        let mut tail = None;
        while let Some(mut bio) = newest {
            newest = bio.next.take();
            bio.next = tail;
            tail = Some(bio);
        }
        let mut last = &mut *self.0;
        while let Some(ref mut next) = last.next {
            last = next;
        }
        last.next = tail;
    }

    /// Appends a request of one bio.
    #[inline]
    pub(crate) fn push_back(&mut self, new: Request) {
        let mut bio = new.0;
        assert!(bio.next.is_none() && bio.rq.nr_bios == 1);
        bio.next = self.joined_back.take();
        self.joined_back = Some(bio);
        self.nr_bios += 1;
    }

    /// Prepends a request of one bio.
    #[inline]
    pub(crate) fn push_front(&mut self, new: Request) {
        assert!(new.0.next.is_none() && new.nr_bios == 1);
        let mut second = core::mem::replace(&mut self.0, new.0);
        self.0.swap_header(&mut second);
        self.0.next = Some(second);
        self.nr_bios += 1;
    }

    /// Appends a request of any number of bios.
    pub(crate) fn append(&mut self, mut new: Request) {
        new.seal();
        self.nr_bios += new.nr_bios;
        let mut next = Some(new.0);
        while let Some(mut bio) = next {
            next = bio.next.take();
            bio.next = self.joined_back.take();
            self.joined_back = Some(bio);
        }
    }

    /// Prepends a request of any number of bios.
    pub(crate) fn prepend(&mut self, mut new: Request) {
        new.seal();
        let nr_bios = self.nr_bios + new.nr_bios;
        let mut second = core::mem::replace(&mut self.0, new.0);
        self.0.swap_header(&mut second);
        let mut last = &mut *self.0;
        while let Some(ref mut next) = last.next {
            last = next;
        }
        last.next = Some(second);
        self.nr_bios = nr_bios;
    }

    /// Returns the number of bios that it has, whether sealed or not. For checks.
    pub(crate) fn count_bios(&self) -> usize {
        let joined = core::iter::successors(self.joined_back.as_deref(), |bio| bio.next.as_deref());
        self.bios().count() + joined.count()
    }

    /// Removes the first of several bios of a sealed request.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Box<QueuedBio> {
        assert!(self.joined_back.is_none(), "a request is sealed first");
        let second = self.0.next.take().expect("a request of several bios is a list of them");
        let mut first = core::mem::replace(&mut self.0, second);
        self.0.swap_header(&mut first);
        self.nr_bios -= 1;
        self.skip = 0;
        first
    }

    /// Returns the box of the last remaining bio, or of a part.
    #[inline]
    pub(crate) fn into_box(self) -> Box<QueuedBio> {
        self.0
    }

    /// Returns the bios in order. The request must be sealed and not a part.
    pub(crate) fn bios(&self) -> impl Iterator<Item = &QueuedBio> {
        core::iter::successors(Some(&*self.0), |bio| bio.next.as_deref())
    }

    /// Returns the first bio. The request must not be a part.
    #[inline]
    pub(crate) fn first(&self) -> &QueuedBio {
        &self.0
    }

    /// Returns the last bio. The request must not be a part.
    pub(crate) fn last(&self) -> &QueuedBio {
        match &self.joined_back {
            Some(newest) => newest,
            None => self.bios().last().unwrap_or(&self.0),
        }
    }

    #[inline]
    pub(crate) fn is_nowait(&self) -> bool {
        self.flags.contains(BioFlags::NOWAIT)
    }

    /// Returns how long ago the request left its plug. 0 if turns received no time then.
    pub(crate) fn waited_ns(&self, now: u64) -> u64 {
        match self.unplugged_ns {
            0 => 0,
            unplugged_ns => now.saturating_sub(unplugged_ns),
        }
    }

    /// Records on all bios, which are linked ([`seal`](Self::seal)), that a limit has held the
    /// request back. It is not a part of a bio.
    pub(crate) fn note_limit_wait(&mut self, waited_ns: u64) {
        let mut bio = Some(&mut *self.0);
        while let Some(queued) = bio {
            queued.note_limit_wait(waited_ns);
            bio = queued.next.as_deref_mut();
        }
    }

    /// Marks the first bio: the request counts at this node until that bio ends. The request is not
    /// a part of a bio.
    pub(crate) fn note_outstanding(&mut self, node: u32) {
        self.0.note_outstanding(node);
    }

    /// Marks the first bio, which counts at a node: it counts in the activity of its owner too.
    pub(crate) fn note_watched(&mut self) {
        self.0.note_watched();
    }

    /// Returns the offset after the last byte.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Returns the first bio, also for a part.
    #[inline]
    pub(crate) fn head<'a>(&'a self, splits: &'a Splits) -> &'a QueuedBio {
        match self.part_of {
            None => &self.0,
            Some(at) => splits.bio(at),
        }
    }

    #[inline]
    pub(crate) fn head_mut<'a>(&'a mut self, splits: &'a mut Splits) -> &'a mut QueuedBio {
        match self.part_of {
            None => &mut self.0,
            Some(at) => splits.bio_mut(at),
        }
    }

    /// Returns how many bytes of the first bio this request still covers.
    #[inline]
    pub(crate) fn head_len(&self, splits: &Splits) -> u64 {
        (self.head(splits).bio.len - self.skip).min(self.len)
    }

    /// Returns whether the request is a single command for all of its data, and no retry. This is
    /// the common case.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.steps == Steps::DATA && !self.bio_by_bio && self.retry.is_none()
    }

    /// Returns whether a request that has not been issued will be a single command for its data,
    /// and is no part of a bio.
    #[inline]
    pub(crate) fn is_whole_data(&self) -> bool {
        self.steps == Steps::DATA && !self.oversized && self.part_of.is_none()
    }

    /// Returns whether the request is exactly one bio, and not a part of one.
    #[inline]
    pub(crate) fn is_one_bio(&self) -> bool {
        self.nr_bios == 1 && self.part_of.is_none()
    }

    /// Returns whether another command follows the current one if that succeeds.
    #[inline]
    pub(crate) fn has_more_commands(&self) -> bool {
        let step = self.steps.current();
        self.bio_by_bio && self.nr_bios > 1
            || step.is_some_and(|step| !self.steps.after(step).is_empty())
    }

    /// Returns how many bytes of data the driver receives at once.
    #[inline]
    pub(crate) fn window_len(&self, splits: &Splits) -> u64 {
        self.0.window_len(splits)
    }

    /// Returns the ranges on the device that are left to do, as (first byte, length).
    pub(crate) fn ranges<'a>(&'a self, splits: &'a Splits) -> Ranges<'a> {
        Ranges::new(self.head(splits), self.skip, self.len)
    }

    /// Returns those of them that the next command has.
    pub(crate) fn window_ranges<'a>(&'a self, splits: &'a Splits) -> Ranges<'a> {
        Ranges::new(self.head(splits), self.skip, self.window_len(splits))
    }

    /// Returns the range that is left to do of the first bio.
    pub(crate) fn head_ranges<'a>(&'a self, splits: &'a Splits) -> Ranges<'a> {
        Ranges::new(self.head(splits), self.skip, self.head_len(splits))
    }

    /// Cuts off the bios from the first one after the head for which `is_first` holds. The request
    /// is sealed and not a part. Returns `None` if there is no such bio.
    pub(crate) fn split_off(&mut self, is_first: impl Fn(&Bio) -> bool) -> Option<Request> {
        let (mut nr_bios, mut len) = (1, (self.0.bio.len - self.skip).min(self.len));
        let mut last = &mut *self.0;
        while last.next.as_ref().is_some_and(|next| !is_first(&next.bio)) {
            last = last.next.as_mut().expect("it was looked at");
            nr_bios += 1;
            len += last.bio.len;
        }
        let mut rest = last.next.take()?;
        rest.rq = Header {
            start: rest.bio.start,
            len: self.len - len,
            nr_bios: self.nr_bios - nr_bios,
            skip: 0,
            // None of its bytes was moved: a request whose bytes are in doubt is a retry, and is
            // not cut.
            was_issued: false,
            // It is older than those that make way for reads.
            was_held: true,
            joined_back: None,
            ..self.0.rq
        };
        self.len = len;
        self.nr_bios = nr_bios;
        Some(Request(rest))
    }

    /// Cuts the front that fits the limits off an oversized request. Returns `None` if not even one
    /// logical block fits. If everything fits, the rest has length 0.
    pub(crate) fn split_front(
        &mut self,
        splits: &mut Splits,
        limits: &QueueLimits,
    ) -> Option<Request> {
        assert!(self.oversized && self.nr_bios == 1 && self.len > 0);
        let segments = ChainSegments::new(self.head(splits), self.skip, self.len);
        let front = split::front(limits, self.op, self.start, self.len, segments);
        assert!(front.len <= self.len);
        if front.len == 0 {
            return None;
        }
        let at = self.part_of.unwrap_or_else(|| self.cut(splits));
        let mut part = splits.new_part();
        part.rq = Header {
            len: front.len,
            nr_segments: front.nr_segments,
            oversized: false,
            joined_back: None,
            ..self.0.rq
        };
        self.start += front.len;
        self.skip += front.len;
        self.len -= front.len;
        if self.len > 0 {
            splits.add_part(at);
        }
        Some(Request(part))
    }

    /// Moves the bio to `splits`, where it stays while it is cut.
    fn cut(&mut self, splits: &mut Splits) -> u32 {
        let mut rest = splits.new_part();
        rest.swap_header(&mut self.0);
        let bio = core::mem::replace(&mut self.0, rest);
        let at = splits.insert(bio);
        self.part_of = Some(at);
        at
    }
}

/// Returns the number of requests that a bio, or the rest of one, still needs; at most `max`.
pub(crate) fn nr_parts_left(rq: &Request, splits: &Splits, limits: &QueueLimits, max: u32) -> u32 {
    let bio = rq.head(splits);
    let (mut start, mut skip, mut left, mut nr) = (rq.start, rq.skip, rq.len, 0);
    while left > 0 && nr < max {
        let segments = ChainSegments::new(bio, skip, left);
        let front = split::front(limits, rq.op, start, left, segments);
        start += front.len.max(1);
        skip += front.len.max(1);
        left = left.saturating_sub(front.len.max(1));
        nr += 1;
    }
    nr.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a request of one bio, in a box whose earlier bio was issued at `issued_ns`.
    fn reused(number: u32, queued_ns: u64, issued_ns: u64) -> Request {
        let mut boxed = QueuedBio::new(0, number);
        boxed.queued_ns = queued_ns;
        boxed.rq.issued_ns = issued_ns;
        Request(boxed)
    }

    #[test]
    fn bio_that_loses_its_header_does_not_get_the_issue_time_of_another_io() {
        for join in [Request::push_front, Request::prepend] {
            let mut rq = reused(1, 10, 0);
            join(&mut rq, reused(2, 30, 20));
            rq.issued_ns = 40;
            let second = rq.0.next.take().expect("the request has two bios");
            assert_eq!((rq.0.driver_ns(50), second.driver_ns(50)), (Some(10), None));
        }
        let mut rq = reused(1, 10, 0);
        rq.push_back(reused(2, 30, 20));
        rq.seal();
        rq.issued_ns = 40;
        assert_eq!(rq.pop_front().driver_ns(50), None);
    }

    #[test]
    fn split_bio_does_not_get_the_issue_time_of_an_earlier_part() {
        let mut splits = Splits::new(1);
        let at = splits.insert(QueuedBio::new(0, 7));
        let mut part = splits.new_part();
        part.rq.issued_ns = 20;
        splits.end_part(at, part);
        let mut rq = reused(1, 10, 0);
        let at = rq.cut(&mut splits);
        let bio = splits.end_part(at, rq.into_box()).expect("it was the last part");
        assert_eq!(bio.driver_ns(50), None);
    }

    #[test]
    fn a_sealed_request_is_in_order_whichever_way_it_grew() {
        let bio = |number| Request(QueuedBio::new(0, number));
        let mut rq = bio(3);
        rq.start = 77;
        rq.push_back(bio(4));
        rq.push_front(bio(2));
        rq.push_back(bio(5));
        rq.push_front(bio(1));
        assert_eq!((rq.nr_bios, rq.start, rq.last().number()), (5, 77, 5));
        rq.seal();
        assert!(rq.bios().map(QueuedBio::number).eq(1..=5));
        assert_eq!(rq.last().number(), 5);
        for number in 1..5 {
            assert_eq!(rq.pop_front().number(), number);
            assert_eq!((rq.nr_bios, rq.start), (5 - number, 77));
        }
        assert_eq!(rq.into_box().number(), 5);
    }
}
