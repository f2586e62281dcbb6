//! A set of tags that becomes smaller or larger while it is used.
//!
//! Counterpart in Linux: `sbitmap_queue_resize`, `blk_mq_tag_update_depth`, which freeze the queue
//! first. Here nobody stands still:
//!
//! - Tags at or above the depth that nobody owns are *parked*: in a word of their own, from which
//!   only a resize takes, and whoever parked in vain.
//! - Who gets a tag looks at the depth once it owns the tag, and parks what is too high. So one
//!   that began after a shrink had ended, and knows of it, gets nothing too high: it reads the new
//!   depth, or a later one.
//! - Who puts a tag looks at the depth first, and parks what is too high: so it drops out. Who
//!   reads an old depth, larger, puts it among the free, where the next that gets it parks it.
//! - A grow stores the depth, passes a full barrier, and takes what is parked below it. Who parks
//!   passes a full barrier after it, and reads the depth again; if that has grown it takes the tag
//!   back. Of the two barriers one is first: if the grow's, the new depth is read; if the other's,
//!   the tag is found. Both may see the other; then one of them gets the tag. So none is left
//!   parked below the depth.
//!
//! A tag that was taken back goes on as if it had not been parked: who wanted it has it, and who
//! put it puts it, and then looks for waiters, as always (T2). So all that becomes free is told: by
//! who puts it, or by who resizes.

use super::TagSet;
use super::word::below;
use crate::primitive::{Ordering, fence};

impl TagSet {
    /// Changes the depth, at most to [`depth_max`](TagSet::depth_max), while others get and put. No
    /// tag is revoked: those in use at or above the new depth drop out as they are put. After a
    /// grow look for waiters ([`TagWaits::resize`](crate::TagWaits::resize)); before a shrink tell
    /// them (T6).
    ///
    /// One resize at a time: they are done under the lock of the waits.
    ///
    /// # Panics
    /// If `depth` is 0, or over the largest there may be.
    pub fn resize(&self, depth: u32) {
        let max = self.depth_max;
        assert!(depth > 0 && depth <= max, "a depth of {depth} of at most {max}");
        // Relaxed: the barrier behind it pairs with the one of `park`; others that read an old one
        // are as if they had come before.
        self.depth.store(depth, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for (index, word) in self.words.iter().enumerate() {
            let usable = below(depth, index);
            let raised = word.parked.take(u32::MAX, usable);
            let lowered = word.free.take(u32::MAX, !usable);
            if raised != 0 {
                word.free.give(raised);
            }
            if lowered != 0 {
                word.parked.give(lowered);
            }
        }
    }

    /// Parks tags of a word that the caller owns, those that are too high. Returns the others.
    #[cold]
    pub(super) fn park(&self, index: usize, bits: u64) -> u64 {
        let high = bits & !below(self.depth(), index);
        if high == 0 {
            return bits;
        }
        let parked = &self.words[index].parked;
        parked.give(high);
        fence(Ordering::SeqCst);
        let raised = high & below(self.depth(), index);
        (bits & !high) | parked.take(u32::MAX, raised)
    }
}
