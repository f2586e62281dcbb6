//! Steps around a wait queue: a user takes tags, waits for them, puts them, and resizes the set.
//!
//! This file fixes their order (T2, T5, T6); `wait.rs` has it as a table, and `wake.rs` and
//! `count.rs` the arguments. A user supplies the lock, the sleep and the wake-ups. Users are the
//! contexts of disks that share a set (`forebay/src/tag_pool.rs` of the library), the tasks of the
//! simulator (`runtime/budget.rs`), and the threads of the models.
//!
//! A user that sleeps calls [`take`]. A user that is run again when it is woken makes the same
//! steps one by one: it calls [`LockedWaits::join`], tries once more, and then
//! [`LockedWaits::leave`] or, woken in vain, [`LockedWaits::rejoin`].

use super::{TagSet, TagWaits, Wait, WaitId, WaiterCount};
use crate::plant::plants;

/// A wait queue under its lock, with the set that it belongs to.
#[derive(Debug)]
pub struct LockedWaits<'a> {
    waits: &'a mut TagWaits,
    tags: &'a TagSet,
    count: &'a WaiterCount,
}

impl<'a> LockedWaits<'a> {
    /// Returns the queue. The caller holds its lock until the result is dropped.
    pub fn new(
        waits: &'a mut TagWaits,
        tags: &'a TagSet,
        count: &'a WaiterCount,
    ) -> LockedWaits<'a> {
        LockedWaits { waits, tags, count }
    }

    /// Adds a new wait. Its user tries once more after this.
    pub fn join(&mut self, wait: Wait) {
        self.waits.push(wait);
        self.count.announce();
    }

    /// Adds a wait again that was woken in vain. Its user tries once more after this.
    pub fn rejoin(&mut self, wait: Wait) {
        self.waits.requeue(wait);
        self.count.announce();
    }

    /// Removes the wait of a user that has its tags without a wake-up, or gives up. If the user was
    /// woken meanwhile, it gives the wake-up back (T5). Passes to `out` the waits that are woken
    /// now. Returns how many tags the wake-up counts for; 0 if there was none.
    pub fn leave(&mut self, wait: Wait, out: &mut dyn FnMut(WaitId)) -> u32 {
        let LockedWaits { waits, tags, count } = self;
        let mut out = |id| {
            count.leave();
            out(id);
        };
        if waits.remove(wait.id, &mut out) {
            count.leave();
            return 0;
        }
        if plants!(KeepWake) {
            return 0;
        }
        waits.donate(wait.need, tags.nr_busy(), &mut out);
        waits.tags_of_wake(wait.need)
    }

    /// Passes to `out` the waits that `nr_freed` tags wake, which were put before the lock was
    /// taken. (So the tags in use, which are counted now, are without them.)
    pub fn freed(&mut self, nr_freed: u32, out: &mut dyn FnMut(WaitId)) {
        let LockedWaits { waits, tags, count } = self;
        waits.wake(nr_freed, tags.nr_busy(), &mut |id| {
            count.leave();
            out(id);
        });
    }

    /// Sets the depth that the policy uses. Passes to `out` the waits that are woken now.
    fn resize(&mut self, depth: u32, out: &mut dyn FnMut(WaitId)) {
        let LockedWaits { waits, count, .. } = self;
        waits.resize(depth, &mut |id| {
            count.leave();
            out(id);
        });
    }
}

/// A step that a user has made. It is visible to other users, so a simulator may let another task
/// run after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagStep {
    /// The user has put tags into the set.
    Put,
    /// After that it has found no waiter.
    FoundNoWaiter,
    /// After that it has found waiters, and takes the lock next.
    FoundWaiter,
    /// The user has joined the queue, or joined it again.
    Joined,
    /// The second try has got the tags. The user leaves the queue next.
    Got,
    /// The user has left the queue, and has given a wake-up back.
    GaveBack,
    /// The try after a wake-up has found too few tags. The user joins the queue again next.
    WokenInVain,
    /// The set has its new depth, and the policy has not.
    ResizedSet,
}

