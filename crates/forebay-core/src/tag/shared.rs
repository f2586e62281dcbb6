//! Fair shares of a set of tags that several use.
//!
//! Counterpart in Linux: `hctx_may_queue`, by which each active user of a shared set has at most
//! the depth divided by their number, and four at least. There the limit holds always, and tags
//! lie idle where one user is slow and another busy. Here it holds only while somebody who has
//! less than its share waits (T13). While nobody does, any user may have all the tags; and once
//! somebody does, the others take no more until they are down to their shares, and it is the first
//! to be woken.
//!
//! A user is a hardware context of one of the disks that share the set. It waits once for all that
//! it wants, with a need of 1, and its [`WaitId`] names it. Its caller keeps a [`TagShares`] under
//! the lock of the [`TagWaits`], and beside it two [`WaiterCount`](crate::WaiterCount)s: `count`,
//! as always, and `hungry`, of those that want tags, asleep or not. The steps:
//!
//! | who puts | who takes |
//! |---|---|
//! | 1. `tags.put` | 1. `hungry.seems_waited`: if not, try to get; got: done |
//! | 2. `count.anybody_waits`: if not, done | 2. lock; join: `wait` and `push`, below; unlock |
//! | 3. lock; `shares.hold`; wake, below; unlock | 3. lock; `shares.allowance`; unlock; try |
//! | 4. wake those | 4. got: lock; leave, below; unlock |
//! | | 5. not got: sleep; woken, 3.; in vain: lock; requeue; unlock; 3. |
//!
//! - Join: `shares.wait`, `hungry.announce`, `waits.push`, `count.announce`.
//! - Wake: `shares.sort`, then `waits.wake` or `waits.donate`.
//! - Leave: `shares.done`, `hungry.leave`; `waits.remove` or, where it was woken meanwhile, donate.
//! - Woken, and got: lock; `shares.done`, `hungry.leave`; unlock. Requeue: `waits.requeue`,
//!   `count.announce`.
//!
//! The policy is [`WakePolicy::Fair`](crate::WakePolicy::Fair): one wake costs one tag. So T1 holds
//! as in `wake.rs`, though a try may now be in vain while tags are free. Let the last one be such a
//! refusal: then who was refused has its share in use. All of it is put later, and told, which is
//! enough for a wake. Who has less than its share is never refused.

use alloc::vec::Vec;

use super::{TagWaits, WaitId};

/// No share is smaller. Counterpart in Linux: the constant in `hctx_may_queue`.
const SHARE_MIN: u32 = 4;

/// Who of those that share a set of tags wants some, and what each has.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct TagShares {
    depth: u32,
    nr_users: u32,
    hungry: Vec<Hungry>,
}

#[derive(Clone, Copy, Debug)]
struct Hungry {
    user: WaitId,
    nr_held: u32,
}

impl TagShares {
    /// Of a set of `depth` tags, which `nr_users` use.
    ///
    /// # Panics
    /// If either is 0.
    pub fn new(depth: u32, nr_users: u32) -> TagShares {
        let mut shares = TagShares { depth: 1, nr_users: 1, hungry: Vec::new() };
        shares.resize(depth, nr_users);
        shares
    }

    /// The depth ([`TagWaits::resize`]) or the number of active users changes.
    ///
    /// # Panics
    /// If either is 0.
    pub fn resize(&mut self, depth: u32, nr_users: u32) {
        assert!(depth > 0 && nr_users > 0, "{depth} tags for {nr_users} users");
        (self.depth, self.nr_users) = (depth, nr_users);
        self.hungry.reserve((nr_users as usize).saturating_sub(self.hungry.len()));
    }

    /// How many tags each user may have while others want some.
    pub fn share(&self) -> u32 {
        self.depth.div_ceil(self.nr_users).max(SHARE_MIN.min(self.depth))
    }

    /// A user that has `nr_held` tags begins to want more.
    ///
    /// # Panics
    /// If it does already.
    pub fn wait(&mut self, user: WaitId, nr_held: u32) {
        assert!(self.find(user).is_none(), "user {} waits twice", user.0);
        self.hungry.push(Hungry { user, nr_held });
    }

    /// A user has so many tags now; which matters only if it wants more.
    pub fn hold(&mut self, user: WaitId, nr_held: u32) {
        if let Some(hungry) = self.hungry.iter_mut().find(|hungry| hungry.user == user) {
            hungry.nr_held = nr_held;
        }
    }

    /// A user has got tags, or wants none any more. False: it wanted none.
    pub fn done(&mut self, user: WaitId) -> bool {
        let place = self.find(user);
        place.map(|place| self.hungry.swap_remove(place)).is_some()
    }

    /// How many more tags a user that has `nr_held` may take now: as many as it likes, unless
    /// another wants some and has less than its share (T13).
    pub fn allowance(&mut self, user: WaitId, nr_held: u32) -> u32 {
        self.hold(user, nr_held);
        let share = self.share();
        let is_before = |other: &Hungry| other.user != user && other.nr_held < share;
        if self.hungry.iter().any(is_before) { share.saturating_sub(nr_held) } else { u32::MAX }
    }

    /// Those who have less than their share are first in line.
    pub fn sort(&self, waits: &mut TagWaits) {
        let share = self.share();
        let is_below = |user| self.find(user).is_some_and(|at| self.hungry[at].nr_held < share);
        waits.prefer(is_below);
    }

    fn find(&self, user: WaitId) -> Option<usize> {
        self.hungry.iter().position(|hungry| hungry.user == user)
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests;
