//! Tests of a hardware context whose owners have latency goals (OW7). A window takes 10 ms here.

use crate::common::{Bench, limits};
use crate::owners::{K4, MS, Owned, policy};
use forebay_core::{Bio, BioFlags, BlockStatus, Issue, Limits, Op, Origin};
use proptest::prelude::*;
use std::collections::VecDeque;

const NONE: BioFlags = BioFlags::NONE;

/// Returns limits with this goal only.
fn goal(latency_target_us: u64) -> Limits {
    let mut limits = Limits::default();
    limits.latency_target_us = latency_target_us;
    limits
}

/// Returns a bench with 8 tags, whose first owner has a goal of 1.5 ms and whose second has none.
fn owned() -> Owned {
    Owned::new(policy(), &[(100, goal(1500)), (100, Limits::default())])
}

impl Owned {
    /// Lets a window pass in which reads of owner 1 took `ms`, and nothing else happened.
    fn window(&mut self, ms: u64) {
        for _ in 0..5 {
            let first = self.bench.toy.running.len();
            self.reads(1, [500]);
            assert_eq!(self.bench.toy.running.len(), first + 1, "no goal limits its own owner");
            self.bench.turn_after(ms * MS);
            self.bench.complete(first, Ok(K4));
        }
        // The next end counts for the next window.
        self.bench.turn_after(10 * MS);
        self.issued();
    }

    fn depth(&self, number: u32) -> Option<u32> {
        self.owner(number).stats().depth
    }

    /// Completes the oldest read, and returns the reads that are issued then.
    fn complete_oldest(&mut self) -> Vec<u64> {
        self.bench.toy.complete_oldest();
        self.bench.turn();
        self.issued()
    }
}

#[test]
fn missed_goal_halves_the_depth_of_others() {
    let mut owned = owned();
    owned.window(2);
    owned.reads(2, 0..6);
    assert_eq!(owned.issued(), [0, 1, 2, 3]);
    assert_eq!((owned.depth(2), owned.depth(1)), (Some(4), None));
    let turned = owned.bench.turn();
    assert!(turned.work_left() && turned.deadline().is_none() && !turned.is_stuck());
    owned.reads(1, [600]);
    assert_eq!(owned.issued(), [600], "the owner with the goal has no limit");
    assert_eq!(owned.complete_oldest(), [4], "an end lets the next one go");
    assert_eq!(owned.complete_oldest(), [5]);
    owned.bench.finish();
    let stats = owned.owner(2).stats();
    assert_eq!((stats.limit_waits, stats.depth), (2, Some(4)));
    assert_eq!(owned.owner(1).stats().missed_windows, 1);
}

#[test]
fn io_without_an_owner_gives_way_too() {
    let mut owned = owned();
    owned.window(2);
    owned.window(2);
    owned.reads(0, 0..8);
    assert_eq!(owned.issued(), [0, 1]);
    assert_eq!(owned.owners.depth_of_unowned(), Some(2));
    owned.bench.finish();
}

#[test]
fn depth_is_full_again_after_windows_without_io() {
    let mut owned = owned();
    (0..4).for_each(|_| owned.window(2));
    owned.reads(2, 0..8);
    assert_eq!((owned.issued(), owned.depth(2)), (vec![0], Some(1)));
    owned.bench.turn_after(30 * MS);
    assert_eq!(owned.issued(), [], "an end lets the next one go, not a time");
    assert_eq!(owned.complete_oldest().len(), 4);
    owned.bench.turn_after(70 * MS);
    assert_eq!((owned.complete_oldest().len(), owned.depth(2)), (3, None));
    owned.bench.finish();
}

#[test]
fn owner_that_was_idle_begins_with_the_depth_of_its_time() {
    let mut owned = owned();
    (0..4).for_each(|_| owned.window(2));
    owned.bench.turn_after(100 * MS);
    owned.reads(2, 0..8);
    assert_eq!(owned.issued().len(), 8);
    owned.bench.finish();
}

#[test]
fn peers_of_no_missed_goal_have_no_limit() {
    let mut owned = owned();
    owned.window(1);
    owned.reads(2, 0..8);
    assert_eq!((owned.issued().len(), owned.depth(2)), (8, None));
    owned.bench.finish();
}

#[test]
fn stricter_goals_are_not_limited_by_looser_ones() {
    let owners = [(100, goal(1000)), (100, goal(500)), (100, goal(1000)), (100, goal(1001))];
    let mut owned = Owned::new(policy(), &owners);
    owned.window(2);
    owned.reads(2, [0]);
    assert_eq!([2, 3, 4].map(|number| owned.depth(number)), [None, None, Some(4)]);
    owned.bench.finish();
}

