//! Tests of the activity of owners: I/O that is counted from its start to its end while an observer
//! watches.

use crate::common::{Bench, limits};
use crate::owners::{K4, MS, Owned, policy};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Issue, Limits, Op, Origin, Owner, OwnerActivity, SchedulerPolicy,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

const NONE: BioFlags = BioFlags::NONE;

/// Returns a bench with two owners without limits.
fn owned() -> Owned {
    Owned::new(policy(), &[(100, Limits::default()), (100, Limits::default())])
}

impl Owned {
    fn activity(&self, number: u32) -> OwnerActivity {
        self.owner(number).activity()
    }

    /// Returns the number of requests in flight and of those that were timed.
    fn counts(&self, number: u32) -> (u64, u64) {
        let activity = self.activity(number);
        (activity.in_flight, activity.total.count())
    }

    /// Watches an owner for this long.
    fn watch(&self, number: u32, ns: u64) {
        self.owner(number).watch(self.bench.now() + ns);
    }
}

#[test]
fn io_counts_while_it_is_in_flight_and_its_times_when_it_ends() {
    let mut owned = owned();
    owned.watch(1, 100 * MS);
    owned.reads(1, [0]);
    owned.reads(2, [10]);
    assert_eq!((owned.counts(1), owned.counts(2)), ((1, 0), (0, 0)));
    owned.bench.turn_after(3 * MS);
    owned.bench.finish();
    let activity = owned.activity(1);
    assert_eq!((activity.in_flight, activity.total.count(), owned.counts(2)), (0, 1, (0, 0)));
    let (total, driver) = (activity.total.sum(), activity.driver.sum());
    assert!((3 * MS..3 * MS + 100).contains(&driver) && driver <= total, "{driver} of {total}");
    assert_eq!(activity.driver.count(), 1);
}

#[test]
fn io_that_started_before_the_observer_came_is_left_out() {
    let mut owned = owned();
    owned.reads(1, [0]);
    owned.watch(1, 100 * MS);
    owned.reads(1, [1, 2]);
    assert_eq!(owned.counts(1), (2, 0));
    owned.bench.complete(0, Ok(K4));
    assert_eq!(owned.counts(1), (2, 0), "the first one was not counted at its start");
    owned.bench.finish();
    assert_eq!(owned.counts(1), (0, 2));
}

#[test]
fn io_that_was_counted_at_its_start_is_counted_at_its_end_when_no_observer_is_left() {
    let mut owned = owned();
    owned.watch(1, MS);
    owned.reads(1, [0]);
    owned.bench.turn_after(2 * MS);
    owned.reads(1, [1]);
    assert_eq!(owned.counts(1), (1, 0), "the time has passed before the second one");
    owned.bench.finish();
    assert_eq!(owned.counts(1), (0, 1));
}

#[test]
fn shorter_watch_of_another_observer_changes_nothing() {
    let mut owned = owned();
    owned.watch(1, 10 * MS);
    owned.watch(1, MS);
    owned.bench.turn_after(5 * MS);
    owned.reads(1, [0]);
    assert_eq!(owned.counts(1), (1, 0));
    owned.bench.finish();
}

#[test]
fn time_in_the_queue_of_a_limit_is_left_out() {
    let mut limits = Limits::default();
    limits.both.iops.per_s = 100;
    limits.both.iops.burst = Some(0);
    let mut owned = Owned::new(policy(), &[(100, limits)]);
    owned.watch(1, 1000 * MS);
    owned.reads(1, [0, 1]);
    assert_eq!(owned.counts(1), (1, 0), "one waits for the limit");
    owned.bench.finish_running();
    owned.bench.turn_after(20 * MS);
    assert_eq!(owned.counts(1), (1, 1));
    owned.bench.turn_after(MS);
    owned.bench.finish();
    let total = owned.activity(1).total;
    assert_eq!(total.count(), 2);
    assert!((MS..2 * MS).contains(&total.sum()), "{}", total.sum());
}

