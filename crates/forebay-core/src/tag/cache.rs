//! Cache of free tags in a hardware context.
//!
//! Counterpart in Linux: `blk_mq_get_tags`, which takes a run of tags at once; and the per-CPU
//! hints of `struct sbitmap_queue`. The tag freed last is given out first, because its slot of the
//! request table is the one most likely to be in the CPU cache.
//!
//! When the set has shrunk, cached tags that are too high are not given out. They go back to the
//! set and drop out there.

use super::{Tag, TagSet};
use alloc::boxed::Box;
use alloc::sync::Arc;

/// The number of tags taken from the set at once.
const BATCH: u32 = 32;

/// A set of tags, and the tags of it that only the holder of the token can give out.
///
/// While no other context takes tags from the set, freed tags stay in the cache.
#[derive(Debug)]
pub(crate) struct TagCache {
    set: Arc<TagSet>,
    at_hand: Stack,
    hint: u32,
    /// The number of tags given out, and the maximum.
    nr_busy: u32,
    nr_requests: u32,
    /// The maximum for now; at most `nr_requests`.
    limit: u32,
    /// A request found no tag since the last [`take_short`](TagCache::take_short).
    is_short: bool,
}

/// A stack of tags with room for all of a set.
#[derive(Debug)]
struct Stack {
    /// The first `len` are on the stack.
    tags: Box<[Tag]>,
    len: usize,
}

impl Stack {
    fn new(depth_max: usize) -> Stack {
        Stack { tags: alloc::vec![Tag::from_index(0); depth_max].into(), len: 0 }
    }

    fn as_mut_slice(&mut self) -> &mut [Tag] {
        &mut self.tags[..self.len]
    }