#[test]
fn only_owners_below_the_same_parent_give_way() {
    let mut owned = owned();
    let parent = owned.owner(2).id();
    for name in ["a", "b"] {
        owned.owners.add(name, Some(parent), 0).expect("a new name");
    }
    owned.owner(1).set_limits(&Limits::default(), 0).expect("no other change");
    owned.owner(3).set_limits(&goal(1000), 0).expect("no other change");
    owned.publish();
    for page in 0..5 {
        owned.reads(3, [page]);
        owned.bench.turn_after(2 * MS);
        owned.bench.finish_running();
    }
    owned.bench.turn_after(10 * MS);
    owned.issued();
    owned.reads(1, [10]);
    owned.reads(0, [20]);
    owned.reads(4, 30..36);
    assert_eq!(owned.issued(), [10, 20, 30, 31, 32, 33]);
    assert_eq!([1, 2, 3, 4].map(|number| owned.depth(number)), [None, None, None, Some(4)]);
    owned.bench.finish();
}

#[test]
fn io_of_children_counts_for_the_goal_and_the_depth_of_their_parent() {
    let mut owned = owned();
    for (name, parent) in [("a", 1), ("b", 2), ("c", 2)] {
        let parent = owned.owner(parent).id();
        owned.owners.add(name, Some(parent), 0).expect("a new name");
    }
    owned.publish();
    for page in 0..5 {
        owned.reads(3, [page]);
        owned.bench.turn_after(2 * MS);
        owned.bench.finish_running();
    }
    owned.bench.turn_after(10 * MS);
    owned.issued();
    owned.reads(4, 10..13);
    owned.reads(5, 20..23);
    assert_eq!(owned.issued().len(), 4, "both share the depth of their parent");
    assert_eq!([2, 4, 5].map(|number| owned.depth(number)), [Some(4), None, None]);
    assert_eq!(owned.complete_oldest().len(), 1);
    owned.bench.finish();
}

#[test]
fn nowait_io_ends_at_once_if_the_depth_is_used_up() {
    let mut owned = owned();
    (0..3).for_each(|_| owned.window(2));
    for page in 0..2 {
        owned.queue(2, Op::Read, BioFlags::NOWAIT, (2 * page, 1), page);
        owned.bench.turn();
    }
    assert_eq!(owned.issued(), [0]);
    assert_eq!(owned.bench.ends().last(), Some(&(1, Err(BlockStatus::Again))));
    owned.bench.finish();
    // One that is not issued gives its place back.
    owned.bench.toy.answers.push_back(Issue::Busy);
    owned.queue(2, Op::Read, BioFlags::NOWAIT, (0, 1), 2);
    owned.bench.turn();
    owned.reads(2, [3]);
    assert_eq!(owned.issued(), [3]);
    owned.bench.finish();
}

#[test]
fn flushes_and_a_device_that_is_gone_ignore_the_depth() {
    let mut owned = owned();
    owned.bench = Bench::new(limits().volatile_cache(true), policy());
    owned.publish();
    (0..4).for_each(|_| owned.window(2));
    owned.queue(2, Op::Write, NONE, (0, 1), 0);
    owned.queue(2, Op::Write, NONE, (10, 1), 1);
    owned.queue(2, Op::Flush, NONE, (0, 0), 2);
    owned.bench.turn();
    let nr = owned.bench.toy.running.len();
    assert_eq!(nr, 2, "a write, and the flush");
    owned.bench.complete(0, Err(BlockStatus::Offline));
    let ends = owned.bench.ends();
    assert!(ends.contains(&(1, Err(BlockStatus::Offline))), "{ends:?}");
    owned.bench.finish();
}

#[test]
fn freeze_does_not_wait_for_requests_that_a_depth_holds_back() {
    let mut owned = owned();
    (0..4).for_each(|_| owned.window(2));
    owned.reads(2, 0..3);
    owned.bench.queue.gates.enter = false;
    owned.bench.finish_running();
    let turned = owned.bench.turn();
    assert!(turned.is_drained() && turned.deadline().is_none());
    assert_eq!(owned.issued(), [0]);
    owned.bench.queue.gates.enter = true;
    owned.bench.turn();
    assert_eq!(owned.issued(), [1]);
    owned.bench.finish();
}

#[test]
fn removed_owner_keeps_its_count_and_its_number_begins_anew() {
    let mut owned = owned();
    let parent = owned.owner(2).id();
    let child = owned.owners.add("child", Some(parent), 0).expect("a new name").id();
    owned.publish();
    (0..2).for_each(|_| owned.window(2));
    owned.reads(3, 0..4);
    assert_eq!(owned.issued(), [0, 1], "the depth of the parent");
    owned.owners.remove(child).expect("it exists");
    let new = owned.owners.add("new", Some(parent), 0).expect("a new name");
    assert_eq!(new.id(), child);
    owned.publish();
    owned.bench.turn();
    assert_eq!(owned.issued(), [2, 3], "they have no owner now");
    owned.reads(3, 10..13);
    assert_eq!(owned.issued(), [], "reads of the removed child still count for its parent");
    owned.bench.complete(0, Ok(K4));
    assert_eq!(owned.issued(), [10]);
    owned.bench.complete(0, Ok(K4));
    assert_eq!(owned.issued(), [11], "and end once");
    owned.bench.finish();
}

