//! Tests of a hardware context with owners: limits, weights, and the rules that hold beside them.

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, CostModel, Issue, Limits, Op, Origin, Owner, Owners, Policy,
    QueueLimits, Rate, SchedulerPolicy, WeightBy,
};
use proptest::prelude::*;
use std::sync::Arc;

pub(crate) const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;
pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn policy() -> Policy {
    Policy::default().queue_depth(8).nr_requests(Some(8))
}

/// Returns a limit of this many I/Os per second, without a burst.
fn iops(per_s: u64) -> Limits {
    let mut limits = Limits::default();
    limits.both.iops = Rate { per_s, burst: Some(0) };
    limits
}

/// A bench whose disk has owners.
pub(crate) struct Owned {
    pub(crate) bench: Bench,
    pub(crate) owners: Owners,
}

impl Owned {
    /// Creates one with owners that have these weights and limits.
    pub(crate) fn new(policy: Policy, owners: &[(u32, Limits)]) -> Owned {
        // As long as the histories of these tests need.
        let list = Owners::with_goal_windows(10 * MS);
        let mut owned = Owned { bench: Bench::new(limits(), policy), owners: list };
        for (nth, (weight, limits)) in owners.iter().enumerate() {
            let owner = owned.owners.add(&nth.to_string(), None, 0).expect("a new name");
            owner.set_weight(*weight);
            owner.set_limits(limits, 0).expect("no other change");
        }
        owned.publish();
        owned
    }

    /// Passes the owners to the context.
    pub(crate) fn publish(&mut self) {
        let model = CostModel::default();
        self.bench.queue.hctx.set_owners(self.owners.clone(), WeightBy::Bytes, model);
    }

    pub(crate) fn owner(&self, number: u32) -> Arc<Owner> {
        Arc::clone(self.owners.numbered(number).expect("an owner"))
    }

    /// Queues a bio of an owner. A turn is due.
    pub(crate) fn queue(
        &mut self,
        owner: u32,
        op: Op,
        flags: BioFlags,
        (page, nr): (u64, u64),
        data: u64,
    ) {
        let bio = self.bench.bio(op, page * K4, nr * K4, data);
        let origin = Origin::NONE.with_owner(owner);
        self.bench.queue_bio(Bio { flags, origin, ..bio }, 0);
    }

    /// Queues reads of an owner of single pages, far from each other.
    pub(crate) fn reads(&mut self, owner: u32, pages: impl IntoIterator<Item = u64>) {
        pages.into_iter().for_each(|page| self.queue(owner, Op::Read, NONE, (2 * page, 1), page));
        self.bench.turn();
    }

    /// Returns the user data of reads issued since the last call.
    pub(crate) fn issued(&mut self) -> Vec<u64> {
        self.bench.first_pages().into_iter().map(|page| page / 2).collect()
    }
}

#[test]
fn limit_holds_reads_back_until_its_deadline() {
    let mut owned = Owned::new(policy(), &[(100, iops(10))]);
    owned.reads(1, 0..3);
    assert_eq!(owned.issued(), [0]);
    let turned = owned.bench.turn();
    let at = turned.deadline().expect("a limit has a deadline");
    assert!((100 * MS..101 * MS).contains(&at), "{at}");
    assert!(turned.work_left() && !turned.is_drained() && turned.nr_in_flight() == 1);
    owned.bench.finish_running();
    let turned = owned.bench.turn_at(at - 20);
    assert_eq!((owned.issued(), turned.deadline()), (vec![], Some(at)));
    assert!(turned.is_drained() && !turned.is_stuck(), "no event but the deadline moves it on");
    owned.bench.turn_at(at);
    assert_eq!(owned.issued(), [1]);
    let turned = owned.bench.turn_at(2 * at);
    assert_eq!((owned.issued(), turned.deadline()), (vec![2], None));
    owned.bench.finish();
    let stats = owned.owner(1).stats();
    assert_eq!((stats.ios, stats.bytes, stats.limit_waits), (3, 3 * K4, 2));
    assert!(stats.limit_wait_ns >= 300 * MS - 1000, "{stats:?}");
    let stats = owned.bench.queue.stats();
    assert_eq!((stats.limit_waits, stats.tag_waits), (2, 0));
    assert_eq!(stats.limit_wait_ns, owned.owner(1).stats().limit_wait_ns);
    assert!(stats.stages.plug.max() < MS, "a wait for a limit is no time in the plug");
}