#[test]
fn merged_and_split_io_counts_once() {
    let mut owned = owned();
    owned.bench = Bench::new(limits().max_sectors(16), policy());
    owned.publish();
    owned.watch(1, 100 * MS);
    owned.queue(1, Op::Read, NONE, (0, 5), 0);
    owned.bench.turn();
    assert_eq!((owned.counts(1), owned.bench.toy.running.len()), ((1, 0), 3));
    owned.bench.finish();
    let activity = owned.activity(1);
    assert_eq!((activity.in_flight, activity.total.count()), (0, 1));
    assert_eq!(activity.driver.count(), 0, "no single time is that of all parts");
    for page in 10..12 {
        let bio = owned.bench.bio(Op::Read, page * K4, K4, page);
        owned.bench.queue_bio(Bio { origin: Origin::NONE.with_owner(1), ..bio }, 1);
    }
    owned.bench.unplug();
    assert_eq!((owned.counts(1), owned.bench.toy.running.len()), ((1, 1), 1), "one of two I/Os");
    owned.bench.finish();
    assert_eq!(owned.counts(1), (0, 2));
}

#[test]
fn io_that_joins_an_older_request_is_timed_from_its_submission() {
    let policy = policy().scheduler(SchedulerPolicy::MqDeadline).device_depth(Some(1));
    let mut owned = Owned::new(policy, &[(100, Limits::default())]);
    owned.reads(1, [0]);
    owned.queue(1, Op::Read, NONE, (10, 1), 1);
    owned.bench.turn();
    owned.bench.turn_after(5 * MS);
    owned.watch(1, 100 * MS);
    owned.queue(1, Op::Read, NONE, (11, 1), 2);
    owned.bench.turn();
    owned.bench.complete(0, Ok(K4));
    assert_eq!(owned.bench.toy.seen.last().map(|seen| seen.len), Some(2 * K4), "they have joined");
    owned.bench.turn_after(MS);
    owned.bench.finish();
    let total = owned.activity(1).total;
    assert_eq!(total.count(), 1, "only the newer one was watched");
    assert!((MS..2 * MS).contains(&total.sum()), "{}", total.sum());
}

#[test]
fn failed_io_has_no_time() {
    let mut owned = owned();
    owned.watch(1, 100 * MS);
    owned.reads(1, [0]);
    owned.bench.complete(0, Err(BlockStatus::Medium));
    assert_eq!(owned.counts(1), (0, 0));
    owned.bench.finish();
}

#[test]
fn nowait_io_that_is_not_issued_does_not_stay_in_flight() {
    let mut owned = owned();
    owned.watch(1, 100 * MS);
    owned.queue(1, Op::Read, BioFlags::NOWAIT, (0, 1), 0);
    owned.bench.turn();
    assert_eq!(owned.counts(1), (1, 0));
    owned.bench.toy.answers.push_back(Issue::Busy);
    owned.queue(1, Op::Read, BioFlags::NOWAIT, (10, 1), 1);
    owned.bench.turn();
    assert_eq!(owned.bench.ends(), [(1, Err(BlockStatus::Again))]);
    assert_eq!(owned.counts(1), (1, 0));
    owned.bench.finish();
    assert_eq!(owned.counts(1), (0, 1));
}

#[test]
fn busy_driver_keeps_io_in_flight() {
    let mut owned = owned();
    owned.watch(1, 100 * MS);
    owned.bench.toy.answers.push_back(Issue::Busy);
    owned.reads(1, [0]);
    assert_eq!((owned.counts(1), owned.bench.toy.running.len()), ((1, 0), 0));
    owned.bench.turn();
    owned.bench.finish();
    assert_eq!(owned.counts(1), (0, 1));
}

/// A step of a history of reads.
#[derive(Clone, Debug)]
enum Step {
    /// Queues so many reads of an owner. 0: of none.
    Read(u32, u32),
    /// Completes one of the running requests, with success or not.
    Complete(u8, bool),
    /// Lets so many milliseconds pass.
    Pass(u64),
    /// Watches an owner for so many milliseconds.
    Watch(u32, u64),
    /// Sets the latency goal of an owner in microseconds.
    Goal(u32, u64),
    /// Replaces an owner by another one with its number.
    Replace(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..4_u32, 1..5_u32).prop_map(|(owner, nr)| Step::Read(owner, nr)),
        6 => (any::<u8>(), prop::bool::weighted(0.8)).prop_map(|(nth, ok)| Step::Complete(nth, ok)),
        3 => (1..12_u64).prop_map(Step::Pass),
        3 => (1..4_u32, 0..30_u64).prop_map(|(owner, ms)| Step::Watch(owner, ms)),
        1 => (1..4_u32, prop_oneof![Just(0), 1..20_000_u64])
            .prop_map(|(owner, goal)| Step::Goal(owner, goal)),
        1 => (1..4_u32).prop_map(Step::Replace),
    ]
}

