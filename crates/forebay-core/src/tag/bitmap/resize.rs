//! Resizing a tag set while it is in use.
//!
//! Counterpart in Linux: `sbitmap_queue_resize`, `blk_mq_tag_update_depth`, which freeze the queue
//! first. Here no thread has to stop:
//!
//! - Tags at or above the depth that no thread owns are *parked* in a word of their own. Only a
//!   resize takes tags from that word, and a thread that has parked a tag and finds that the depth
//!   has grown.
//! - A thread that gets a tag reads the depth once it owns the tag, and parks a tag that is too
//!   high. So a thread that begins after a shrink has ended, and is ordered after it, gets no tag
//!   that is too high: it reads the new depth, or a later one.
//! - A thread that puts a tag reads the depth first, and parks a tag that is too high, which so
//!   drops out. If the thread reads an old, larger depth, it makes the tag free, and the next
//!   thread that gets the tag parks it.
//! - A grow stores the depth, passes a full barrier, and takes the parked tags below the depth. A
//!   thread that parks passes a full barrier afterwards and reads the depth again. If the depth has
//!   grown, the thread takes the tag back. One of the two barriers is first. If it is that of the
//!   grow, the thread reads the new depth; if it is that of the thread, the grow finds the tag. If
//!   both see the other, one of them gets the tag. So no tag stays parked below the depth.
//!
//! A tag that was taken back is treated as if it had not been parked. A thread that was getting it
//! has it. A thread that was putting it puts it, and then checks for waiters, as always (T2). So
//! every tag that becomes free is reported: by the thread that puts it, or by the one that resizes.

use super::TagSet;
use super::word::below;
use crate::primitive::{Ordering, fence};

impl TagSet {
    /// Changes the depth, at most to [`depth_max`](TagSet::depth_max), while other threads get and
    /// put tags. No tag is revoked: tags in use at or above the new depth drop out when they are
    /// put. The caller updates the waits with [`TagWaits::resize`](crate::TagWaits::resize): after
    /// a grow, or before a shrink (T6).
    ///
    /// Only one resize may run at a time; callers hold the lock of the waits.
    ///
    /// # Panics
    /// Panics if `depth` is 0, or more than [`depth_max`](TagSet::depth_max).
    pub fn resize(&self, depth: u32) {
        let max = self.depth_max;
        assert!(depth > 0 && depth <= max, "a depth of {depth} of at most {max}");
        // Relaxed: the barrier after it pairs with the one in `park`. Other threads that read the
        // old depth act as if they had come before the resize.
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

    /// Parks those of the given tags of a word that are too high. The caller owns all of them.
    /// Returns the others.
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