#[test]
fn limit_of_an_owner_holds_up_no_other_io() {
    let mut owned = Owned::new(policy(), &[(100, iops(1)), (100, Limits::default())]);
    owned.reads(1, [0, 1]);
    owned.reads(2, [10, 11]);
    owned.reads(0, [20, 21]);
    assert_eq!(owned.issued(), [0, 10, 11, 20, 21]);
}

#[test]
fn merged_request_is_charged_each_of_its_ios() {
    let mut owned = Owned::new(policy(), &[(100, iops(1000))]);
    for page in 0..4 {
        let bio = owned.bench.bio(Op::Read, page * K4, K4, page);
        owned.bench.queue_bio(Bio { origin: Origin::NONE.with_owner(1), ..bio }, 1);
    }
    owned.bench.unplug();
    assert_eq!(owned.bench.toy.seen.len(), 1, "one request of four");
    owned.reads(1, [9]);
    let at = owned.bench.turn().deadline().expect("a limit has a deadline");
    assert!((4 * MS..4 * MS + 100).contains(&at), "{at}");
}

#[test]
fn weights_divide_the_tags_of_owners_that_wait() {
    let free = Limits::default();
    let mut owned = Owned::new(policy().nr_requests(Some(1)), &[(100, free), (300, free)]);
    owned.reads(1, 0..8);
    owned.reads(2, 100..108);
    let mut order = owned.issued();
    for _ in 0..15 {
        owned.bench.toy.complete_oldest();
        owned.bench.turn();
        order.extend(owned.issued());
    }
    // The first read of each has its place before they compete.
    let nr_light = order[2..10].iter().filter(|page| **page < 100).count();
    assert_eq!(nr_light, 2, "{order:?}");
    owned.bench.finish();
    let waits = [1, 2].map(|number| owned.owner(number).stats().tag_waits);
    assert_eq!(waits, [7, 8], "the first read found a tag");
}

#[test]
fn waits_in_the_scheduler_count_for_the_owner() {
    let policy = policy().scheduler(SchedulerPolicy::MqDeadline).device_depth(Some(1));
    let free = Limits::default();
    let mut owned = Owned::new(policy, &[(100, free), (100, free)]);
    let start = owned.bench.now();
    owned.reads(1, [0, 9]);
    owned.bench.turn();
    owned.bench.toy.complete_oldest();
    owned.bench.turn_after(MS);
    let [first, second] = [1, 2].map(|number| owned.owner(number).stats());
    let waited_ns = owned.bench.now() - start;
    assert_eq!((first.scheduler_waits, first.tag_waits), (1, 0), "the first went through");
    assert!((MS..=waited_ns).contains(&first.scheduler_wait_ns), "{}", first.scheduler_wait_ns);
    assert_eq!((second.scheduler_waits, second.scheduler_wait_ns), (0, 0));
}

#[test]
fn weights_decide_which_requests_enter_the_scheduler() {
    let free = Limits::default();
    let policy = policy().scheduler(SchedulerPolicy::MqDeadline);
    let policy = policy.nr_requests(Some(2)).device_depth(Some(1));
    let mut owned = Owned::new(policy, &[(100, free), (300, free)]);
    owned.reads(1, 0..12);
    owned.reads(2, 100..112);
    let mut order = owned.issued();
    for _ in 0..19 {
        owned.bench.toy.complete_oldest();
        owned.bench.turn();
        order.extend(owned.issued());
    }
    // The scheduler sorts the reads that have tags. So the first ones of a batch differ.
    let last = order.iter().position(|page| *page == 111).expect("it was issued");
    let nr_light = order[..last].iter().filter(|page| **page < 100).count();
    assert!((4..=7).contains(&nr_light), "{order:?}");
    owned.bench.finish();
}