#[test]
fn goal_that_is_removed_lets_all_io_go() {
    let mut owned = owned();
    (0..4).for_each(|_| owned.window(2));
    owned.reads(2, 0..3);
    assert_eq!(owned.issued(), [0]);
    owned.owner(1).set_limits(&Limits::default(), 0).expect("no other change");
    owned.publish();
    owned.bench.turn();
    assert_eq!((owned.issued(), owned.depth(2)), (vec![1, 2], None));
    owned.bench.finish();
}

#[test]
fn time_for_which_a_limit_holds_io_back_is_no_latency() {
    let mut limits = goal(1000);
    limits.both.iops.per_s = 200;
    limits.both.iops.burst = Some(0);
    let mut owned = Owned::new(policy(), &[(100, limits), (100, Limits::default())]);
    owned.reads(1, 0..12);
    for _ in 0..100 {
        owned.bench.finish_running();
        owned.bench.turn_after(MS);
    }
    assert_eq!(owned.issued().len(), 12);
    assert_eq!(owned.owner(1).stats().missed_windows, 0);
    // Nor are failures.
    for page in 0..20 {
        owned.queue(1, Op::Read, NONE, (2 * page, 1), page);
        owned.bench.turn_after(5 * MS);
        owned.bench.turn_after(5 * MS);
        owned.bench.complete(0, Err(BlockStatus::Medium));
    }
    assert_eq!(owned.owner(1).stats().missed_windows, 0);
    owned.bench.finish();
}

/// A step of a history of reads.
#[derive(Clone, Debug)]
enum Step {
    /// Queues so many reads of an owner.
    Read(u32, u32),
    /// Completes one of the running requests.
    Complete(u8),
    /// Lets so many milliseconds pass.
    Pass(u64),
    /// Sets the goal of an owner in microseconds.
    Goal(u32, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u32, 1..5_u32).prop_map(|(owner, nr)| Step::Read(owner, nr)),
        6 => any::<u8>().prop_map(Step::Complete),
        3 => (1..12_u64).prop_map(Step::Pass),
        1 => (1..4_u32, prop_oneof![Just(0), 1..20_000_u64])
            .prop_map(|(owner, goal)| Step::Goal(owner, goal)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// OW7, from its definition: an owner has its depth in flight or no read that waits, and never
    /// gets more than its depth. Reads that left while no owner had a goal do not count.
    #[test]
    fn owners_have_their_depth_in_flight(
        steps in proptest::collection::vec(step(), 1..150),
        goals in [0..5_000_u64, 0..20_000, 0..5],
    ) {
        let policy = policy().queue_depth(64).nr_requests(Some(64));
        let mut targets = goals;
        let mut owned = Owned::new(policy, &goals.map(|us| (100, goal(us))));
        let mut waiting = [(); 4].map(|()| VecDeque::<u64>::new());
        // Reads that have left: the owner, and whether an owner had a goal then. Others are not
        // counted.
        let mut running: Vec<(u32, bool)> = Vec::new();
        let mut page = 0;
        for step in steps {
            let mut pass_ns = 0;
            match step {
                Step::Read(owner, nr) => {
                    let nr_waiting = waiting.iter().map(VecDeque::len).sum::<usize>();
                    // A tag is free for each. A read that waits for one has left its owner.
                    let nr = if nr_waiting + running.len() < 60 { nr } else { 0 };
                    let bench = &mut owned.bench;
                    for _ in 0..nr {
                        page += 1;
                        waiting[owner as usize].push_back(page);
                        let bio = bench.bio(Op::Read, 2 * page * K4, K4, page);
                        let origin = Origin::NONE.with_owner(owner);
                        bench.queue_bio(Bio { origin, ..bio }, 0);
                    }
                }
                Step::Complete(nth) if !running.is_empty() => {
                    let nth = usize::from(nth) % running.len();
                    running.remove(nth);
                    owned.bench.toy.complete(nth, Ok(K4));
                }
                Step::Complete(_) => {}
                Step::Pass(ms) => pass_ns = ms * MS,
                Step::Goal(owner, us) => {
                    targets[owner as usize - 1] = us;
                    owned.owner(owner).set_limits(&goal(us), 0).expect("no other change");
                    owned.publish();
                }
            }
            owned.bench.turn_after(pass_ns);
            let mut has_new = [false; 4];
            for page in owned.issued() {
                let fits = |queue: &VecDeque<u64>| queue.front() == Some(&page);
                let owner = waiting.iter().position(fits).expect("the oldest read of an owner");
                waiting[owner].pop_front();
                running.push((owner as u32, targets != [0; 3]));
                has_new[owner] = true;
            }
            for (owner, queue) in waiting.iter().enumerate() {
                let depth = match owner {
                    0 => owned.owners.depth_of_unowned(),
                    _ => owned.depth(owner as u32),
                };
                let nr = running.iter().filter(|it| **it == (owner as u32, true)).count();
                let depth = depth.map_or(usize::MAX, |depth| depth as usize);
                prop_assert!(!has_new[owner] || nr <= depth, "{owner}: {nr} of {depth}");
                prop_assert!(queue.is_empty() || nr >= depth, "{owner}: {nr} of {depth}");
            }
        }
        owned.bench.finish();
    }
}
