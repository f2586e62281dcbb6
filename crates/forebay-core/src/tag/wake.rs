//! Whom a freed tag wakes: the policies, and what they count.
//!
//! Counterpart in Linux: `sbitmap_queue_wake_up`, and what was proposed in its place. Here a policy
//! is told of tags that were freed *while somebody waited*, and says who is woken: see
//! [`TagWaits`](super::TagWaits), which has the line, and the steps around it.
//!
//! # Why nobody sleeps for ever (T1)
//!
//! All policies but the last rest on one account. Two numbers only grow: `freed`, tags freed and
//! wakes given back (T5) while somebody waited; and `woken`, what wakes were given for. They wrap,
//! and only their difference means anything, the *surplus* (T3).
//!
//! Say that it hangs: all d tags are free, nobody does anything any more, and the line is not
//! empty. Of all tries in vain look at the last; it needed n tags, and was made by one that stood
//! in the line, so everything freed later was told here. It found fewer than n, so more than d - n
//! were in use, and have been put since. Everyone woken since then got tags, for no later try was
//! in vain; and has put them, or gave its wake back. So each wake has come back, and the surplus
//! has grown by d - n + 1 at least, which is over d / 2 (T10). Now it depends on the policy:
//!
//! - *Fair* would have woken the first in line, whose need is d / 2 at most, rounded up (T10).
//! - *Batch* would have woken one batch more, which is d / 8 at most, or 1.
//! - *Single* is a batch of 1.
//! - *Stash*, fewer than four in line: as batch. The surplus is cut down to a batch at times, while
//!   more wait; but whatever is woken after a cut comes back after it, so a batch is left.
//! - *Stash*, four or more in line: who told of freed tags last counted them under the lock,
//!   as all before, and saw that none was in use; so it woke one of the four, who is bound to tell
//!   of freed tags again. But it was the last.
//!
//! *Stash-v1* keeps no such count. Tags that fill the stash wake no waiter, and neither do tags
//! that fill it again after threads took some. With a stash of s, w woken waiters put w tags and
//! wake only w - s others. With a stash of a quarter of the depth, the wake-ups are used up after
//! three such generations, and the remaining waiters sleep forever. The tests find the shortest way
//! there.
//!
//! When the depth shrinks, the batch is made smaller before (T6); tags that drop out when they are
//! put are told as any. When it grows, the new tags count as freed: they are at least as many as
//! the batch grows by. So all of the above goes on to hold, with the new depth in the place of d.

use alloc::collections::VecDeque;

use super::{Wait, WaitId};

/// Fewer than so many in line are woken in batches by the stash policies, as their source has it.
const NR_WAITS_FEW: usize = 4;
/// The smallest depth that has a stash in the first form of it.
const STASH_DEPTH_MIN: u32 = 16;
/// The most that a batch wakes. Counterpart in Linux: `SBQ_WAKE_BATCH`.
const BATCH_MAX: u32 = 8;

/// Tag wait policy: which waiter a freed tag wakes. Fixed for the lifetime of a tag set.
///
/// With `Fair`, bios wait for tags. With the other policies, threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WakePolicy {
    /// Wakes each waiter when as many tags were freed as it needs, in the order of arrival. A
    /// waiter that was woken in vain keeps its turn. This policy has no counterpart in Linux.
    #[default]
    Fair,
    /// Wakes a batch of waiters when a batch of tags was freed. A batch is an eighth of the depth,
    /// at least 1 and at most 8. A waiter that was woken in vain goes to the end of the queue.
    ///
    /// Source: Linux 6.2 and later, "sbitmap: Use single per-bitmap counting to wake up queued
    /// tags" (4f8126bb2308), with one wait queue instead of eight.
    Batch,
    /// Wakes one waiter per freed tag, but only while at most three quarters of the tags are in
    /// use. With fewer than four waiters it works as [`WakePolicy::Batch`]. A waiter that was woken
    /// in vain goes to the end of the queue. Under load a few waiters get all tags and the others
    /// starve for a long time.
    ///
    /// Source: the second version of "stash and wake", linux-block, June 2020; never merged. Here
    /// tags that were freed without a wake-up are counted, and count again when few waiters remain.
    Stash,
    /// Wakes one waiter per freed tag, in the order of arrival. A waiter that was woken in vain
    /// keeps its turn.
    Single,
    /// The first version of stash-and-wake. For the simulator only, because it can hang. Freed tags
    /// first fill a stash of a quarter of the depth and wake no waiter. While the stash is full,
    /// each freed tag wakes one waiter. Each taken tag leaves the stash; when the stash is empty,
    /// it has to fill again. With a depth below 16, or fewer than four waiters, it works as
    /// [`WakePolicy::Batch`].
    ///
    /// Source: the first version of "stash and wake", an RFC on linux-block, 2020.
    StashV1,
}

impl WakePolicy {
    /// The policies that a disk can use: all except [`WakePolicy::StashV1`].
    pub const ALL: [WakePolicy; 4] =
        [WakePolicy::Fair, WakePolicy::Batch, WakePolicy::Stash, WakePolicy::Single];

    /// Returns the name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            WakePolicy::Fair => "fair",
            WakePolicy::Batch => "batch",
            WakePolicy::Stash => "stash",
            WakePolicy::Single => "single",
            WakePolicy::StashV1 => "stash-v1",
        }
    }

    /// Returns whether a waiter that was woken in vain is first in the queue again (T8), not last.
    pub(super) const fn keeps_turn(self) -> bool {
        matches!(self, WakePolicy::Fair | WakePolicy::Single)
    }
}