#[test]
fn weights_hold_among_owners_below_one_limit() {
    let free = (100, Limits::default());
    let mut owned = Owned::new(policy(), &[(100, iops(1000)), free, free]);
    let parent = owned.owner(1).id();
    let children = ["light", "heavy"]
        .map(|name| owned.owners.add(name, Some(parent), 0).expect("a new name").id().number());
    owned.owner(children[1]).set_weight(400);
    owned.publish();
    owned.reads(children[0], 0..60);
    owned.reads(children[1], 100..160);
    let mut order = owned.issued();
    while order.len() < 50 {
        owned.bench.finish_running();
        owned.bench.turn_after(MS);
        order.extend(owned.issued());
    }
    let nr_light = order.iter().filter(|page| **page < 100).count();
    assert!((9..=12).contains(&nr_light), "{nr_light}: {order:?}");
}

#[test]
fn measure_of_weights_may_change_while_io_waits() {
    let free = Limits::default();
    let mut owned = Owned::new(policy().nr_requests(Some(1)), &[(100, free), (100, free)]);
    // Reads of 4 pages beside single pages.
    for nth in 0..40 {
        owned.queue(1, Op::Read, NONE, (10 * nth, 4), nth);
        owned.queue(2, Op::Read, NONE, (500 + 2 * nth, 1), 100 + nth);
    }
    owned.bench.turn();
    let nr_of = |owned: &mut Owned, nr: usize| {
        let mut order = Vec::new();
        for _ in 0..nr {
            owned.bench.toy.complete_oldest();
            owned.bench.turn();
            order.extend(owned.bench.first_pages());
        }
        order.iter().filter(|page| **page < 500).count()
    };
    let by_bytes = nr_of(&mut owned, 20);
    assert!((3..=5).contains(&by_bytes), "{by_bytes} of 20");
    let model = CostModel::default();
    owned.bench.queue.hctx.set_owners(owned.owners.clone(), WeightBy::Ios, model);
    let by_ios = nr_of(&mut owned, 20);
    assert!((9..=11).contains(&by_ios), "{by_ios} of 20");
    owned.bench.finish();
}

#[test]
fn limit_whose_time_has_passed_is_no_deadline_while_no_tag_is_free() {
    let mut owned = Owned::new(policy().nr_requests(Some(1)), &[(100, iops(10))]);
    owned.reads(1, 0..2);
    owned.bench.finish_running();
    owned.reads(0, 10..12);
    assert_eq!(owned.issued(), [0, 10]);
    assert_eq!(owned.bench.turn_at(300 * MS).deadline(), None, "a completion comes first");
    owned.bench.toy.complete_oldest();
    owned.bench.turn();
    owned.bench.finish_running();
    assert_eq!(owned.issued(), [11, 1]);
}

#[test]
fn freeze_does_not_wait_for_requests_that_a_limit_holds_back() {
    let mut owned = Owned::new(policy(), &[(100, iops(10))]);
    owned.reads(1, 0..2);
    owned.bench.queue.gates.enter = false;
    owned.bench.finish_running();
    let turned = owned.bench.turn_at(300 * MS);
    assert!(turned.is_drained() && turned.deadline().is_none());
    assert_eq!(owned.issued(), [0], "none is let go while the disk is frozen");
    owned.reads(1, [2]);
    owned.bench.queue.gates.enter = true;
    owned.bench.turn();
    assert_eq!(owned.issued(), [1], "the older one goes first");
}

#[test]
fn no_limit_holds_io_back_from_a_device_that_is_gone() {
    let mut owned = Owned::new(policy(), &[(100, iops(1))]);
    owned.reads(1, 0..4);
    owned.bench.complete(0, Err(BlockStatus::Offline));
    let ends = owned.bench.ends();
    assert!(ends.iter().map(|end| end.0).eq(0..4), "{ends:?}");
    assert!(ends.iter().all(|end| end.1 == Err(BlockStatus::Offline)), "{ends:?}");
    owned.queue(1, Op::Read, BioFlags::NOWAIT, (0, 1), 9);
    owned.bench.turn();
    assert_eq!(owned.bench.ends(), [(9, Err(BlockStatus::Offline))]);
}

