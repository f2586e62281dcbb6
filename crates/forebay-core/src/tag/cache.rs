//! The free tags at hand in a hardware context.
//!
//! Counterpart in Linux: `blk_mq_get_tags`, which takes a run of tags at once; and the
//! per-processor hints of `struct sbitmap_queue`. The tag freed last is given out first: its slot
//! of the request table is the one most likely to be in the processor's cache.
//!
//! When the set has become smaller, tags at hand that are too high go back to it, where they drop
//! out, instead of being given out.

use super::{Tag, TagSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// How many tags are taken from the set at once.
const BATCH: u32 = 32;

/// A set of tags, and those of them that only the holder of the token can give out.
///
/// While nobody else takes tags from the set, what is freed stays at hand.
#[derive(Debug)]
pub(crate) struct TagCache {
    set: Arc<TagSet>,
    at_hand: Vec<Tag>,
    hint: u32,
}

impl TagCache {
    pub(crate) fn new(set: Arc<TagSet>) -> TagCache {
        let at_hand = Vec::with_capacity(set.depth_max() as usize);
        TagCache { set, at_hand, hint: 0 }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.set.depth()
    }

    #[inline]
    pub(crate) fn get(&mut self) -> Option<Tag> {
        loop {
            if self.at_hand.is_empty() {
                self.refill();
            }
            let tag = self.at_hand.pop()?;
            if tag.index() < self.set.depth() as usize {
                return Some(tag);
            }
            self.set.put(tag);
        }
    }

    #[cold]
    fn refill(&mut self) {
        let TagCache { set, at_hand, hint } = self;
        set.try_get_many(BATCH, hint, &mut |tag| at_hand.push(tag));
        // The lowest first.
        at_hand.reverse();
    }

    /// Gives a tag back. The request table asserts that it was in use.
    #[inline]
    pub(crate) fn put(&mut self, tag: Tag) {
        assert!(self.at_hand.len() < self.set.depth_max() as usize);
        self.at_hand.push(tag);
    }

    /// How many can be had.
    pub(crate) fn nr_free(&self) -> u32 {
        self.at_hand.len() as u32 + self.set.nr_free()
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn tags_at_hand_that_are_too_high_for_a_smaller_set_drop_out() {
        let mut cache = TagCache::new(Arc::new(TagSet::with_capacity(8, 16)));
        let tags: Vec<Tag> = core::iter::from_fn(|| cache.get()).collect();
        assert_eq!(tags.len(), 8);
        tags.into_iter().for_each(|tag| cache.put(tag));
        cache.set.resize(3);
        let got: Vec<usize> = core::iter::from_fn(|| cache.get()).map(Tag::index).collect();
        assert_eq!(got, [2, 1, 0]);
        cache.set.resize(16);
        assert_eq!(core::iter::from_fn(|| cache.get()).count(), 13);
    }
}