/// A policy, and its account.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Wakes {
    pub(super) policy: WakePolicy,
    depth: u32,
    batch: u32,
    freed: u32,
    woken: u32,
    /// Of [`WakePolicy::StashV1`]: how much is in the stash, and whether it has been full since it
    /// was empty.
    stash: (u32, bool),
}

impl Wakes {
    pub(super) fn new(policy: WakePolicy, depth: u32) -> Wakes {
        assert!(depth > 0, "a set of no tags has no waits");
        let batch = batch(policy, depth);
        Wakes { policy, depth, batch, freed: 0, woken: 0, stash: (0, false) }
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    fn surplus(&self) -> u32 {
        self.freed.wrapping_sub(self.woken)
    }

    /// Tags were freed, or wakes given back.
    pub(super) fn free(
        &mut self,
        nr_freed: u32,
        nr_busy: u32,
        line: &mut VecDeque<Wait>,
        out: &mut impl FnMut(WaitId),
    ) {
        let nr_accounted = match self.policy {
            WakePolicy::Fair | WakePolicy::Batch | WakePolicy::Single => nr_freed,
            WakePolicy::Stash => self.free_by_busy(nr_freed, nr_busy, line, out),
            WakePolicy::StashV1 => self.free_by_stash(nr_freed, line, out),
        };
        self.freed = self.freed.wrapping_add(nr_accounted);
        self.settle(line, out);
    }

    /// Wakes one for each tag, unless many are in use, while many wait. Returns what is left to the
    /// account.
    fn free_by_busy(
        &mut self,
        nr_freed: u32,
        nr_busy: u32,
        line: &mut VecDeque<Wait>,
        out: &mut impl FnMut(WaitId),
    ) -> u32 {
        if u64::from(nr_busy) * 4 > u64::from(self.depth) * 3 {
            return nr_freed;
        }
        let nr_many = (line.len() + 1).saturating_sub(NR_WAITS_FEW);
        let nr = nr_freed.min(u32::try_from(nr_many).unwrap_or(u32::MAX));
        // Freed and woken for at once: the surplus is as before.
        self.freed = self.freed.wrapping_add(nr);
        self.woken = self.woken.wrapping_add(nr);
        wake_first(nr, line, out);
        nr_freed - nr
    }

    /// Fills the stash, or wakes one for each tag, while many wait. Returns what is left to the
    /// account.
    fn free_by_stash(
        &mut self,
        nr_freed: u32,
        line: &mut VecDeque<Wait>,
        out: &mut impl FnMut(WaitId),
    ) -> u32 {
        let mut nr_left = nr_freed;
        while nr_left > 0 && self.has_stash(line) {
            nr_left -= 1;
            let (level, is_ready) = &mut self.stash;
            if *is_ready {
                wake_first(1, line, out);
            } else {
                *level += 1;
                *is_ready = *level >= self.depth / 4;
            }
        }
        nr_left
    }

    fn has_stash(&self, line: &VecDeque<Wait>) -> bool {
        let is_deep = match self.policy {
            WakePolicy::Stash => true,
            WakePolicy::StashV1 => self.depth >= STASH_DEPTH_MIN,
            WakePolicy::Fair | WakePolicy::Batch | WakePolicy::Single => false,
        };
        is_deep && line.len() >= NR_WAITS_FEW
    }

    /// Somebody has got tags.
    pub(super) fn took(&mut self, nr: u32) {
        let (level, is_ready) = &mut self.stash;
        *level = level.saturating_sub(nr);
        *is_ready &= *level > 0;
    }

    /// Wakes whom the account covers.
    pub(super) fn settle(&mut self, line: &mut VecDeque<Wait>, out: &mut impl FnMut(WaitId)) {
        if self.has_stash(line) {
            // The rest is not kept: it would wake everyone, over and over, once few wait.
            self.woken = self.freed.wrapping_sub(self.surplus().min(self.batch));
            return;
        }
        while let Some(first) = line.front() {
            let price = if self.policy == WakePolicy::Fair { first.need } else { self.batch };
            if self.surplus() < price {
                return;
            }
            self.woken = self.woken.wrapping_add(price);
            let nr = if self.policy == WakePolicy::Fair { 1 } else { self.batch };
            wake_first(nr, line, out);
        }
        // Who comes next tries once more after it has joined, and finds them itself.
        self.woken = self.freed;
    }

    /// The depth changes. What is new counts as freed.
    pub(super) fn resize(
        &mut self,
        depth: u32,
        line: &mut VecDeque<Wait>,
        out: &mut impl FnMut(WaitId),
    ) {
        assert!(depth > 0, "a set of no tags has no waits");
        self.freed = self.freed.wrapping_add(depth.saturating_sub(self.depth));
        self.depth = depth;
        self.batch = batch(self.policy, depth);
        self.settle(line, out);
    }
}

#[cfg(test)]
impl Wakes {
    pub(super) fn start_at(&mut self, nr: u32) {
        (self.freed, self.woken) = (nr, nr);
    }

    pub(super) fn account(&self) -> (u32, (u32, bool)) {
        (self.surplus(), self.stash)
    }
}

/// How many tags wake how many waiters at once (T1).
fn batch(policy: WakePolicy, depth: u32) -> u32 {
    let batch = (depth / 8).clamp(1, BATCH_MAX);
    if policy == WakePolicy::Single { 1 } else { batch }
}

fn wake_first(nr: u32, line: &mut VecDeque<Wait>, out: &mut impl FnMut(WaitId)) {
    let nr = line.len().min(nr as usize);
    line.drain(..nr).for_each(|wait| out(wait.id));
}

#[cfg(all(test, not(blk_loom)))]
mod tests;