#[test]
fn nowait_io_ends_at_once_if_a_limit_refuses_it() {
    let mut owned = Owned::new(policy(), &[(100, iops(10))]);
    for page in [0, 1] {
        owned.queue(1, Op::Read, BioFlags::NOWAIT, (2 * page, 1), page);
        owned.bench.turn();
    }
    assert_eq!(owned.issued(), [0]);
    assert_eq!(owned.bench.ends(), [(1, Err(BlockStatus::Again))]);
    let stats = owned.owner(1).stats();
    assert_eq!((stats.ios, stats.bytes), (1, K4), "the first one has started");
    owned.bench.finish();
}

#[test]
fn nowait_io_that_is_not_issued_is_refunded() {
    let mut owned = Owned::new(policy(), &[(100, iops(10))]);
    owned.bench.toy.answers.push_back(Issue::Busy);
    owned.queue(1, Op::Read, BioFlags::NOWAIT, (0, 1), 0);
    owned.bench.turn();
    assert_eq!(owned.bench.ends(), [(0, Err(BlockStatus::Again))]);
    assert_eq!(owned.owner(1).stats().ios, 0, "it has not started");
    owned.reads(1, [1]);
    assert_eq!(owned.issued(), [1], "the bucket is full again");
    owned.bench.finish();
}

#[test]
fn flush_passes_the_writes_that_a_limit_holds_back() {
    let mut owned = Owned::new(policy(), &[(100, iops(10))]);
    owned.bench = Bench::new(limits().volatile_cache(true), policy());
    owned.publish();
    owned.queue(1, Op::Write, NONE, (0, 1), 0);
    owned.bench.turn();
    owned.bench.finish_running();
    owned.queue(1, Op::Write, BioFlags::PREFLUSH, (1, 1), 1);
    owned.queue(1, Op::Flush, NONE, (0, 0), 2);
    owned.bench.turn();
    let ops: Vec<Op> = owned.bench.toy.issued().iter().map(|issued| issued.0).collect();
    assert_eq!(ops, [Op::Write, Op::Flush], "the other write has not begun its flush");
    owned.bench.finish_running();
    owned.bench.turn_at(200 * MS);
    owned.bench.finish();
    assert_eq!(owned.bench.ends().len(), 3);
}

#[test]
fn reserved_io_waits_for_no_owner() {
    let policy = policy().nr_requests(Some(2)).nr_reserved(1);
    let mut owned = Owned::new(policy, &[(100, iops(1))]);
    owned.reads(0, [0, 1, 2]);
    owned.queue(1, Op::Read, BioFlags::RESERVED, (18, 1), 9);
    owned.bench.turn();
    assert_eq!(owned.issued(), [0, 9]);
    owned.bench.finish();
}

#[test]
fn io_of_a_removed_owner_goes_on_without_limits() {
    let mut owned = Owned::new(policy(), &[(100, iops(1)), (100, iops(1))]);
    owned.reads(1, 0..3);
    owned.reads(2, 10..12);
    let id = owned.owner(1).id();
    owned.owners.remove(id).expect("it exists");
    owned.publish();
    owned.bench.turn();
    assert_eq!(owned.issued(), [0, 10, 1, 2]);
    // The number is used again, by an owner with a limit of its own.
    let owner = owned.owners.add("new", None, 0).expect("a new name");
    assert_eq!(owner.id(), id);
    owner.set_limits(&iops(1), 0).expect("no other change");
    owned.publish();
    owned.reads(1, 20..22);
    assert_eq!(owned.issued(), [20]);
    owned.owner(1).set_limits(&Limits::default(), 0).expect("no other change");
    owned.owner(2).set_limits(&Limits::default(), 0).expect("no other change");
    owned.publish();
    owned.bench.turn();
    assert_eq!(owned.issued(), [11, 21], "limits that were lifted are tried at once");
    owned.bench.finish();
}

