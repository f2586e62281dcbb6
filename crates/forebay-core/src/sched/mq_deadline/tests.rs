//! Tests of `mq_deadline` beside a naive model.

mod naive;
mod passes;

use super::*;
use crate::origin::{Class, Priority};
use alloc::vec::Vec;
use naive::{Bug, Naive};
use proptest::prelude::*;

const DEPTH: u32 = 12;

fn origin(class: Class) -> Origin {
    Origin::NONE.with_priority(Priority::new(class, 4).expect("the level exists"))
}

/// A step of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Operation, class, first block, number of blocks, and whether at the head.
    Insert(Op, Class, u64, u64, bool),
    Next,
    /// The number of the request, counted from the one that has been out for the longest.
    Complete(usize),
    /// The same for a request that is given up.
    GiveUp(usize),
    Sleep(u64),
}

/// The scheduler and the model, which go through one history.
#[derive(Clone)]
struct Pair {
    scheduler: MqDeadline,
    naive: Naive,
    free: Vec<Tag>,
    out: Vec<Tag>,
    now: u64,
    /// How many reads went since the last write, while a write of the same class waited.
    nr_reads: u32,
}

impl Pair {
    fn new(params: MqDeadlineParams, bug: Option<Bug>) -> Pair {
        Pair {
            scheduler: MqDeadline::new(params, DEPTH),
            naive: Naive::new(params, bug),
            free: (0..DEPTH as usize).map(Tag::from_index).collect(),
            out: Vec::new(),
            now: 1000,
            nr_reads: 0,
        }
    }

    /// Makes a step on both. Returns whether they agree.
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Sleep(ns) => self.now += ns,
            Step::Complete(nth) if !self.out.is_empty() => {
                let tag = self.out.remove(nth % self.out.len());
                self.scheduler.completed(tag, self.now, 1);
                self.naive.completed(tag);
                self.free.push(tag);
            }
            Step::GiveUp(nth) if nth < self.out.len() => {
                let tag = self.out[nth];
                if self.scheduler.row(tag).place == Place::Out {
                    self.scheduler.given_up(tag);
                    self.naive.given_up(tag);
                }
            }
            Step::Complete(_) | Step::GiveUp(_) => {}
            Step::Next => return self.next(),
            Step::Insert(op, class, start, len, is_head) => {
                let Some(tag) = self.free.pop() else { return true };
                let since_ns = self.now;
                let rq = Queued { tag, op, origin: origin(class), start, len, since_ns };
                let at = if is_head { Position::Head } else { Position::Tail };
                let new = Queued { tag: Tag::from_index(usize::from(u16::MAX)), ..rq };
                if self.scheduler.neighbours(&new) != self.naive.neighbours(&new) {
                    return false;
                }
                self.scheduler.insert(rq, at, self.now);
                self.naive.insert(rq, at, self.now);
                return is_head || self.merge(rq);
            }
        }
        true
    }

    /// Merges a request that was just inserted with its neighbours, as a context does.
    fn merge(&mut self, mut rq: Queued) -> bool {
        let found = self.scheduler.neighbours(&rq);
        if found != self.naive.neighbours(&rq) {
            return false;
        }
        if let Some(before) = found.before {
            rq = self.absorb(before, rq.tag);
        }
        if let Some(after) = self.scheduler.neighbours(&rq).after {
            self.absorb(rq.tag, after);
        }
        self.scheduler.nr_queued() == self.naive.nr_queued()
    }

    fn absorb(&mut self, into: Tag, tag: Tag) -> Queued {
        let (first, second) = (self.scheduler.row(into).rq, self.scheduler.row(tag).rq);
        assert_eq!(first.start + first.len, second.start);
        let rq = Queued { len: first.len + second.len, ..first };
        self.scheduler.absorbed(into, tag);
        self.naive.absorbed(into, tag);
        self.scheduler.grown(into, rq.start, rq.len);
        self.naive.grown(into, rq.start, rq.len);
        self.free.push(tag);
        rq
    }

    fn next(&mut self) -> bool {
        let tag = self.scheduler.next(self.now);
        if tag != self.naive.next(self.now) {
            return false;
        }
        let Some(tag) = tag else { return true };
        self.out.push(tag);
        let rq = self.scheduler.row(tag).rq;
        let class = class_of(&rq);
        let waits = |direction: Direction| {
            self.scheduler.classes[class].fifo[direction as usize].first().is_some()
        };
        self.nr_reads = match Direction::of(rq.op) {
            Direction::Read if waits(Direction::Write) => self.nr_reads + 1,
            _ => 0,
        };
        true
    }
}

/// Parameters with short times and batches, so that each rule matters in short histories.
fn small_params() -> MqDeadlineParams {
    MqDeadlineParams::default()
        .fifo_batch(2)
        .writes_starved(1)
        .read_expire_ns(50)
        .write_expire_ns(200)
        .prio_aging_expire_ns(400)
}

