//! Waits for tags, as values: who waits for how many, and in what order.
//!
//! Counterpart in Linux: `struct sbitmap_queue` and `blk_mq_get_tag`'s wait loop. Whom a freed tag
//! wakes is the business of a [`WakePolicy`], and so is the reason why nobody sleeps for ever (T1):
//! see `wake.rs`.
//!
//! Nothing blocks here. Whoever uses it keeps a [`TagWaits`] under a lock and a
//! [`WaiterCount`](crate::WaiterCount) beside it, so that freeing a tag touches the lock only when
//! somebody waits, and puts threads or tasks to sleep. The steps, which T1 rests on, are always
//! these (T2):
//!
//! | who frees | who waits |
//! |---|---|
//! | 1. `tags.put` | 1. lock; `waits.push`; `count.announce`; unlock |
//! | 2. `count.anybody_waits`: if not, done | 2. try to get once more |
//! | 3. lock; `nr_busy`; `waits.wake`; unlock | 3. got: lock; `remove`, else `donate`; unlock |
//! | 4. wake those | 4. not got: sleep; woken, try; in vain: 1., with `waits.requeue` |
//!
//! - `count.leave` goes with every wait that comes out of the line, by `wake` or otherwise.
//! - Tags in use are counted *under the lock*, after the put: so who is the last to tell of freed
//!   tags has seen the puts of all others that told, and of those that saw nobody wait. (These
//!   passed their barrier before the waiter did, who passed it under the lock.)
//! - A try in vain for several tags may have held some: [`TagSet`](crate::TagSet)'s `try_get_exact`
//!   says how many, and they are told as put.
//! - Who gives up does as who got its tags by itself: `waits.remove`, else `waits.donate`.
//! - A depth that shrinks: `waits.resize`, then the set's (T6). One that grows: first the set's.
//! - Who takes tags says so (`waits.took`), if the policy is [`WakePolicy::StashV1`].

use alloc::collections::VecDeque;

use super::wake::{WakePolicy, Wakes};

/// Capacity of the queue of waits, before it grows.
const NR_WAITS_USUAL: usize = 32;

/// Names a wait; whoever waits chooses it, and no two that wait at once are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitId(pub u64);

/// Somebody that needs `need` tags at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who.
    pub id: WaitId,
    /// How many: at least 1, and at most half of the depth, rounded up (T10).
    pub need: u32,
}

/// Those that wait for tags of one set.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct TagWaits {
    line: VecDeque<Wait>,
    wakes: Wakes,
}

impl TagWaits {
    /// Nobody waits for tags of a set of `depth`; where not all of it can be had by who waits (some
    /// are reserved), of what can.
    ///
    /// # Panics
    /// If `depth` is 0.
    pub fn new(policy: WakePolicy, depth: u32) -> TagWaits {
        let line = VecDeque::with_capacity(NR_WAITS_USUAL);
        TagWaits { line, wakes: Wakes::new(policy, depth) }
    }

    /// Whom a freed tag wakes.
    pub fn policy(&self) -> WakePolicy {
        self.wakes.policy
    }

    /// The depth that the policy reckons with.
    pub fn depth(&self) -> u32 {
        self.wakes.depth()
    }

    /// Joins the end of the line. [`WaiterCount::announce`](crate::WaiterCount::announce) comes
    /// next, under the same lock.
    ///
    /// # Panics
    /// If nothing is needed, or more than half of the depth, rounded up (T10).
    pub fn push(&mut self, wait: Wait) {
        self.check(wait);
        self.line.push_back(wait);
    }

    /// Joins the line again: for one that was woken and found its tags taken by others. With
    /// [`WakePolicy::Fair`] and [`WakePolicy::Single`] at the head, so that barging cannot starve
    /// it (T8); with the others at the end, as in Linux.
    ///
    /// # Panics
    /// If nothing is needed, or more than half of the depth, rounded up (T10).
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

    /// Leaves the line. False: it is not there any more, so it has been woken, and must
    /// [`donate`](TagWaits::donate) the wake. Hands those to `out` whom it held up.
    pub fn remove(&mut self, id: WaitId, out: &mut impl FnMut(WaitId)) -> bool {
        let Some(place) = self.line.iter().position(|wait| wait.id == id) else {
            return false;
        };
        self.line.remove(place);
        self.wakes.settle(&mut self.line, out);
        true
    }

    /// Hands to `out` whom `nr_freed` tags wake. `nr_busy` are the tags in use after that, counted
    /// under the lock.
    pub fn wake(&mut self, nr_freed: u32, nr_busy: u32, out: &mut impl FnMut(WaitId)) {
        self.wakes.free(nr_freed, nr_busy, &mut self.line, out);
    }

    /// Somebody, waiting or not, has got `nr` tags. Only [`WakePolicy::StashV1`] wants to know.
    pub fn took(&mut self, nr: u32) {
        self.wakes.took(nr);
    }

    /// Gives a wake back (T5): for one that was woken for `need` tags and does not use the wake,
    /// because it gives up, or because it got tags before it was woken. It cannot know whether the
    /// tags it got are those it was woken for; if they were, this wakes somebody in vain, no more.
    /// It counts as tags that were freed: `need` for [`WakePolicy::Fair`], else one.
    pub fn donate(&mut self, need: u32, nr_busy: u32, out: &mut impl FnMut(WaitId)) {
        let nr = if self.policy() == WakePolicy::Fair { need } else { 1 };
        self.wake(nr, nr_busy, out);
    }

    /// Moves those that are `first` to the head of the line, in their order: see
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

    /// The set's depth changes: before it shrinks, after it has grown (T6). Hands to `out` whom the
    /// new depth wakes.
    ///
    /// # Panics
    /// If `depth` is 0, or somebody waits for more than half of it, rounded up (T10).
    pub fn resize(&mut self, depth: u32, out: &mut impl FnMut(WaitId)) {
        self.wakes.resize(depth, &mut self.line, out);
        self.line.iter().for_each(|wait| self.check(*wait));
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

#[cfg(test)]
impl TagWaits {
    /// As if so many tags had been freed, and woken for.
    pub(super) fn start_counters_at(&mut self, nr: u32) {
        self.wakes.start_at(nr);
    }

    pub(super) fn ids(&self) -> alloc::vec::Vec<u64> {
        self.line.iter().map(|wait| wait.id.0).collect()
    }

    /// All of the state but for the line, as far as it matters.
    pub(super) fn account(&self) -> (u32, (u32, bool)) {
        self.wakes.account()
    }
}

#[cfg(all(test, not(blk_loom)))]
mod exhaustive;
