//! Wake policies: which waiter a freed tag wakes, and the counters that this rests on.
//!
//! Counterpart in Linux: `sbitmap_queue_wake_up`, and the patches proposed to replace it. A policy
//! is called for tags that were freed *while there were waiters*, and chooses the waiters to wake.
//! The queue of waiters, and the steps around it, are in [`TagWaits`](super::TagWaits).
//!
//! # Why no waiter sleeps forever (T1)
//!
//! All policies, without *stash-v1* below, use the same two counters. `freed` counts tags that were
//! freed, and wake-ups that were given back (T5), while there were waiters. `woken` counts the tags
//! that wake-ups were given for. Both only grow and may wrap; only their difference, the *surplus*,
//! has a meaning (T3).
//!
//! Suppose that a set hangs: all d tags are free, no thread will act, and the queue is not empty.
//! Consider the last try that failed. It needed n tags, and its waiter was already in the queue, so
//! all tags freed later were reported here. It found fewer than n free tags, so more than d - n
//! were in use, and all of them were put later. Every waiter woken after that try got its tags,
//! because no later try failed. It then put them, or gave its wake-up back. So each wake-up came
//! back, and the surplus has grown by at least d - n + 1, which is more than d / 2 (T10). The rest
//! depends on the policy:
//!
//! - *Fair* would have woken the first waiter, whose need is at most d / 2, rounded up (T10).
//! - *Batch* would have woken one more batch, which is at most d / 8, or 1.
//! - *Single* is a batch of 1.
//! - *Stash*, fewer than four waiters: as batch. While there are more waiters, the surplus is
//!   sometimes cut down to a batch. But each wake-up after such a cut comes back after it, so a
//!   batch is left.
//! - *Stash*, four or more waiters: the thread that last reported freed tags counted the tags in
//!   use under the lock, as all earlier ones did, and saw none. So it woke one of the four, and
//!   that waiter has to report freed tags again. This contradicts that the report was the last.
//!
//! *Stash-v1* ([`TagWaits::stash_v1`](super::TagWaits::stash_v1)) has no such counters. Tags that
//! fill the stash wake no waiter, and neither do tags that fill it again after threads took some.
//! With a stash of s, w woken waiters put w tags and wake only w - s others. With a stash of a
//! quarter of the depth, the wake-ups are used up after three such generations, and the remaining
//! waiters sleep forever. The tests find the shortest path to that state.
//!
//! When the depth shrinks, the batch is reduced first (T6). Tags that drop out when they are put
//! are reported like any others. When the depth grows, the new tags count as freed: they are at
//! least as many as the batch grows by. So the argument continues to hold, with the new depth as d.

use alloc::collections::VecDeque;

use super::{Wait, WaitId};
use crate::plant::plants;

/// With fewer waiters than this, the stash policies wake in batches, as their source does.
const NR_WAITS_FEW: usize = 4;
/// The smallest depth at which the first version of stash-and-wake has a stash.
const STASH_DEPTH_MIN: u32 = 16;
/// The most waiters that a batch wakes. Counterpart in Linux: `SBQ_WAKE_BATCH`.
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
}

impl WakePolicy {
    /// All policies.
    pub const ALL: [WakePolicy; 4] =
        [WakePolicy::Fair, WakePolicy::Batch, WakePolicy::Stash, WakePolicy::Single];

    /// Returns the name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            WakePolicy::Fair => "fair",
            WakePolicy::Batch => "batch",
            WakePolicy::Stash => "stash",
            WakePolicy::Single => "single",
        }
    }

    /// Returns whether a waiter that was woken in vain is first in the queue again (T8), not last.
    pub(super) const fn keeps_turn(self) -> bool {
        matches!(self, WakePolicy::Fair | WakePolicy::Single)
    }
}

