//! Tags: the slots of the request table, given out one by one.
//!
//! Counterpart in Linux: `struct blk_mq_tags`. A tag is an index into a table that is allocated
//! once, so a request costs no allocation. The tag freed last is given out first: its slot is the
//! one most likely to be in the processor's cache.

use alloc::vec::Vec;

/// A slot of the request table, and the name of a request between layer and driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(u16);

impl Tag {
    /// The slot's number, below the queue depth.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The tag of slot `index`; for drivers that carry it through a device's own cookie.
    ///
    /// # Panics
    /// If `index` is over the largest tag there can be (65535).
    #[inline]
    pub fn from_index(index: usize) -> Tag {
        assert!(index <= u16::MAX as usize);
        Tag(index as u16)
    }
}

#[derive(Debug)]
pub(crate) struct Tags {
    free: Vec<Tag>,
    depth: u32,
}

impl Tags {
    pub(crate) fn new(depth: u32) -> Tags {
        assert!(depth > 0 && depth <= crate::policy::QUEUE_DEPTH_MAX);
        Tags { free: (0..depth as usize).rev().map(Tag::from_index).collect(), depth }
    }

    #[inline]
    pub(crate) fn get(&mut self) -> Option<Tag> {
        self.free.pop()
    }

    /// Gives a tag back. The request table asserts that it was in use.
    #[inline]
    pub(crate) fn put(&mut self, tag: Tag) {
        assert!(self.nr_free() < self.depth);
        self.free.push(tag);
    }

    #[inline]
    pub(crate) fn nr_free(&self) -> u32 {
        self.free.len() as u32
    }
}
