//! Tag waits as plain values: which waiter needs how many tags, and in what order.
//!
//! Counterpart in Linux: `struct sbitmap_queue` and `blk_mq_get_tag`'s wait loop. A [`WakePolicy`]
//! decides which waiter a freed tag wakes. `wake.rs` explains why no waiter sleeps forever (T1).
//!
//! Nothing blocks here. The caller keeps a [`TagWaits`] under a lock and a
//! [`WaiterCount`](crate::WaiterCount) beside it, so that freeing a tag takes the lock only when
//! there are waiters. The caller also puts the threads or tasks to sleep. T1 rests on these steps,
//! which are always the same (T2). [`steps`](super::steps) makes them:
//!
//! | freeing thread | waiter |
//! |---|---|
//! | 1. `tags.put` | 1. lock; `waits.push`; `count.announce`; unlock |
//! | 2. `count.any_thread_waits`: if not, done | 2. try to get once more |
//! | 3. lock; `nr_busy`; `waits.wake`; unlock | 3. got: lock; `remove`, else `donate`; unlock |
//! | 4. wake those chosen | 4. not got: sleep; woken, try; in vain: 1., with `waits.requeue` |
//!
//! - `count.leave` follows for every wait that leaves the queue, by `wake` or otherwise.
//! - Tags in use are counted *under the lock*, after the put. So the last thread that reports freed
//!   tags has seen the puts of all other threads that reported theirs, and of those that saw no
//!   waiter. (These passed their barrier before the waiter did, and the waiter passed its own under
//!   the lock.)
//! - A failed try for several tags may have held some of them: [`TagSet`](crate::TagSet)'s
//!   `try_get_exact` returns their number, and they are reported as put.
//! - A waiter that gives up takes the steps of one that got its tags without a wake-up:
//!   `waits.remove`, else `waits.donate`.
//! - Shrinking: first `waits.resize`, then the set's `resize` (T6). Growing: first the set's.
//! - With [`TagWaits::stash_v1`], a thread that takes tags reports it (`waits.took`).

use alloc::collections::VecDeque;

use super::wake::{WakePolicy, Wakes};
use super::{Wait, WaitId};
use crate::plant::plants;

/// Capacity of the queue of waits, before it grows.
const NR_WAITS_USUAL: usize = 32;

/// The wait queue of a tag set, with its wake policy.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct TagWaits {
    line: VecDeque<Wait>,
    wakes: Wakes,
}

impl TagWaits {
    /// Creates an empty wait queue for a set of `depth` tags. If waiters cannot get some of the
    /// tags, because they are reserved, `depth` does not include these.
    ///
    /// # Panics
    /// Panics if `depth` is 0.
    pub fn new(policy: WakePolicy, depth: u32) -> TagWaits {
        let line = VecDeque::with_capacity(NR_WAITS_USUAL);
        TagWaits { line, wakes: Wakes::new(policy, depth) }
    }

    /// Creates an empty wait queue with the first version of stash-and-wake. It is for the
    /// simulator only, because it can hang, and no setting of a disk leads here.
    ///
    /// Freed tags first fill a stash of a quarter of the depth and wake no waiter. While the stash
    /// is full, each freed tag wakes one waiter. Each taken tag leaves the stash; when the stash is
    /// empty, it has to fill again. With a depth below 16, or fewer than four waiters, it works as
    /// [`WakePolicy::Batch`].
    ///
    /// Source: the first version of "stash and wake", an RFC on linux-block, 2020.
    ///
    /// # Panics
    /// Panics if `depth` is 0.
    pub fn stash_v1(depth: u32) -> TagWaits {
        let line = VecDeque::with_capacity(NR_WAITS_USUAL);
        TagWaits { line, wakes: Wakes::stash_v1(depth) }
    }

    /// Returns whether [`TagWaits::stash_v1`] created this queue. Its [`policy`](TagWaits::policy)
    /// is [`WakePolicy::Stash`] in that case.
    pub fn is_stash_v1(&self) -> bool {
        self.wakes.is_stash_v1
    }

    /// Returns the wake policy.
    pub fn policy(&self) -> WakePolicy {
        self.wakes.policy
    }

    /// Returns the depth that the policy uses.
    pub fn depth(&self) -> u32 {
        self.wakes.depth()
    }

    /// Adds a wait at the end of the queue. [`WaiterCount::announce`](crate::WaiterCount::announce)
    /// must follow under the same lock.
    ///
    /// # Panics
    /// Panics if the wait needs no tag, or more than half of the depth, rounded up (T10).
    pub fn push(&mut self, wait: Wait) {
        self.check(wait);
        self.line.push_back(wait);
    }

