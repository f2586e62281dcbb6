//! Limits on reserved and background tags: which bios may take which tags.
//!
//! Counterparts in Linux: `nr_reserved_tags` of `struct blk_mq_tags`, and the `async_depth` of the
//! I/O schedulers, which is the shallow depth of `struct sbitmap_queue`. Linux computes both from
//! the words of a bitmap. Here the holder of the token counts the tags in use, and the tag set is
//! not involved.

use crate::bio::BioFlags;
use crate::request::Request;
use crate::tag::{Tag, TagCache};
use alloc::collections::VecDeque;

/// The flags that make a bio one of a class.
const SPECIAL: BioFlags = BioFlags::RESERVED.union(BioFlags::BACKGROUND);

/// The tags of a hardware context by class, and what waits for its class.
///
/// Of n tags that may be in use, r are left to bios that are [`BioFlags::RESERVED`], and no more
/// than `async_depth` go to those that are [`BioFlags::BACKGROUND`]. What cannot have a tag for
/// that reason alone waits here, so that it does not hold up others; they are the oldest when it
/// can.
#[derive(Debug)]
pub(crate) struct Classes {
    nr_reserved: u32,
    async_depth: u32,
    nr_background: u32,
    reserved: VecDeque<Request>,
    background: VecDeque<Request>,
}

impl Classes {
    pub(crate) fn new(nr_reserved: u32, async_depth: u32) -> Classes {
        Classes {
            nr_reserved,
            async_depth,
            nr_background: 0,
            reserved: VecDeque::new(),
            background: VecDeque::new(),
        }
    }

    /// Whether a request of these flags is of a class.
    pub(crate) fn are_of(flags: BioFlags) -> bool {
        flags.intersects(SPECIAL)
    }

    /// How many are reserved from now on.
    pub(crate) fn set_nr_reserved(&mut self, nr_reserved: u32) {
        self.nr_reserved = nr_reserved;
    }

    /// Whether nothing waits here.
    pub(crate) fn is_empty(&self) -> bool {
        self.reserved.is_empty() && self.background.is_empty()
    }

    /// What waits here.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.reserved.iter().chain(&self.background)
    }

    /// Whether requests of these flags may have a reserved tag, and there are such.
    pub(crate) fn may_reserve(&self, flags: BioFlags) -> bool {
        self.nr_reserved > 0 && flags.contains(BioFlags::RESERVED)
    }

    /// Whether such requests wait.
    pub(crate) fn has_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// Keeps a new request that goes before those without a reservation; or gives it back.
    pub(crate) fn keep_reserved(&mut self, rq: Request) -> Option<Request> {
        if !self.may_reserve(rq.flags) {
            return Some(rq);
        }
        self.reserved.push_back(rq);
        None
    }

    /// Whether a request of these flags must wait for its class, whatever tags there are.
    pub(crate) fn must_wait(&self, flags: BioFlags) -> bool {
        flags.contains(BioFlags::BACKGROUND) && self.nr_background >= self.async_depth
    }

    /// Keeps a request that must wait for its class. The rest of one that was cut is its oldest.
    pub(crate) fn keep_background(&mut self, rq: Request) {
        match rq.part_of.is_some() {
            true => self.background.push_front(rq),
            false => self.background.push_back(rq),
        }
    }

    /// Moves what waits here, and need not any more, to the head of the backlog, one at a time.
    pub(crate) fn move_one(&mut self, backlog: &mut VecDeque<Request>) {
        let is_at_head = |flag| backlog.front().is_some_and(|rq| rq.flags.contains(flag));
        if is_at_head(BioFlags::RESERVED) {
            return;
        }
        if let Some(rq) = self.reserved.pop_front() {
            backlog.push_front(rq);
        } else if self.nr_background < self.async_depth
            && !is_at_head(BioFlags::BACKGROUND)
            && let Some(rq) = self.background.pop_front()
        {
            backlog.push_front(rq);
        }
    }

    /// A tag for a request of these flags, if it may have one.
    pub(crate) fn get(&mut self, tags: &mut TagCache, flags: BioFlags) -> Option<Tag> {
        let nr_kept = if flags.contains(BioFlags::RESERVED) { 0 } else { self.nr_reserved };
        let tag = tags.get(nr_kept)?;
        self.nr_background += u32::from(flags.contains(BioFlags::BACKGROUND));
        Some(tag)
    }

    /// How many tags a request of these flags may have now.
    pub(crate) fn nr_free(&self, tags: &TagCache, flags: BioFlags) -> u32 {
        let is_reserved = flags.contains(BioFlags::RESERVED);
        let nr_free = tags.nr_free(if is_reserved { 0 } else { self.nr_reserved });
        match flags.contains(BioFlags::BACKGROUND) {
            true => nr_free.min(self.async_depth.saturating_sub(self.nr_background)),
            false => nr_free,
        }
    }

    /// The tag of a request of these flags was given back.
    pub(crate) fn note_put(&mut self, flags: BioFlags) {
        self.nr_background -= u32::from(flags.contains(BioFlags::BACKGROUND));
    }
}