/// An owner of the model, which may have been removed.
struct Known {
    owner: Arc<Owner>,
    watched_until_ns: u64,
    in_flight: u64,
    nr_timed: u64,
}

impl Known {
    fn of(owner: Arc<Owner>) -> Known {
        Known { owner, watched_until_ns: 0, in_flight: 0, nr_timed: 0 }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Observers come and go while I/O is in flight, and owners and latency goals change. The
    /// counts are those of the I/O that started under an observer.
    #[test]
    fn counts_are_those_of_io_that_started_under_an_observer(
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let policy = policy().queue_depth(64).nr_requests(Some(64));
        let mut owned = Owned::new(policy, &[(100, Limits::default()); 3]);
        let mut known: Vec<Known> =
            (1..4).map(|number| Known::of(owned.owner(number))).collect();
        // The place of each number in `known`.
        let mut at = [usize::MAX, 0, 1, 2];
        let mut waiting: VecDeque<(u64, usize)> = VecDeque::new();
        // The running reads: page, and the place of the owner that counts it.
        let mut running: Vec<(u64, Option<usize>)> = Vec::new();
        let mut page = 0;
        for step in steps {
            let mut pass_ns = 0;
            match step {
                Step::Read(owner, nr) => {
                    // A tag is free for each. A read that waits for one has left its owner.
                    let nr = if waiting.len() + running.len() < 60 { nr } else { 0 };
                    for _ in 0..nr {
                        page += 1;
                        waiting.push_back((page, at[owner as usize]));
                        owned.queue(owner, Op::Read, NONE, (2 * page, 1), page);
                    }
                }
                Step::Complete(nth, ok) if !running.is_empty() => {
                    let nth = usize::from(nth) % running.len();
                    let (_, counted) = running.remove(nth);
                    if let Some(of) = counted {
                        known[of].in_flight -= 1;
                        known[of].nr_timed += u64::from(ok);
                    }
                    let result = if ok { Ok(K4) } else { Err(BlockStatus::Medium) };
                    owned.bench.toy.complete(nth, result);
                }
                Step::Complete(..) => {}
                Step::Pass(ms) => pass_ns = ms * MS,
                Step::Watch(owner, ms) => {
                    let of = &mut known[at[owner as usize]];
                    let until_ns = owned.bench.now() + ms * MS;
                    of.watched_until_ns = of.watched_until_ns.max(until_ns);
                    of.owner.watch(until_ns);
                }
                Step::Goal(owner, us) => {
                    let mut limits = Limits::default();
                    limits.latency_target_us = us;
                    owned.owner(owner).set_limits(&limits, 0).expect("no other change");
                    owned.publish();
                }
                Step::Replace(number) => {
                    let id = owned.owner(number).id();
                    owned.owners.remove(id).expect("it exists");
                    let new = owned.owners.add(&known.len().to_string(), None, 0);
                    let new = new.expect("a new name");
                    prop_assert_eq!(new.id(), id);
                    // Its reads that wait have no owner now.
                    let was = std::mem::replace(&mut at[number as usize], known.len());
                    let gone = waiting.iter_mut().filter(|(_, of)| *of == was);
                    gone.for_each(|(_, of)| *of = usize::MAX);
                    known.push(Known::of(new));
                    owned.publish();
                }
            }
            owned.bench.turn_after(pass_ns);
            let now = owned.bench.now();
            for page in owned.issued() {
                let nth = waiting.iter().position(|(of, _)| *of == page).expect("it waits");
                let (_, of) = waiting.remove(nth).expect("it was found");
                let counted = known.get_mut(of).filter(|of| now < of.watched_until_ns);
                let counted = counted.map(|known| {
                    known.in_flight += 1;
                    of
                });
                running.push((page, counted));
            }
            for Known { owner, in_flight, nr_timed, .. } in &known {
                let OwnerActivity { in_flight: found, total, .. } = owner.activity();
                prop_assert_eq!((found, total.count()), (*in_flight, *nr_timed));
            }
        }
        owned.bench.finish();
        prop_assert!(known.iter().all(|known| known.owner.activity().in_flight == 0));
    }
}
