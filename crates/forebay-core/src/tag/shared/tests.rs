//! Step-by-step tests of shares, and an exhaustive search of small systems.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::super::{Wait, WakePolicy};
use super::*;

#[test]
fn a_share_is_a_part_of_the_depth_rounded_up_and_four_at_least() {
    let share = |depth, nr_users| TagShares::new(depth, nr_users).share();
    assert_eq!([share(64, 1), share(64, 3), share(64, 40), share(2, 5)], [64, 22, 4, 2]);
}

#[test]
fn the_limit_holds_only_while_another_below_its_share_waits() {
    let [one, other] = [1, 2].map(WaitId);
    let mut shares = TagShares::new(16, 2);
    assert_eq!(shares.allowance(one, 15), u32::MAX, "nobody waits");
    shares.wait(other, 3);
    assert_eq!([10, 8, 5].map(|nr| shares.allowance(one, nr)), [0, 0, 3]);
    assert_eq!(shares.allowance(other, 3), u32::MAX, "nobody else waits");
    shares.hold(other, 8);
    assert_eq!(shares.allowance(one, 10), u32::MAX, "the other has its share");
    shares.hold(other, 7);
    assert_eq!(shares.allowance(one, 10), 0);
    assert!(shares.done(other) && !shares.done(other));
    assert_eq!(shares.allowance(one, 10), u32::MAX);
}

