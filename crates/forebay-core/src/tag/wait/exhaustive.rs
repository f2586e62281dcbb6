//! Exhaustive search of a small system: no policy except stash-v1 lets a waiter sleep forever (T1).
//!
//! The search visits every state, breadth first, so that it reports a shortest path to a hang.
//!
//! The system takes the steps of the table in `wait.rs`, each as one step. The interleavings within
//! a step are checked by loom (`tests/loom/waits.rs`). The counters, the queue and the wake-ups are
//! the real code. Counters begin shortly before they wrap around (T3).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{TagWaits, Wait, WaitId, WakePolicy};

/// The state of a user that may wait for tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    /// The user does not wait.
    Out,
    /// The user has joined the queue, and has still to try once more.
    Joined,
    /// The user tried in vain, and was not woken before.
    Asleep,
    /// The user got its tags without a wake-up, and has still to leave the queue.
    Leaving,
    Woken,
}

/// The parameters of a system.
#[derive(Clone)]
struct Plan {
    policy: WakePolicy,
    is_stash_v1: bool,
    /// The depth of the set; two, if it changes.
    depths: Vec<u32>,
    /// The depth that the waits were created for: the set's, unless a bug is planted.
    waits_depth: u32,
    /// The number of tags that each user needs.
    needs: Vec<u32>,
    /// The maximum number of puts that are not yet reported to the waits.
    nr_untold_max: u32,
    /// With false, each step of a user is a state. With true, all that a user can do at once is one
    /// step: it joins the queue together with a failed try, and puts tags together with the check
    /// for waiters.
    is_coarse: bool,
}

#[derive(Clone)]
struct State {
    users: Vec<At>,
    waits: TagWaits,
    depth: u32,
    nr_held: u32,
    nr_untold: u32,
}

/// The key of a state. Users with the same state and the same need are interchangeable.
type Key = (Vec<(At, u32)>, Vec<(At, u32)>, (u32, u32, u32, u32), (u32, (u32, bool)));

impl State {
    fn new(plan: &Plan) -> State {
        let mut waits = match plan.is_stash_v1 {
            true => TagWaits::stash_v1(plan.waits_depth),
            false => TagWaits::new(plan.policy, plan.waits_depth),
        };
        waits.start_counters_at(u32::MAX - 2);
        let depth = plan.depths[0];
        State {
            users: plan.needs.iter().map(|_| At::Out).collect(),
            waits,
            depth,
            nr_held: depth,
            nr_untold: 0,
        }
    }

    fn key(&self, plan: &Plan) -> Key {
        let of = |user: usize| (self.users[user], plan.needs[user]);
        let line: Vec<_> = self.waits.line.iter().map(|wait| of(wait.id.0 as usize)).collect();
        let is_in_line = |user: &usize| self.waits.line.iter().any(|w| w.id.0 == *user as u64);
        let mut others: Vec<_> =
            (0..self.users.len()).filter(|user| !is_in_line(user)).map(of).collect();
        others.sort_unstable();
        let numbers = (self.depth, self.waits.depth(), self.nr_held, self.nr_untold);
        (line, others, numbers, self.waits.account())
    }

    /// Returns whether all tags are free, no user can act, and a user sleeps.
    fn hangs(&self, plan: &Plan) -> bool {
        let is_resizing = plan.depths.len() > 1 && self.depth != self.waits.depth();
        let is_idle = self.users.iter().all(|at| matches!(at, At::Out | At::Asleep));
        let nobody_acts = self.nr_held + self.nr_untold == 0 && is_idle && !is_resizing;
        nobody_acts && self.users.contains(&At::Asleep)
    }

    fn nr_free(&self) -> u32 {
        self.depth.saturating_sub(self.nr_held)
    }

    fn take(&mut self, nr: u32) -> bool {
        let is_got = self.nr_free() >= nr;
        if is_got {
            self.nr_held += nr;
            self.waits.took(nr);
        }
        is_got
    }

    /// Calls the waits, as under the lock. Sleeping users that this wakes become `Woken`.
    fn with_waits(&mut self, act: impl FnOnce(&mut TagWaits, &mut dyn FnMut(WaitId))) {
        let users = &mut self.users;
        act(&mut self.waits, &mut |id| {
            let at = &mut users[id.0 as usize];
            if *at == At::Asleep {
                *at = At::Woken;
            }
        });
    }

