//! Limits on reserved and background tags: which bios may take which tags.
//!
//! Counterparts in Linux: `nr_reserved_tags` of `struct blk_mq_tags`, and the `async_depth` of the
//! I/O schedulers, which is the shallow depth of `struct sbitmap_queue`. Linux computes both from
//! the words of a bitmap. Here the holder of the token counts the tags in use, and the tag set is
//! not involved.

use crate::bio::{BioFlags, Op};
use crate::request::Request;
use crate::tag::{Tag, TagCache};
use alloc::collections::VecDeque;

/// The flags that put a bio into a class.
const SPECIAL: BioFlags = BioFlags::RESERVED.union(BioFlags::BACKGROUND);

/// The tags of a hardware context by class, and the requests that wait because of their class.
///
/// With n tags that may be in use, r are left to [`BioFlags::RESERVED`] bios, and at most
/// `async_depth` go to [`BioFlags::BACKGROUND`] bios. A request that cannot have a tag for that
/// reason alone waits here, so that it does not hold up others. When it can have a tag, it is
/// treated as the oldest request.
///
/// With a scheduler, requests that are not reads wait here too, while they have as many tags as
/// they may (Q9). The scheduler counts these.
#[derive(Debug)]
pub(super) struct TagClasses {
    nr_reserved: u32,
    async_depth: u32,
    nr_background: u32,
    reserved: VecDeque<Request>,
    background: VecDeque<Request>,
    /// Requests that are not reads, of a context with a scheduler. In order of arrival.
    writes: VecDeque<Request>,
}

impl TagClasses {
    pub(super) fn new(nr_reserved: u32, async_depth: u32) -> TagClasses {
        TagClasses {
            nr_reserved,
            async_depth,
            nr_background: 0,
            reserved: VecDeque::new(),
            background: VecDeque::new(),
            writes: VecDeque::new(),
        }
    }

    /// Returns whether a request with these flags belongs to a class.
    pub(super) fn is_special(flags: BioFlags) -> bool {
        flags.intersects(SPECIAL)
    }

    /// Sets the number of reserved tags.
    pub(super) fn set_nr_reserved(&mut self, nr_reserved: u32) {
        self.nr_reserved = nr_reserved;
    }

    /// Returns whether no request waits here.
    pub(super) fn is_empty(&self) -> bool {
        self.reserved.is_empty() && self.background.is_empty() && self.writes.is_empty()
    }