#[test]
fn disk_below_its_share_is_woken_first() {
    let mut shares = TagShares::new(16, 4);
    let mut waits = TagWaits::new(WakePolicy::Fair, 16);
    for (user, nr_held) in [(1, 4), (2, 3), (3, 9), (4, 0)] {
        shares.wait(WaitId(user), nr_held);
        waits.push(Wait { id: WaitId(user), need: 1 });
    }
    let mut woken = Vec::new();
    shares.sort(&mut waits);
    waits.wake(1, 15, &mut |id| woken.push(id.0));
    shares.hold(WaitId(3), 2);
    shares.sort(&mut waits);
    waits.wake(3, 12, &mut |id| woken.push(id.0));
    assert_eq!(woken, [2, 4, 3, 1], "in the order of arrival, apart from that");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Out,
    Joined,
    Asleep,
    Leaving,
    Woken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct User {
    at: At,
    nr_held: u32,
    nr_untold: u32,
}

/// The whole state: the users, the wait queue, the hungry users, the number of users, and the
/// counters.
type Key = (Vec<User>, Vec<u64>, Vec<(u64, u32)>, u32, (u32, (u32, bool)));

/// A system of users that want one tag at a time. Each step of the table is one step.
#[derive(Clone)]
struct State {
    users: Vec<User>,
    depth: u32,
    shares: TagShares,
    waits: TagWaits,
}

impl State {
    fn new(depth: u32, nr_users: u32) -> State {
        let user = User { at: At::Out, nr_held: 0, nr_untold: 0 };
        let mut waits = TagWaits::new(WakePolicy::Fair, depth);
        waits.start_counters_at(u32::MAX - 2);
        let users = [user].repeat(nr_users as usize);
        State { users, depth, shares: TagShares::new(depth, nr_users), waits }
    }

    fn key(&self) -> Key {
        let hungry = self.shares.hungry.iter().map(|hungry| (hungry.user.0, hungry.nr_held));
        let mut hungry: Vec<_> = hungry.collect();
        hungry.sort_unstable();
        let nr_users = self.shares.nr_users;
        (self.users.clone(), self.waits.ids(), hungry, nr_users, self.waits.account())
    }

    fn nr_busy(&self) -> u32 {
        self.users.iter().map(|user| user.nr_held).sum()
    }

    fn is_due(&self) -> bool {
        let is_idle = |user: &User| matches!(user.at, At::Out | At::Asleep);
        let is_done = |user: &User| user.nr_held + user.nr_untold == 0;
        !self.users.iter().all(|user| is_idle(user) && is_done(user))
    }

    fn take(&mut self, user: usize) -> bool {
        let is_got = self.nr_busy() < self.depth;
        self.users[user].nr_held += u32::from(is_got);
        is_got
    }

    fn take_allowed(&mut self, user: usize) -> bool {
        let nr = self.shares.allowance(WaitId(user as u64), self.users[user].nr_held);
        nr > 0 && self.take(user)
    }

    fn wake(&mut self, act: impl FnOnce(&mut TagWaits, u32, &mut dyn FnMut(WaitId))) {
        let nr_busy = self.nr_busy();
        self.shares.sort(&mut self.waits);
        let users = &mut self.users;
        act(&mut self.waits, nr_busy, &mut |id| {
            let at = &mut users[id.0 as usize].at;
            if *at == At::Asleep {
                *at = At::Woken;
            }
        });
    }

    fn step(&mut self, user: usize) {
        let id = WaitId(user as u64);
        let wait = Wait { id, need: 1 };
        let at = self.users[user].at;
        match at {
            At::Out => {
                self.shares.wait(id, self.users[user].nr_held);
                self.waits.push(wait);
                self.users[user].at = At::Joined;
            }
            At::Joined => {
                self.users[user].at = match (self.take_allowed(user), self.waits.ids()) {
                    (true, _) => At::Leaving,
                    (false, line) if line.contains(&id.0) => At::Asleep,
                    (false, _) => At::Woken,
                };
            }
            At::Leaving => {
                self.users[user].at = At::Out;
                self.shares.done(id);
                self.wake(|waits, nr_busy, out| {
                    if !waits.remove(id, &mut |id| out(id)) {
                        waits.donate(1, nr_busy, &mut |id| out(id));
                    }
                });
            }
            At::Woken if self.take_allowed(user) => {
                self.users[user].at = At::Out;
                self.shares.done(id);
            }
            At::Woken => {
                self.waits.requeue(wait);
                self.users[user].at = At::Joined;
            }
            At::Asleep => {}
        }
    }

    fn next(&self) -> Vec<State> {
        let mut all = Vec::new();
        let mut add = |act: &mut dyn FnMut(&mut State)| {
            let mut next = self.clone();
            act(&mut next);
            all.push(next);
        };
        for (at, user) in self.users.iter().enumerate() {
            add(&mut |state| state.step(at));
            if user.at == At::Out {
                // The user has not seen that another user is hungry.
                add(&mut |state| _ = state.take(at));
            }
            if user.nr_held > 0 && user.nr_untold == 0 {
                add(&mut |state| {
                    state.users[at].nr_held -= 1;
                    state.users[at].nr_untold += 1;
                });
            }
            if user.nr_untold > 0 {
                add(&mut |state| {
                    state.users[at].nr_untold -= 1;
                    if !state.waits.is_empty() {
                        let nr_held = state.users[at].nr_held;
                        state.shares.hold(WaitId(at as u64), nr_held);
                        state.wake(|waits, nr_busy, out| waits.wake(1, nr_busy, &mut |id| out(id)));
                    }
                });
            }
        }
        let nr_users = if self.shares.nr_users == 1 { self.users.len() as u32 } else { 1 };
        add(&mut |state| state.shares.resize(state.depth, nr_users));
        all
    }
}

/// T1, with refusals and a changing number of users.
#[test]
fn exhaustive_no_waiter_sleeps_forever_with_shares() {
    for (depth, nr_users) in [(1, 2), (2, 2), (5, 2)] {
        let first = State::new(depth, nr_users);
        let mut seen = BTreeSet::from([first.key()]);
        let mut due = VecDeque::from([first]);
        while let Some(state) = due.pop_front() {
            let hangs = !state.is_due() && !state.waits.is_empty();
            assert!(!hangs, "a depth of {depth}: {:?}", state.users);
            due.extend(state.next().into_iter().filter(|next| seen.insert(next.key())));
        }
        assert!(seen.len() > 2000, "{} states", seen.len());
    }
}