fn params() -> impl Strategy<Value = MqDeadlineParams> {
    (1..5_u32, 0..3_u32, 0..300_u64, 0..300_u64, any::<bool>(), 0..500_u64).prop_map(
        |(batch, starved, read, write, front, age)| {
            MqDeadlineParams::default()
                .fifo_batch(batch)
                .writes_starved(starved)
                .read_expire_ns(read)
                .write_expire_ns(write)
                .front_merges(front)
                .prio_aging_expire_ns(age)
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![4 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Discard)];
    let class = prop_oneof![
        1 => Just(Class::RealTime),
        3 => Just(Class::BestEffort),
        1 => Just(Class::Idle),
    ];
    let insert = (op, class, 0..20_u64, 1..3_u64, 0..12_u8)
        .prop_map(|(op, class, start, len, head)| Step::Insert(op, class, start, len, head == 0));
    prop_oneof![
        5 => insert,
        4 => Just(Step::Next),
        3 => (0..8_usize).prop_map(Step::Complete),
        1 => (0..8_usize).prop_map(Step::GiveUp),
        2 => (0..120_u64).prop_map(Step::Sleep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_the_model(
        params in params(),
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let mut pair = Pair::new(params, None);
        for (nth, step) in steps.iter().enumerate() {
            prop_assert!(pair.step(*step), "step {nth}: {step:?}");
        }
        while pair.scheduler.nr_queued() > 0 {
            prop_assert!(pair.step(Step::Next) && pair.step(Step::Complete(0)));
        }
        pair.out.clone().into_iter().for_each(|_| _ = pair.step(Step::Complete(0)));
        prop_assert_eq!(pair.free.len(), DEPTH as usize);
    }

    /// The batch and the count of DL2 are common to all classes, so the bound holds within one.
    #[test]
    fn writes_of_one_class_wait_for_a_bounded_number_of_reads(
        params in params(),
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let mut pair = Pair::new(params, None);
        let most = params.fifo_batch * (params.writes_starved + 1);
        for mut step in steps {
            if let Step::Insert(_, class, .., is_head) = &mut step {
                (*class, *is_head) = (Class::BestEffort, false);
            }
            prop_assert!(pair.step(step));
            prop_assert!(pair.nr_reads <= most, "{} reads went, at most {most} may", pair.nr_reads);
        }
    }
}

/// The steps of exhaustive histories.
fn alphabet() -> Vec<Step> {
    let mut steps = Vec::from([Step::Next, Step::Complete(0), Step::Sleep(210)]);
    for op in [Op::Read, Op::Write] {
        for class in [Class::BestEffort, Class::Idle] {
            for start in [4, 8] {
                steps.push(Step::Insert(op, class, start, 4, false));
            }
        }
    }
    steps
}

/// Goes through all histories of `nr` more steps. Returns their number, or `None` if the two
/// differ.
fn all(pair: &Pair, steps: &[Step], nr: usize) -> Option<u64> {
    if nr == 0 {
        return Some(1);
    }
    let after = |step: &Step| {
        let mut pair = pair.clone();
        pair.step(*step).then_some(pair)
    };
    steps.iter().map(|step| all(&after(step)?, steps, nr - 1)).sum()
}

#[test]
fn all_short_histories_agree_with_the_model() {
    let steps = alphabet();
    let nr = all(&Pair::new(small_params().fifo_batch(1), None), &steps, 5);
    assert_eq!(nr, Some(11_u64.pow(5)));
}

/// A generator of histories that needs no crate.
fn random_step(seed: &mut u64) -> Step {
    let mut below = |bound: u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 33) % bound
    };
    match below(7) {
        0..=2 => {
            let op = [Op::Read, Op::Write][below(2) as usize];
            let class = [Class::BestEffort, Class::BestEffort, Class::Idle][below(3) as usize];
            Step::Insert(op, class, below(20), 1 + below(2), below(12) == 0)
        }
        3 | 4 => Step::Next,
        5 => Step::Complete(below(8) as usize),
        _ => Step::Sleep(below(120)),
    }
}

#[test]
fn each_bug_in_the_model_makes_a_difference() {
    for bug in Bug::ALL {
        let mut seed = 1;
        let is_found = (0..2000).any(|_| {
            let mut pair = Pair::new(small_params(), Some(bug));
            (0..100).any(|_| !pair.step(random_step(&mut seed)))
        });
        assert!(is_found, "{bug:?}");
    }
}

#[test]
fn batch_goes_in_the_order_of_addresses_and_the_next_begins_with_the_oldest() {
    let mut pair = Pair::new(MqDeadlineParams::default().fifo_batch(3), None);
    for start in [50, 20, 90, 70, 10] {
        assert!(pair.step(Step::Insert(Op::Read, Class::BestEffort, start, 1, false)));
    }
    let mut starts = Vec::new();
    while pair.scheduler.nr_queued() > 0 {
        assert!(pair.next());
        starts.push(pair.scheduler.row(*pair.out.last().expect("one went")).rq.start);
    }
    // After three, a new batch goes on at the next address; after the highest, with the oldest.
    assert_eq!(starts, [10, 20, 50, 70, 90]);
}

#[test]
fn device_that_is_gone_gets_every_class() {
    let mut pair = Pair::new(MqDeadlineParams::default(), None);
    for class in Class::ALL {
        assert!(pair.step(Step::Insert(Op::Read, class, 5, 1, false)));
    }
    assert!(pair.next());
    assert_eq!(pair.scheduler.next(pair.now), None, "DL4");
    assert!(pair.scheduler.next_any().is_some() && pair.scheduler.next_any().is_some());
    assert_eq!(pair.scheduler.next_any(), None);
}