    /// Panics if the stack has as many tags as the set.
    #[inline(always)]
    fn push(&mut self, tag: Tag) {
        self.tags[self.len] = tag;
        self.len += 1;
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<Tag> {
        let top = self.len.checked_sub(1)?;
        self.len = top;
        Some(self.tags[top])
    }
}

impl TagCache {
    pub(crate) fn new(set: Arc<TagSet>, nr_requests: u32) -> TagCache {
        let at_hand = Stack::new(set.depth_max() as usize);
        TagCache {
            set,
            at_hand,
            hint: 0,
            nr_busy: 0,
            nr_requests,
            limit: nr_requests,
            is_short: false,
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.set.depth()
    }

    /// Returns a tag, if `nr_kept` of those that may be given out are left after it.
    ///
    /// The kept tags are a part of `nr_requests`, not of `limit`, the number that other users leave
    /// to this context for now. A limit of `nr_kept` or less would otherwise leave no tag, and a
    /// context that holds none must not be refused (T1).
    #[inline(always)]
    pub(crate) fn get(&mut self, nr_kept: u32) -> Option<Tag> {
        if nr_kept > 0 && self.nr_busy + nr_kept >= self.nr_requests {
            // The caller's own tags are in its way; tags of other contexts would not help.
            return None;
        }
        if self.nr_busy < self.limit {
            if let Some(tag) = self.at_hand.pop() {
                self.nr_busy += 1;
                return Some(tag);
            }
            if let Some(tag) = self.refill() {
                self.nr_busy += 1;
                return Some(tag);
            }
        }
        self.is_short = true;
        None
    }

    /// Takes tags from the set. Returns one of them.
    #[cold]
    fn refill(&mut self) -> Option<Tag> {
        let TagCache { set, at_hand, hint, .. } = self;
        set.try_get_many(BATCH, hint, &mut |tag| at_hand.push(tag));
        // The lowest tags are given out first.
        at_hand.as_mut_slice().reverse();
        at_hand.pop()
    }

    /// Puts a tag. The request table asserts that it was in use.
    #[inline]
    pub(crate) fn put(&mut self, tag: Tag) {
        self.at_hand.push(tag);
        self.nr_busy -= 1;
    }

    /// Returns how many tags a caller could get now, if `nr_kept` are to be left.
    pub(crate) fn nr_free(&self, nr_kept: u32) -> u32 {
        let limit = self.limit.min(self.nr_requests.saturating_sub(nr_kept));
        let nr_allowed = limit.saturating_sub(self.nr_busy);
        nr_allowed.min(self.at_hand.len as u32 + self.set.nr_free())
    }

    /// Returns the number of tags given out.
    pub(crate) fn nr_busy(&self) -> u32 {
        self.nr_busy
    }

    /// Returns the largest number of tags that may be given out.
    pub(crate) fn nr_requests(&self) -> u32 {
        self.nr_requests
    }

    /// Sets how many tags may be given out. Tags already given out are not revoked.
    pub(crate) fn set_nr_requests(&mut self, nr_requests: u32) {
        assert!(nr_requests > 0 && nr_requests <= self.set.depth());
        (self.nr_requests, self.limit) = (nr_requests, nr_requests);
    }

    /// Limits how many tags of a shared set may be given out for now. The limit of `nr_requests`
    /// remains.
    pub(crate) fn set_limit(&mut self, limit: u32) {
        self.limit = limit.min(self.nr_requests);
    }

    /// Gives the cached tags back to the set, and returns their number.
    pub(crate) fn give_back(&mut self) -> u32 {
        let nr = core::mem::take(&mut self.at_hand.len);
        self.set.put_many(self.at_hand.tags[..nr].iter().copied());
        nr as u32
    }

    /// Returns whether, since the last call, a request found no tag in the set, or no tag that this
    /// context may have.
    pub(crate) fn take_short(&mut self) -> bool {
        core::mem::take(&mut self.is_short) && self.nr_busy < self.nr_requests
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn no_more_are_given_out_than_may_be_and_those_that_are_out_stay_so() {
        let mut cache = TagCache::new(Arc::new(TagSet::new(8)), 8);
        let tags: Vec<Tag> = core::iter::from_fn(|| cache.get(1)).collect();
        assert_eq!((tags.len(), cache.nr_busy(), cache.nr_free(0)), (7, 7, 1));
        cache.set_nr_requests(3);
        assert_eq!((cache.nr_free(0), cache.get(0)), (0, None));
        tags.into_iter().for_each(|tag| cache.put(tag));
        assert_eq!(core::iter::from_fn(|| cache.get(0)).count(), 3);
        cache.set_nr_requests(8);
        assert_eq!(core::iter::from_fn(|| cache.get(0)).count(), 5);
    }

    #[test]
    fn cached_tags_count_against_no_limit_and_delay_no_waiter() {
        let mut cache = TagCache::new(Arc::new(TagSet::new(8)), 8);
        cache.set_limit(4);
        assert_eq!(cache.nr_free(4), 4);
        assert_eq!(core::iter::from_fn(|| cache.get(4)).count(), 4);
        assert!(!cache.take_short(), "its own tags are in its way");
        assert_eq!(cache.get(0), None);
        assert!(cache.take_short(), "the limit is");
    }

    #[test]
    fn tag_that_was_put_last_is_given_out_first() {
        let set = Arc::new(TagSet::new(100));
        let mut cache = TagCache::new(Arc::clone(&set), 100);
        let tags: Vec<Tag> = (0..3).filter_map(|_| cache.get(0)).collect();
        assert_eq!(tags, [0, 1, 2].map(Tag::from_index));
        assert_eq!((set.nr_free(), cache.nr_free(0)), (100 - BATCH, 97));
        cache.put(tags[1]);
        assert_eq!(cache.get(0), Some(tags[1]));
        assert_eq!((cache.give_back(), cache.give_back()), (BATCH - 3, 0));
        assert_eq!((set.nr_free(), cache.nr_busy(), cache.nr_requests()), (97, 3, 100));
        assert_eq!((cache.depth(), cache.get(97).is_none(), cache.nr_free(90)), (100, true, 7));
    }

    #[test]
    fn cache_is_short_of_tags_that_it_may_have() {
        let set = Arc::new(TagSet::new(4));
        let mut cache = TagCache::new(Arc::clone(&set), 2);
        let other = set.try_get(&mut 0);
        assert!(cache.get(0).is_some() && cache.get(0).is_some() && cache.get(0).is_none());
        assert!(!cache.take_short(), "all that it may have are its own");
        cache.set_nr_requests(4);
        assert!(cache.get(0).is_some() && cache.get(0).is_none());
        assert!(cache.take_short() && !cache.take_short(), "the other tag");
        other.into_iter().for_each(|tag| set.put(tag));
        assert!(cache.get(0).is_some());
    }
}