/// A wake policy and its counters.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Wakes {
    pub(super) policy: WakePolicy,
    /// The policy is the first version of stash-and-wake, which only the simulator uses.
    pub(super) is_stash_v1: bool,
    depth: u32,
    batch: u32,
    freed: u32,
    woken: u32,
    /// Used by that version only: the fill level of the stash, and whether the stash has been
    /// full since it was last empty.
    stash: (u32, bool),
}

impl Wakes {
    pub(super) fn new(policy: WakePolicy, depth: u32) -> Wakes {
        assert!(depth > 0, "a set of no tags has no waits");
        let batch = batch(policy, depth);
        Wakes { policy, is_stash_v1: false, depth, batch, freed: 0, woken: 0, stash: (0, false) }
    }

    pub(super) fn stash_v1(depth: u32) -> Wakes {
        Wakes { is_stash_v1: true, ..Wakes::new(WakePolicy::Stash, depth) }
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    fn surplus(&self) -> u32 {
        self.freed.wrapping_sub(self.woken)
    }

    /// Records freed tags, or wake-ups given back, and passes to `out` the waiters that they wake.
    pub(super) fn free(
        &mut self,
        nr_freed: u32,
        nr_busy: u32,
        line: &mut VecDeque<Wait>,
        out: &mut impl FnMut(WaitId),
    ) {
        let nr_freed = if plants!(CountTwice) { nr_freed.saturating_mul(2) } else { nr_freed };
        let nr_accounted = match self.policy {
            WakePolicy::Fair | WakePolicy::Batch | WakePolicy::Single => nr_freed,
            WakePolicy::Stash if self.is_stash_v1 => self.free_by_stash(nr_freed, line, out),
            WakePolicy::Stash => self.free_by_busy(nr_freed, nr_busy, line, out),
        };
        self.freed = self.freed.wrapping_add(nr_accounted);
        self.settle(line, out);
    }

    /// Wakes one waiter for each freed tag if there are many waiters, unless most tags are in use.
    /// Returns how many of the freed tags are left for the common counters.
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
        // These tags are counted as freed and as woken for, so the surplus does not change.
        self.freed = self.freed.wrapping_add(nr);
        self.woken = self.woken.wrapping_add(nr);
        wake_first(nr, line, out);
        nr_freed - nr
    }

    /// Fills the stash if there are many waiters or, once it is full, wakes one of them for each
    /// freed tag. Returns how many of the freed tags are left for the common counters.
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
            WakePolicy::Stash => !self.is_stash_v1 || self.depth >= STASH_DEPTH_MIN,
            WakePolicy::Fair | WakePolicy::Batch | WakePolicy::Single => false,
        };
        is_deep && line.len() >= NR_WAITS_FEW
    }

    /// Records that `nr` tags were taken: they leave the stash.
    pub(super) fn took(&mut self, nr: u32) {
        let (level, is_ready) = &mut self.stash;
        *level = level.saturating_sub(nr);
        *is_ready &= *level > 0;
    }

    /// Wakes the waiters that the surplus covers.
    pub(super) fn settle(&mut self, line: &mut VecDeque<Wait>, out: &mut impl FnMut(WaitId)) {
        if self.has_stash(line) {
            // A larger surplus is not kept. It would wake all waiters, again and again, once few
            // are left.
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
        // The queue is empty. The next waiter tries once more after it has joined, and finds the
        // tags.
        self.woken = self.freed;
    }

    /// Sets the depth. New tags count as freed.
    pub(super) fn resize(
        &mut self,
        depth: u32,
        line: &mut VecDeque<Wait>,
        out: &mut impl FnMut(WaitId),
    ) {
        assert!(depth > 0, "a set of no tags has no waits");
        self.freed = self.freed.wrapping_add(depth.saturating_sub(self.depth));
        // The planted bug keeps the batch of the larger depth.
        let depth = if plants!(KeepDepth) { depth.max(self.depth) } else { depth };
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

/// Returns the batch: how many freed tags wake how many waiters at once (T1).
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
