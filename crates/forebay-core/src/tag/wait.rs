//! Waits for tags, as values: who waits for how many, in what order, and whom a free tag wakes.
//!
//! Counterpart in Linux: `struct sbitmap_queue` and `blk_mq_get_tag`'s wait loop; the policy is
//! the one of Forebay: one waiter is woken for each tag that is freed, in the order of arrival.
//!
//! Nothing blocks here, and nothing of the library waits in this way yet: its bios wait in the
//! backlog. Whoever uses it keeps a [`TagWaits`] under a lock and a [`WaiterCount`] beside it, so
//! that freeing a tag touches the lock only when somebody waits, and puts threads or tasks to
//! sleep. The steps, which T1 rests on, are always these (T2):
//!
//! | who frees | who waits |
//! |---|---|
//! | 1. `tags.put` | 1. lock; `waits.push`; `count.announce`; unlock |
//! | 2. `count.anybody_waits`: if not, done | 2. try to get once more |
//! | 3. lock; `waits.wake`; unlock | 3. got: lock; `waits.remove`, else `waits.donate`; unlock |
//! | 4. wake those | 4. not got: sleep; woken, try; in vain: 1., with `waits.requeue` |
//!
//! `count.leave` goes with every wait that comes out of the line, by `wake` or `remove`.

use alloc::collections::VecDeque;

use crate::primitive::{AtomicU32, Ordering, fence};

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

/// Those that wait for tags of one set, first come, first woken.
///
/// Freed tags are *credited*; a waiter is woken when the credit covers its need, and uses it up.
/// Why nobody sleeps while its tags are free and none will be put (T1): say that a waiter needs n
/// of a depth d. When it tried in vain, fewer than n were free, so more than d - n were in use, and
/// d - n is at least n - 1 (T10). When those have been put, all after the announcement, the credit
/// has grown by n or more. Those ahead in the line have taken none of it away for good: what they
/// used up came back when they put the tags that they got, or donated the wake (T5).
#[derive(Debug)]
pub struct TagWaits {
    line: VecDeque<Wait>,
    /// Tags that were freed while somebody waited and that have woken nobody yet.
    credit: u32,
}

impl TagWaits {
    /// Nobody waits. Up to `nr_waits` may at once before the line has to allocate.
    pub fn new(nr_waits: usize) -> TagWaits {
        TagWaits { line: VecDeque::with_capacity(nr_waits), credit: 0 }
    }

    /// Joins the end of the line. [`WaiterCount::announce`] comes next, under the same lock.
    ///
    /// # Panics
    /// If nothing is needed.
    pub fn push(&mut self, wait: Wait) {
        assert!(wait.need > 0, "a wait for nothing");
        self.line.push_back(wait);
    }

    /// Joins the line again, at its head: for one that was woken and found its tags taken by
    /// others. It keeps its turn, so that barging cannot starve it (T8).
    ///
    /// # Panics
    /// If nothing is needed.
    pub fn requeue(&mut self, wait: Wait) {
        assert!(wait.need > 0, "a wait for nothing");
        self.line.push_front(wait);
    }

    /// Leaves the line. False: it is not there any more, so it has been woken, and must
    /// [`donate`](TagWaits::donate) the wake. Hands those to `out` whom a larger need held up.
    pub fn remove(&mut self, id: WaitId, out: &mut impl FnMut(WaitId)) -> bool {
        let Some(place) = self.line.iter().position(|wait| wait.id == id) else {
            return false;
        };
        self.line.remove(place);
        self.wake(0, out);
        true
    }

    /// Hands to `out` whom `nr_freed` tags wake: the first in line, as long as the tags credited
    /// cover the need. With a need of 1, one for each tag.
    pub fn wake(&mut self, nr_freed: u32, out: &mut impl FnMut(WaitId)) {
        self.credit = self.credit.saturating_add(nr_freed);
        while let Some(first) = self.line.front().filter(|first| first.need <= self.credit) {
            self.credit -= first.need;
            out(first.id);
            self.line.pop_front();
        }
        if self.line.is_empty() {
            // Who comes next tries once more after it has joined, and finds them itself.
            self.credit = 0;
        }
    }