    /// Adds a wait again that was woken and found its tags taken. [`WakePolicy::Fair`] and
    /// [`WakePolicy::Single`] add it at the head, so that barging cannot starve it (T8). The other
    /// policies add it at the end, as in Linux.
    ///
    /// # Panics
    /// Panics if the wait needs no tag, or more than half of the depth, rounded up (T10).
    pub fn requeue(&mut self, wait: Wait) {
        self.check(wait);
        if self.wakes.policy.keeps_turn() {
            self.line.push_front(wait);
        } else {
            self.line.push_back(wait);
        }
    }

    fn check(&self, wait: Wait) {
        assert!(wait.need > 0, "a wait for nothing");
        let depth = self.depth();
        assert!(wait.need <= depth.div_ceil(2), "a wait for {} tags of {depth}", wait.need);
    }

    /// Removes a wait, and passes to `out` the waits that it blocked and that are woken now.
    /// Returns false if the wait is no longer in the queue: it was woken, and must
    /// [`donate`](TagWaits::donate) its wake-up.
    pub fn remove(&mut self, id: WaitId, out: &mut impl FnMut(WaitId)) -> bool {
        let Some(place) = self.line.iter().position(|wait| wait.id == id) else {
            return false;
        };
        self.line.remove(place);
        self.wakes.settle(&mut self.line, out);
        true
    }

    /// Passes to `out` the waits that `nr_freed` freed tags wake. `nr_busy` is the number of tags
    /// in use after that, counted under the lock.
    pub fn wake(&mut self, nr_freed: u32, nr_busy: u32, out: &mut impl FnMut(WaitId)) {
        if !plants!(DropFreed) {
            self.wakes.free(nr_freed, nr_busy, &mut self.line, out);
        }
    }

    /// Records that `nr` tags were taken, by a waiter or not. Only [`TagWaits::stash_v1`] uses it.
    pub fn took(&mut self, nr: u32) {
        self.wakes.took(nr);
    }

    /// Gives back the wake-up of a waiter that was woken for `need` tags and does not use them
    /// (T5): it gave up, or it got tags before it was woken. Such a waiter cannot determine whether
    /// it got the tags that it was woken for. If it did, this only causes a wake-up in vain. It
    /// counts as freed tags: `need` with [`WakePolicy::Fair`], otherwise one.
    pub fn donate(&mut self, need: u32, nr_busy: u32, out: &mut impl FnMut(WaitId)) {
        self.wake(self.tags_of_wake(need), nr_busy, out);
    }

    /// Returns how many tags a wake-up counts for that a waiter for `need` tags gives back.
    pub(super) fn tags_of_wake(&self, need: u32) -> u32 {
        if self.policy() == WakePolicy::Fair { need } else { 1 }
    }

    /// Moves the waits that are `first` to the head of the queue and keeps their order. See
    /// [`TagShares`](crate::TagShares).
    pub(super) fn prefer(&mut self, first: impl Fn(WaitId) -> bool) {
        let line = self.line.make_contiguous();
        let mut nr_first = 0;
        for place in 0..line.len() {
            if first(line[place].id) {
                line[nr_first..=place].rotate_right(1);
                nr_first += 1;
            }
        }
    }

    /// Sets the depth. Called before the set shrinks, or after it has grown (T6). Passes to `out`
    /// the waits that the new depth wakes.
    ///
    /// # Panics
    /// Panics if `depth` is 0, or a wait needs more than half of it, rounded up (T10).
    pub fn resize(&mut self, depth: u32, out: &mut impl FnMut(WaitId)) {
        self.wakes.resize(depth, &mut self.line, out);
        self.line.iter().for_each(|wait| self.check(*wait));
    }

    /// Returns the number of waits.
    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// Returns whether there are no waits.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

#[cfg(test)]
impl TagWaits {
    /// Sets the counters as if `nr` tags had been freed, and woken for.
    pub(super) fn start_counters_at(&mut self, nr: u32) {
        self.wakes.start_at(nr);
    }

    pub(super) fn ids(&self) -> alloc::vec::Vec<u64> {
        self.line.iter().map(|wait| wait.id.0).collect()
    }

    /// Returns the relevant state except the queue.
    pub(super) fn account(&self) -> (u32, (u32, bool)) {
        self.wakes.account()
    }
}

#[cfg(all(test, not(blk_loom)))]
mod exhaustive;