    /// Returns the requests that wait here.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.reserved.iter().chain(&self.background).chain(&self.writes)
    }

    /// Returns whether requests with these flags may have a reserved tag, and there are reserved
    /// tags.
    pub(super) fn may_reserve(&self, flags: BioFlags) -> bool {
        self.nr_reserved > 0 && flags.contains(BioFlags::RESERVED)
    }

    /// Returns whether requests wait here that may have a reserved tag.
    pub(super) fn has_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// Keeps a new request that may have a reserved tag; returns any other request to the caller.
    pub(super) fn keep_reserved(&mut self, rq: Request) -> Option<Request> {
        if !self.may_reserve(rq.flags) {
            return Some(rq);
        }
        self.reserved.push_back(rq);
        None
    }

    /// Returns whether a request with these flags must wait for its class, even if tags are free.
    pub(super) fn must_wait(&self, flags: BioFlags) -> bool {
        flags.contains(BioFlags::BACKGROUND) && self.nr_background >= self.async_depth
    }

    /// Keeps a request that must wait for its class. The rest of a split bio becomes the oldest.
    pub(super) fn keep_background(&mut self, rq: Request) {
        match rq.part_of.is_some() {
            true => self.background.push_front(rq),
            false => self.background.push_back(rq),
        }
    }

    /// Returns whether requests wait here that are not reads (Q9).
    pub(super) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Keeps a request that is no read until others of its kind have put their tags. The rest of a
    /// split bio, and a request that was kept before, become the oldest.
    pub(super) fn keep_write(&mut self, mut rq: Request) {
        let is_oldest = core::mem::replace(&mut rq.was_held, true) || rq.part_of.is_some();
        match is_oldest {
            true => self.writes.push_front(rq),
            false => self.writes.push_back(rq),
        }
    }

    /// Moves the oldest request that is no read to the head of the backlog, unless an older one is
    /// there: one that was moved before, or the rest of a split bio. Requests that were never kept
    /// here are younger. Returns whether it did.
    pub(super) fn move_write(&mut self, backlog: &mut VecDeque<Request>) -> bool {
        if self.writes.is_empty() {
            return false;
        }
        let is_older = |rq: &Request| rq.op != Op::Read && (rq.was_held || rq.part_of.is_some());
        // A NOWAIT request and one of each class may be in front of it.
        if backlog.iter().take(4).any(is_older) {
            return false;
        }
        self.writes.pop_front().map(|rq| backlog.push_front(rq)).is_some()
    }

    /// Moves requests that wait here and no longer have to, to the head of the backlog, one at a
    /// time. If the device is gone (`is_gone`), none has to: they end without a tag.
    pub(super) fn move_one(&mut self, backlog: &mut VecDeque<Request>, is_gone: bool) {
        let is_at_head = |flag| backlog.front().is_some_and(|rq| rq.flags.contains(flag));
        if is_at_head(BioFlags::RESERVED) {
            return;
        }
        if let Some(rq) = self.reserved.pop_front() {
            backlog.push_front(rq);
        } else if !is_at_head(BioFlags::BACKGROUND)
            && (is_gone || self.nr_background < self.async_depth)
            && let Some(rq) = self.background.pop_front()
        {
            backlog.push_front(rq);
        }
    }

    /// Returns a tag for a request with these flags, if it may have one.
    pub(super) fn get(&mut self, tags: &mut TagCache, flags: BioFlags) -> Option<Tag> {
        let nr_kept = if flags.contains(BioFlags::RESERVED) { 0 } else { self.nr_reserved };
        let tag = tags.get(nr_kept)?;
        self.nr_background += u32::from(flags.contains(BioFlags::BACKGROUND));
        Some(tag)
    }

    /// Returns how many tags a request with these flags could get now.
    pub(super) fn nr_free(&self, tags: &TagCache, flags: BioFlags) -> u32 {
        let is_reserved = flags.contains(BioFlags::RESERVED);
        let nr_free = tags.nr_free(if is_reserved { 0 } else { self.nr_reserved });
        nr_free.min(self.nr_free_of(flags))
    }

    /// Returns how many more tags background requests may have. Other requests have no such limit.
    fn nr_free_of(&self, flags: BioFlags) -> u32 {
        match flags.contains(BioFlags::BACKGROUND) {
            true => self.async_depth.saturating_sub(self.nr_background),
            false => u32::MAX,
        }
    }

    /// Records that the tag of a request with these flags was put.
    pub(super) fn note_put(&mut self, flags: BioFlags) {
        self.nr_background -= u32::from(flags.contains(BioFlags::BACKGROUND));
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::*;
    use crate::request::QueuedBio;
    use alloc::vec::Vec;

    fn request(op: Op, start: u64) -> Request {
        let mut rq = Request::of_bios(QueuedBio::new(0, 0));
        (rq.op, rq.start) = (op, start);
        rq
    }

    /// Requests that left a plug together have the same time.
    #[test]
    fn writes_that_make_way_for_reads_keep_their_order() {
        let mut classes = TagClasses::new(0, 1);
        let mut backlog = VecDeque::new();
        (1..4).for_each(|start| classes.keep_write(request(Op::Write, start)));
        assert!(classes.move_write(&mut backlog));
        assert!(!classes.move_write(&mut backlog), "the oldest is there");
        // A background read goes in front of it.
        backlog.push_front(request(Op::Read, 9));
        assert!(!classes.move_write(&mut backlog), "the oldest is still there");
        backlog.pop_front();
        let oldest = backlog.pop_front().expect("it was moved");
        assert_eq!(oldest.start, 1);
        classes.keep_write(oldest);
        backlog.push_back(request(Op::Write, 4));
        let mut order = Vec::new();
        while classes.move_write(&mut backlog) {
            order.extend(backlog.pop_front().map(|rq| rq.start));
        }
        assert_eq!(order, [1, 2, 3]);
    }
}