    fn is_in_line(&self, user: usize) -> bool {
        self.waits.line.iter().any(|wait| wait.id.0 == user as u64)
    }

    fn wake(&mut self, nr: u32) {
        let nr_busy = self.nr_held;
        // As `WaiterCount` does.
        if !self.waits.is_empty() {
            self.with_waits(|waits, out| waits.wake(nr, nr_busy, &mut |id| out(id)));
        }
    }

    fn leave(&mut self, user: usize, need: u32) {
        let (id, nr_busy) = (WaitId(user as u64), self.nr_held);
        self.users[user] = At::Out;
        self.with_waits(|waits, out| {
            if !waits.remove(id, &mut |id| out(id)) {
                waits.donate(need, nr_busy, &mut |id| out(id));
            }
        });
    }

    /// Takes the second try of a user that has just joined the queue.
    fn retry(&mut self, user: usize, need: u32) {
        self.users[user] = match (self.take(need), self.is_in_line(user)) {
            (true, _) => At::Leaving,
            (false, true) => At::Asleep,
            (false, false) => At::Woken,
        };
    }

    /// Takes the next step of a user. Returns its name.
    fn step(&mut self, user: usize, plan: &Plan) -> &'static str {
        let wait = Wait { id: WaitId(user as u64), need: plan.needs[user] };
        let at = self.users[user];
        match at {
            At::Out | At::Woken if plan.is_coarse && self.take(wait.need) => {
                self.users[user] = At::Out;
                "get"
            }
            At::Out => {
                self.waits.push(wait);
                self.users[user] = if plan.is_coarse { At::Asleep } else { At::Joined };
                "join"
            }
            At::Woken if self.take(wait.need) => {
                self.users[user] = At::Out;
                "get, woken"
            }
            At::Woken => {
                self.waits.requeue(wait);
                self.users[user] = if plan.is_coarse { At::Asleep } else { At::Joined };
                "requeue"
            }
            At::Joined => {
                self.retry(user, wait.need);
                "retry"
            }
            At::Leaving => {
                self.leave(user, wait.need);
                "leave"
            }
            At::Asleep => {
                self.leave(user, wait.need);
                "give up"
            }
        }
    }
}

/// Returns all states that one step leads to, with the name of the step.
fn next(state: &State, plan: &Plan) -> Vec<(&'static str, State)> {
    let mut all = Vec::new();
    let mut add = |act: &mut dyn FnMut(&mut State) -> Option<&'static str>| {
        let mut next = state.clone();
        if let Some(name) = act(&mut next) {
            all.push((name, next));
        }
    };
    for user in 0..plan.needs.len() {
        add(&mut |state| Some(state.step(user, plan)));
        if state.users[user] == At::Woken {
            add(&mut |state| {
                state.leave(user, plan.needs[user]);
                Some("give up, woken")
            });
        }
    }
    add(&mut |state| state.take(1).then_some("barge"));
    if state.nr_held > 0 && plan.is_coarse {
        add(&mut |state| {
            state.nr_held -= 1;
            state.wake(1);
            Some("put")
        });
    } else if state.nr_held > 0 && state.nr_untold < plan.nr_untold_max {
        add(&mut |state| {
            (state.nr_held, state.nr_untold) = (state.nr_held - 1, state.nr_untold + 1);
            Some("put")
        });
    }
    for nr in 1..=state.nr_untold {
        add(&mut |state| {
            state.nr_untold -= nr;
            state.wake(nr);
            Some("tell")
        });
    }
    if let [large, small] = plan.depths[..] {
        add(&mut |state| resize(state, large, small));
    }
    all
}

/// The waits shrink before the set, and grow after it (T6).
fn resize(state: &mut State, large: u32, small: u32) -> Option<&'static str> {
    let is_waits_large = state.waits.depth() == large;
    match (state.depth == large, is_waits_large) {
        (true, true) => state.with_waits(|waits, out| waits.resize(small, &mut |id| out(id))),
        (true, false) => state.depth = small,
        (false, _) => {
            state.depth = large;
            state.with_waits(|waits, out| waits.resize(large, &mut |id| out(id)));
        }
    }
    Some("resize")
}