/// A user of a tag set that puts tags.
pub trait TagHolder {
    /// Returns the set.
    fn tags(&self) -> &TagSet;

    /// Returns the number of waiters.
    fn count(&self) -> &WaiterCount;

    /// Calls `change` under the lock of the waits, with a function that it calls for each wait that
    /// is woken. After the lock is released, wakes the users of these waits. Returns the result of
    /// `change`: how many tags it has counted as freed.
    fn with_waits(
        &mut self,
        change: impl FnOnce(&mut LockedWaits<'_>, &mut dyn FnMut(WaitId)) -> u32,
    ) -> u32;

    /// Called after each step.
    #[inline]
    fn step(&mut self, _made: TagStep) {}
}

/// A user of a tag set that sleeps until there are tags for it.
pub trait TagSleeper: TagHolder {
    /// Takes `need` tags, if as many are free.
    ///
    /// # Errors
    /// The number of tags that the try has held for a moment, so that others may have missed them
    /// ([`TagSet::try_get_exact`]).
    fn try_take(&mut self, need: u32) -> Result<(), u32>;

    /// Starts the user's requests that have tags (T9), and returns the identifier of a new wait.
    fn begin_wait(&mut self) -> WaitId;

    /// Sleeps until the wait is woken.
    fn sleep(&mut self, id: WaitId);
}

/// Takes `need` tags, and waits for them if it must. Returns how many times the user has slept.
pub fn take<U: TagSleeper>(user: &mut U, need: u32) -> u32 {
    if try_take(user, need) {
        return 0;
    }
    let wait = Wait { id: user.begin_wait(), need };
    user.with_waits(|waits, _| {
        waits.join(wait);
        0
    });
    let mut nr_sleeps = 0;
    loop {
        user.step(TagStep::Joined);
        if !plants!(SkipRetry) && try_take(user, need) {
            user.step(TagStep::Got);
            if user.with_waits(|waits, out| waits.leave(wait, out)) > 0 {
                user.step(TagStep::GaveBack);
            }
            return nr_sleeps;
        }
        nr_sleeps += 1;
        user.sleep(wait.id);
        if try_take(user, need) {
            return nr_sleeps;
        }
        user.step(TagStep::WokenInVain);
        user.with_waits(|waits, _| {
            waits.rejoin(wait);
            0
        });
    }
}

fn try_take<U: TagSleeper>(user: &mut U, need: u32) -> bool {
    match user.try_take(need) {
        Ok(()) => true,
        Err(nr_held) => {
            report_freed(user, nr_held);
            false
        }
    }
}

/// Puts tags, and wakes the users for which they suffice.
pub fn put<U: TagHolder>(user: &mut U, put: impl FnOnce(&TagSet) -> u32) {
    let nr = put(user.tags());
    user.step(TagStep::Put);
    report_freed(user, nr);
}

/// Wakes the users for which `nr` tags suffice that were put.
#[inline]
pub fn report_freed<U: TagHolder>(user: &mut U, nr: u32) {
    if nr == 0 || plants!(SkipTagWake) {
        return;
    }
    if !user.count().any_thread_waits() {
        return user.step(TagStep::FoundNoWaiter);
    }
    user.step(TagStep::FoundWaiter);
    user.with_waits(|waits, out| {
        waits.freed(nr, out);
        nr
    });
}

/// Changes how many tags may be in use. The policy gets a smaller depth before it is in force, and
/// a larger one afterwards (T6). One user at a time calls this.
pub fn resize<U: TagHolder>(user: &mut U, depth: u32) {
    let nr_more = depth.saturating_sub(user.tags().depth());
    if nr_more > 0 || plants!(ShrinkFirst) {
        user.tags().resize(depth);
        user.step(TagStep::ResizedSet);
    }
    user.with_waits(|waits, out| {
        waits.resize(depth, out);
        nr_more
    });
    if nr_more == 0 {
        user.tags().resize(depth);
    }
}