#[test]
fn io_of_a_child_counts_against_its_parent() {
    let mut owned = Owned::new(policy(), &[(100, iops(10))]);
    let parent = owned.owner(1).id();
    for name in ["a", "b"] {
        owned.owners.add(name, Some(parent), 0).expect("a new name");
    }
    owned.publish();
    owned.reads(2, [0]);
    owned.reads(3, [1]);
    owned.reads(1, [2]);
    assert_eq!(owned.issued(), [0]);
    owned.bench.turn_at(401 * MS);
    assert_eq!(owned.issued().len(), 1, "no burst is saved");
    owned.bench.turn_at(502 * MS);
    assert_eq!(owned.issued().len(), 1);
    owned.bench.finish();
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    /// Queues: the owner, the operation, the page, the number of pages, a flag.
    Queue(u32, u8, u64, u64, u8),
    Unplug,
    /// Completes one of the running requests: in full, or not at all.
    Complete(u8, bool),
    Busy,
    /// Lets so many milliseconds pass.
    Pass(u64),
    /// Opens or closes the gate of frozen contexts.
    Enter(bool),
    /// Sets the weight of an owner, its rate of I/Os per second, and its latency goal in
    /// microseconds.
    Set(u32, u32, u64, u64),
    /// Removes an owner, or adds one.
    Replace(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4_u32, 0..4_u8, 0..64_u64, 1..6_u64, 0..16_u8)
            .prop_map(|(owner, op, page, nr, flag)| Step::Queue(owner, op, page, nr, flag)),
        3 => Just(Step::Unplug),
        5 => (any::<u8>(), prop::bool::weighted(0.9)).prop_map(|(nth, ok)| Step::Complete(nth, ok)),
        1 => Just(Step::Busy),
        3 => (1..50_u64).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Enter),
        1 => (
            1..4_u32,
            1..1000_u32,
            prop_oneof![Just(0), 1..2000_u64],
            prop_oneof![Just(0), 1..30_000_u64],
        )
            .prop_map(|(owner, weight, rate, goal)| Step::Set(owner, weight, rate, goal)),
        1 => (1..4_u32).prop_map(Step::Replace),
    ]
}

fn random_limits() -> QueueLimits {
    let limits = limits().max_sectors(16).volatile_cache(true);
    limits.discard_granularity(4096).max_discard_sectors(1 << 20)
}

impl Owned {
    /// Removes an owner, or adds one in its place.
    fn replace(&mut self, number: u32) {
        match self.owners.numbered(number).map(|owner| owner.id()) {
            Some(id) => _ = self.owners.remove(id),
            None => {
                let root = self.owners.iter().next().map(|owner| owner.id());
                _ = self.owners.add(&format!("new {number}"), root, self.bench_now());
            }
        }
        self.publish();
    }

    fn bench_now(&self) -> u64 {
        // Limits are set as of the start. Each bucket then has had time to fill.
        0
    }

