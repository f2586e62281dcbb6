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
    /// How many are given out, and how many may be.
    nr_busy: u32,
    nr_requests: u32,
    /// How many may be given out for now: no more than that.
    limit: u32,
    /// Somebody wanted one and found none, since this was last asked.
    is_short: bool,
}

impl TagCache {
    pub(crate) fn new(set: Arc<TagSet>, nr_requests: u32) -> TagCache {
        let at_hand = Vec::with_capacity(set.depth() as usize);
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

    /// A tag, if `nr_kept` of those that may be given out are left after it.
    ///
    /// What is kept is kept of all of them, not of what others leave for now: a limit that is no
    /// more than that would leave none, and nobody who holds none may be refused (T1).
    #[inline]
    pub(crate) fn get(&mut self, nr_kept: u32) -> Option<Tag> {
        if nr_kept > 0 && self.nr_busy + nr_kept >= self.nr_requests {
            // It is the caller's own tags that are in its way: no others would do.
            return None;
        }
        if self.nr_busy < self.limit {
            if self.at_hand.is_empty() {
                self.refill();
            }
            if let Some(tag) = self.at_hand.pop() {
                self.nr_busy += 1;
                return Some(tag);
            }
        }
        self.is_short = true;
        None
    }

    #[cold]
    fn refill(&mut self) {
        let TagCache { set, at_hand, hint, .. } = self;
        set.try_get_many(BATCH, hint, &mut |tag| at_hand.push(tag));
        // The lowest first.
        at_hand.reverse();
    }

    /// Gives a tag back. The request table asserts that it was in use.
    #[inline]
    pub(crate) fn put(&mut self, tag: Tag) {
        assert!(self.at_hand.len() < self.set.depth_max() as usize);
        self.at_hand.push(tag);
        self.nr_busy -= 1;
    }

    /// How many can be had, if `nr_kept` are to be left.
    pub(crate) fn nr_free(&self, nr_kept: u32) -> u32 {
        let limit = self.limit.min(self.nr_requests.saturating_sub(nr_kept));
        let nr_allowed = limit.saturating_sub(self.nr_busy);
        nr_allowed.min(self.at_hand.len() as u32 + self.set.nr_free())
    }

    /// How many are given out.
    pub(crate) fn nr_busy(&self) -> u32 {
        self.nr_busy
    }

    /// How many may be given out.
    pub(crate) fn nr_requests(&self) -> u32 {
        self.nr_requests
    }

    /// Says how many may be given out from now on. Those that are out stay so.
    pub(crate) fn set_nr_requests(&mut self, nr_requests: u32) {
        assert!(nr_requests > 0 && nr_requests <= self.set.depth());
        (self.nr_requests, self.limit) = (nr_requests, nr_requests);
    }

    /// Says how many may be given out for now, if that is fewer: of a set that others use as well.
    pub(crate) fn set_limit(&mut self, limit: u32) {
        self.limit = limit.min(self.nr_requests);
    }

    /// Gives what is at hand back to the set, and says how many those are.
    pub(crate) fn give_back(&mut self) -> u32 {
        let nr = self.at_hand.len() as u32;
        self.set.put_many(self.at_hand.drain(..));
        nr
    }

    /// Whether somebody has wanted one that the set had not, or not for it, since this was last
    /// asked.
    pub(crate) fn take_short(&mut self) -> bool {
        core::mem::take(&mut self.is_short) && self.nr_busy < self.nr_requests
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::*;

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
    fn what_is_kept_is_not_kept_of_a_limit_and_makes_nobody_wait_for_others() {
        let mut cache = TagCache::new(Arc::new(TagSet::new(8)), 8);
        cache.set_limit(4);
        assert_eq!(cache.nr_free(4), 4);
        assert_eq!(core::iter::from_fn(|| cache.get(4)).count(), 4);
        assert!(!cache.take_short(), "its own tags are in its way");
        assert_eq!(cache.get(0), None);
        assert!(cache.take_short(), "the limit is");
    }
}