/// Visits every state that can be reached. Panics with a shortest path to a state in which a user
/// sleeps forever. Returns the number of states.
fn explore(plan: &Plan) -> usize {
    let first = State::new(plan);
    let mut seen = BTreeMap::from([(first.key(plan), ())]);
    let mut ways = Vec::from([(usize::MAX, "")]);
    let mut due = VecDeque::from([(0, first)]);
    while let Some((number, state)) = due.pop_front() {
        if state.hangs(plan) {
            let version = if plan.is_stash_v1 { "-v1" } else { "" };
            let (name, depths) = (plan.policy.name(), &plan.depths);
            panic!("{name}{version} of {depths:?} hangs: {}", way(&ways, number));
        }
        for (name, next) in next(&state, plan) {
            if seen.insert(next.key(plan), ()).is_none() {
                ways.push((number, name));
                due.push_back((ways.len() - 1, next));
            }
        }
    }
    seen.len()
}

fn way(ways: &[(usize, &'static str)], mut number: usize) -> String {
    let mut names = VecDeque::new();
    while number != 0 {
        names.push_front(ways[number].1);
        number = ways[number].0;
    }
    let names = names.make_contiguous();
    let runs = names.chunk_by(|one, other| one == other);
    runs.map(|run| format!("{} x {}", run.len(), run[0])).collect::<Vec<_>>().join(", ")
}

fn plan(policy: WakePolicy, depth: u32, needs: &[u32], nr_untold_max: u32) -> Plan {
    let (needs, depths) = (needs.to_vec(), Vec::from([depth]));
    let (is_stash_v1, is_coarse) = (false, false);
    Plan { policy, is_stash_v1, depths, waits_depth: depth, needs, nr_untold_max, is_coarse }
}

fn coarse(policy: WakePolicy, depth: u32, nr_users: usize) -> Plan {
    Plan { is_coarse: true, ..plan(policy, depth, &[1].repeat(nr_users), 0) }
}

#[test]
fn no_waiter_for_one_tag_sleeps_forever() {
    for policy in WakePolicy::ALL {
        for depth in 1..=8 {
            let nr_users = if depth <= 2 || depth == 8 { 5 } else { 4 };
            let nr = explore(&plan(policy, depth, &[1].repeat(nr_users), 2));
            assert!(nr > 3000, "{} of {depth}: {nr} states", policy.name());
        }
    }
}

#[test]
fn no_waiter_for_several_tags_sleeps_forever() {
    for policy in WakePolicy::ALL {
        for (depth, needs) in [(2, [1, 1, 1, 1]), (3, [2, 2, 1, 1])] {
            explore(&plan(policy, depth, &needs, 2));
        }
        explore(&plan(policy, 8, &[4, 3, 1], 2));
    }
}

#[test]
fn no_waiter_sleeps_forever_with_larger_batches() {
    for policy in WakePolicy::ALL {
        explore(&plan(policy, 16, &[1; 4], 1));
        explore(&plan(policy, 24, &[12, 8, 1], 1));
        for depth in [16, 32] {
            explore(&coarse(policy, depth, 7));
        }
    }
}

/// T6.
#[test]
fn no_waiter_sleeps_forever_when_the_depth_changes() {
    for policy in WakePolicy::ALL {
        for (depths, needs) in [([4, 1], &[1; 4][..]), ([17, 15], &[8, 1]), ([24, 8], &[4, 1, 1])] {
            explore(&Plan { depths: Vec::from(depths), ..plan(policy, depths[0], needs, 1) });
        }
    }
}

/// T6, planted: the batch is that of a depth of 64.
#[test]
#[should_panic(expected = "batch of [7] hangs: 1 x join, 1 x retry, 7 x put, 1 x tell")]
fn planted_a_batch_that_is_too_large() {
    explore(&Plan { waits_depth: 64, ..plan(WakePolicy::Batch, 7, &[1; 2], 7) });
}

/// The first version of stash-and-wake loses the last waiters: each generation puts as many tags as
/// it woke waiters, and wakes four fewer.
#[test]
#[should_panic(expected = "stash-v1 of [16] hangs: 15 x join, 5 x put, 1 x get, 1 x put")]
fn stash_v1_hangs_once_fifteen_wait() {
    explore(&Plan { is_stash_v1: true, ..coarse(WakePolicy::Stash, 16, 16) });
}