    fn set(&mut self, number: u32, weight: u32, rate: u64, latency_target_us: u64) {
        if let Some(owner) = self.owners.numbered(number) {
            owner.set_weight(weight);
            let mut limits = iops(rate);
            limits.latency_target_us = latency_target_us;
            owner.set_limits(&limits, self.bench_now()).expect("no other change");
        }
        self.publish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Each bio ends once, whatever happens to its owner, and then no owner counts it in flight;
    /// requests that wait have a deadline or a request at the device; and the invariants hold after
    /// each step (`Bench`).
    #[test]
    fn random_histories_of_owners_end_every_bio_once(
        steps in proptest::collection::vec(step(), 1..80),
        nr_requests in 1..5_u32,
        has_scheduler in any::<bool>(),
        nr_reserved in 0..2_u32,
        async_depth in 1..4_u32,
        first_goal in prop_oneof![Just(0), Just(1_u64), Just(5000)],
    ) {
        let scheduler = match has_scheduler {
            true => SchedulerPolicy::MqDeadline,
            false => SchedulerPolicy::None,
        };
        let policy = policy().nr_requests(Some(nr_requests)).scheduler(scheduler);
        let policy = policy.device_depth(has_scheduler.then_some(1)).async_depth(async_depth);
        let policy = policy.nr_reserved(nr_reserved.min(nr_requests - 1));
        let mut limits = iops(50);
        limits.latency_target_us = first_goal;
        let mut owned = Owned::new(policy, &[(100, limits), (300, Limits::default())]);
        owned.bench = Bench::new(random_limits(), policy);
        owned.publish();
        let mut nr_bios = 0;
        let mut watched: Vec<Arc<Owner>> = Vec::new();
        for step in steps {
            // Owners are watched after the first bio, so that some I/O starts without an observer.
            for owner in owned.owners.iter().filter(|_| nr_bios > 0) {
                owner.watch(u64::MAX);
                if !watched.iter().any(|it| Arc::ptr_eq(it, owner)) {
                    watched.push(Arc::clone(owner));
                }
            }
            let bench = &mut owned.bench;
            match step {
                Step::Queue(owner, op, page, nr, flag) => {
                    let op = [Op::Read, Op::Write, Op::Discard, Op::Flush][usize::from(op)];
                    let range = if op == Op::Flush { (0, 0) } else { (page, nr) };
                    let flags = match flag {
                        0 if op == Op::Write => BioFlags::FUA,
                        1 if op == Op::Write => BioFlags::PREFLUSH,
                        2 => BioFlags::NOMERGE,
                        3 => BioFlags::BACKGROUND,
                        4 => BioFlags::RESERVED,
                        5 => BioFlags::NOWAIT,
                        _ => NONE,
                    };
                    let bio = bench.bio(op, range.0 * K4, range.1 * K4, nr_bios);
                    let origin = Origin::NONE.with_owner(owner);
                    bench.queue_bio(Bio { flags, origin, ..bio }, 1);
                    nr_bios += 1;
                }
                Step::Unplug => bench.unplug(),
                Step::Busy => bench.toy.answers.push_back(Issue::Busy),
                Step::Complete(nth, is_ok) if !bench.toy.running.is_empty() => {
                    let nth = usize::from(nth) % bench.toy.running.len();
                    let len = bench.toy.seen[bench.toy.running[nth]].len;
                    bench.complete(nth, if is_ok { Ok(len) } else { Err(BlockStatus::Medium) });
                }
                Step::Complete(..) => {}
                Step::Pass(ms) => _ = bench.turn_after(ms * MS),
                Step::Enter(is_open) => bench.queue.gates.enter = is_open,
                Step::Set(owner, weight, rate, goal) => owned.set(owner, weight, rate, goal),
                Step::Replace(owner) => owned.replace(owner),
            }
            owned.bench.toy.answers.truncate(2);
            let bench = &mut owned.bench;
            let turned = bench.turn();
            if turned.nr_in_flight() == 0 && turned.work_left() && bench.queue.gates.enter {
                prop_assert!(turned.is_stuck() || turned.deadline().is_some(), "{turned:?}");
            }
        }
        owned.bench.toy.answers.clear();
        owned.bench.queue.gates.enter = true;
        owned.bench.unplug();
        for _ in 0..10_000 {
            owned.bench.finish_running();
            let turned = owned.bench.turn();
            match turned.deadline() {
                Some(at) => _ = owned.bench.turn_at(at.max(1000)),
                None if turned.is_idle() => break,
                None => {}
            }
        }
        owned.bench.finish();
        let mut ends = owned.bench.ends();
        ends.sort_unstable_by_key(|end| end.0);
        prop_assert!(ends.iter().map(|end| end.0).eq(0..nr_bios), "{ends:?}");
        let in_flight: Vec<_> = watched.iter().map(|it| it.activity().in_flight).collect();
        prop_assert!(in_flight.iter().all(|nr| *nr == 0), "{in_flight:?}");
    }
}