    /// Passes a wake-up on (T5): for one that was woken for `need` tags and does not use the wake,
    /// because it gives up, or because it got tags before it was woken. It cannot know whether the
    /// tags it got are those it was woken for; if they were, this wakes somebody in vain, no more.
    pub fn donate(&mut self, need: u32, out: &mut impl FnMut(WaitId)) {
        self.wake(need, out);
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

/// How many wait, to be read without the lock.
///
/// T2: the waiter writes the count, passes a full barrier, and reads the tags; who frees writes the
/// tags, passes a full barrier, and reads the count. Of two full barriers (`fence(SeqCst)`) one is
/// first: if the waiter's, then the count is seen and the lock taken; if the freer's, then the tag
/// is seen. Both may see the other; neither can miss it. Acquire and release would not do: each
/// side reads a word that it has not written, and would be allowed to read it too early.
///
/// The count is written under the lock, by whoever changes the line: so one who has seen it, and
/// taken the lock, finds the waiter there, or woken.
#[derive(Debug)]
pub struct WaiterCount {
    count: AtomicU32,
}

impl Default for WaiterCount {
    fn default() -> WaiterCount {
        WaiterCount::new()
    }
}

impl WaiterCount {
    /// Nobody waits.
    pub fn new() -> WaiterCount {
        WaiterCount { count: AtomicU32::new(0) }
    }

    /// One more waits; it is in the line already. It tries once more to get its tags after this.
    ///
    /// Relaxed: the fence behind it is what pairs with the one of
    /// [`anybody_waits`](WaiterCount::anybody_waits).
    pub fn announce(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// One fewer waits; it is out of the line. Relaxed: a count that is seen too high for a moment
    /// costs its reader the lock, no more.
    ///
    /// # Panics
    /// If nobody waited.
    pub fn leave(&self) {
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a wait was left twice");
    }

    /// Whether somebody may wait: for one that has put tags before this, once for a whole batch.
    #[inline]
    pub fn anybody_waits(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn line(needs: &[u32]) -> TagWaits {
        let mut waits = TagWaits::new(needs.len());
        let ids = (1..).map(WaitId);
        needs.iter().zip(ids).for_each(|(&need, id)| waits.push(Wait { id, need }));
        waits
    }

    fn check(woken: &[u64], step: impl FnOnce(&mut dyn FnMut(WaitId))) {
        let mut seen = Vec::new();
        step(&mut |id| seen.push(id.0));
        assert_eq!(seen, woken);
    }

    #[test]
    fn each_tag_wakes_one_in_order() {
        let mut waits = line(&[1, 1, 1]);
        check(&[1], |out| waits.wake(1, &mut |id| out(id)));
        check(&[2, 3], |out| waits.wake(5, &mut |id| out(id)));
        waits.push(Wait { id: WaitId(9), need: 1 });
        check(&[], |out| waits.wake(0, &mut |id| out(id)));
        assert_eq!(waits.len(), 1, "what nobody waited for is not credited");
    }

    #[test]
    fn a_large_need_is_saved_up_for_and_not_overtaken() {
        let mut waits = line(&[3, 1]);
        check(&[], |out| waits.wake(2, &mut |id| out(id)));
        check(&[1, 2], |out| waits.wake(2, &mut |id| out(id)));
        assert!(waits.is_empty());
    }

    #[test]
    fn who_leaves_the_head_lets_the_next_one_go() {
        let mut waits = line(&[3, 1, 2]);
        check(&[], |out| waits.wake(2, &mut |id| out(id)));
        check(&[2], |out| assert!(waits.remove(WaitId(1), &mut |id| out(id))));
        check(&[], |out| assert!(!waits.remove(WaitId(1), &mut |id| out(id))));
        check(&[3], |out| waits.donate(1, &mut |id| out(id)));
    }

    #[test]
    fn who_was_woken_in_vain_keeps_its_turn() {
        let mut waits = line(&[1, 1]);
        check(&[1], |out| waits.wake(1, &mut |id| out(id)));
        waits.requeue(Wait { id: WaitId(1), need: 1 });
        check(&[1, 2], |out| waits.wake(2, &mut |id| out(id)));
    }

    #[test]
    fn the_count_is_what_was_announced_and_not_left() {
        let count = WaiterCount::default();
        assert!(!count.anybody_waits());
        count.announce();
        count.announce();
        count.leave();
        assert!(count.anybody_waits());
        count.leave();
        assert!(!count.anybody_waits());
    }

    #[test]
    #[should_panic(expected = "left twice")]
    fn nobody_leaves_twice() {
        WaiterCount::new().leave();
    }
}
