//! Fair shares of a tag set that several users share.
//!
//! Counterpart in Linux: `hctx_may_queue`. It limits each active user of a shared set to the depth
//! divided by the number of users, and at least four. In Linux the limit always applies, so tags
//! lie idle if one user is slow and another is busy. Here it applies only while a user that has
//! less than its share waits (T13). Otherwise any user may have all tags. Once such a user waits,
//! the others take no more tags until they are down to their shares, and that user is the first to
//! be woken.
//!
//! A user is a hardware context of one of the disks that share the set. It waits once for all the
//! tags that it wants, with a need of 1, and its [`WaitId`] identifies it. Its caller keeps a
//! [`TagShares`] under the lock of the [`TagWaits`], and two [`WaiterCount`](crate::WaiterCount)s
//! beside it: `count`, as always, and `hungry`, the count of users that want tags, asleep or not.
//! The steps:
//!
//! | thread that puts | user that takes |
//! |---|---|
//! | 1. `tags.put` | 1. `hungry.seems_waited`: if not, try to get; got: done |
//! | 2. `count.any_thread_waits`: if not, done | 2. lock; join: `wait` and `push`, below; unlock |
//! | 3. lock; `shares.hold`; wake, below; unlock | 3. lock; `shares.allowance`; unlock; try |
//! | 4. wake the chosen users | 4. got: lock; leave, below; unlock |
//! | | 5. not got: sleep; woken, 3.; in vain: lock; requeue; unlock; 3. |
//!
//! - Join: `shares.wait`, `hungry.announce`, `waits.push`, `count.announce`.
//! - Wake: `shares.sort`, then `waits.wake` or `waits.donate`.
//! - Leave: `shares.done`, `hungry.leave`; `waits.remove`, or donate if the user was woken
//!   meanwhile.
//! - Woken, and got: lock; `shares.done`, `hungry.leave`; unlock. Requeue: `waits.requeue`,
//!   `count.announce`.
//!
//! The policy is [`WakePolicy::Fair`](crate::WakePolicy::Fair): one wake-up costs one tag. So T1
//! holds as in `wake.rs`, although a try may now fail while tags are free. Suppose that the last
//! try was refused for this reason. Then that user has its whole share in use. All of the share is
//! put later, and reported, which is enough for a wake-up. A user that has less than its share is
//! never refused.

use alloc::vec::Vec;

use super::{TagWaits, WaitId};

/// The smallest share. Counterpart in Linux: the constant in `hctx_may_queue`.
const SHARE_MIN: u32 = 4;

/// The users of a shared tag set that want tags, and the number of tags that each of them holds.
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
    /// Creates the shares for a set of `depth` tags with `nr_users` active users.
    ///
    /// # Panics
    /// Panics if either is 0.
    pub fn new(depth: u32, nr_users: u32) -> TagShares {
        let mut shares = TagShares { depth: 1, nr_users: 1, hungry: Vec::new() };
        shares.resize(depth, nr_users);
        shares
    }

    /// Sets the depth (see [`TagWaits::resize`]) and the number of active users.
    ///
    /// # Panics
    /// Panics if either is 0.
    pub fn resize(&mut self, depth: u32, nr_users: u32) {
        assert!(depth > 0 && nr_users > 0, "{depth} tags for {nr_users} users");
        (self.depth, self.nr_users) = (depth, nr_users);
        self.hungry.reserve((nr_users as usize).saturating_sub(self.hungry.len()));
    }

    /// Returns how many tags each user may have while others want some.
    pub fn share(&self) -> u32 {
        self.depth.div_ceil(self.nr_users).max(SHARE_MIN.min(self.depth))
    }

    /// Records that a user that holds `nr_held` tags wants more.
    ///
    /// # Panics
    /// Panics if the user wants tags already.
    pub fn wait(&mut self, user: WaitId, nr_held: u32) {
        assert!(self.find(user).is_none(), "user {} waits twice", user.0);
        self.hungry.push(Hungry { user, nr_held });
    }

    /// Records that a user holds `nr_held` tags now. This has an effect only if the user wants
    /// more.
    pub fn hold(&mut self, user: WaitId, nr_held: u32) {
        if let Some(hungry) = self.hungry.iter_mut().find(|hungry| hungry.user == user) {
            hungry.nr_held = nr_held;
        }
    }

    /// Records that a user has got tags, or wants none any more. Returns false if it wanted none.
    pub fn done(&mut self, user: WaitId) -> bool {
        let place = self.find(user);
        place.map(|place| self.hungry.swap_remove(place)).is_some()
    }

    /// Returns how many more tags a user that holds `nr_held` may take now. There is no limit
    /// unless another user wants tags and has less than its share (T13).
    pub fn allowance(&mut self, user: WaitId, nr_held: u32) -> u32 {
        self.hold(user, nr_held);
        let share = self.share();
        let is_before = |other: &Hungry| other.user != user && other.nr_held < share;
        if self.hungry.iter().any(is_before) { share.saturating_sub(nr_held) } else { u32::MAX }
    }

    /// Moves the users that have less than their share to the head of the wait queue.
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
