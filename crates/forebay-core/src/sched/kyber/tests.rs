//! Tests of `kyber` beside a naive model.

mod flash;
mod naive;

use super::*;
use crate::origin::{Class, Priority};
use alloc::vec::Vec;
use naive::{Bug, Naive};
use proptest::prelude::*;

const DEPTH: u32 = 12;

const MS: u64 = 1_000_000;

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
    /// Many requests of one operation, one after the other, each so long in the scheduler and so
    /// long at the device.
    Load(Op, u64, u64),
}

/// The scheduler and the model, which go through one history.
#[derive(Clone)]
struct Pair {
    scheduler: Kyber,
    naive: Naive,
    free: Vec<Tag>,
    /// With the times of their dispatch.
    out: Vec<(Tag, u64)>,
    now: u64,
}

impl Pair {
    fn new(params: KyberParams, device_depth: u32, bug: Option<Bug>) -> Pair {
        let mut scheduler = Kyber::new(params, DEPTH);
        scheduler.set_depths(device_depth, DEPTH);
        let targets_ns = [params.read_lat_ns, params.write_lat_ns, 5000 * MS];
        Pair {
            scheduler,
            naive: Naive::new(targets_ns, device_depth.into(), bug),
            free: (0..DEPTH as usize).map(Tag::from_index).collect(),
            out: Vec::new(),
            now: 1000,
        }
    }

    /// Makes a step on both. Returns whether they agree.
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Sleep(ns) => {
                self.now += ns;
                self.naive.pass(self.now);
            }
            Step::Complete(nth) if !self.out.is_empty() => {
                let (tag, since_ns) = self.out.remove(nth % self.out.len());
                self.scheduler.completed(tag, self.now, self.now - since_ns);
                self.naive.completed(tag, self.now, self.now - since_ns);
                self.free.push(tag);
                return self.agrees();
            }
            Step::GiveUp(nth) if nth < self.out.len() => {
                let tag = self.out[nth].0;
                if self.scheduler.row(tag).place == Place::Out {
                    self.scheduler.given_up(tag);
                    self.naive.given_up(tag);
                }
            }
            Step::Complete(_) | Step::GiveUp(_) => {}
            Step::Next => return self.next(),
            Step::Load(op, queued_ns, device_ns) => {
                // No merges, and nothing else is queued.
                return (0..520).all(|nth| {
                    let insert = Step::Insert(op, Class::BestEffort, nth % 2 * 50, 1, false);
                    self.step(insert)
                        && self.step(Step::Sleep(queued_ns))
                        && self.step(Step::Next)
                        && self.step(Step::Sleep(device_ns))
                        && self.step(Step::Complete(usize::from(nth % 7 == 0)))
                });
            }
            Step::Insert(op, class, start, len, is_head) => {
                let Some(tag) = self.free.pop() else { return true };
                let origin = Origin::NONE.with_priority(Priority::new(class, 4).expect("a level"));
                let rq = Queued { tag, op, origin, start, len, since_ns: self.now };
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
        if tag != self.naive.next() {
            return false;
        }
        self.out.extend(tag.map(|tag| (tag, self.now)));
        self.agrees()
    }

    /// Returns whether the depths are equal, after a call that tunes them.
    fn agrees(&self) -> bool {
        let depths = Domain::ALL.map(|domain| u64::from(self.scheduler.tuning.depth(domain)));
        depths == self.naive.depths
    }
}

/// Targets of which the sleeps of the histories are quarters and multiples.
fn params() -> KyberParams {
    KyberParams::default().read_lat_ns(20 * MS).write_lat_ns(80 * MS)
}

/// A generator of histories.
struct Steps(u64);

impl Steps {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn next(&mut self, loads: bool) -> Step {
        let ops = [Op::Read, Op::Read, Op::Write, Op::Write, Op::Discard, Op::WriteZeroes];
        match self.below(40) {
            0 if loads => {
                let op = [Op::Read, Op::Write][self.below(2) as usize];
                Step::Load(op, self.below(3) * 60 * MS, self.below(5) * 5 * MS)
            }
            0..=17 => {
                let op = ops[self.below(6) as usize];
                let class = [Class::BestEffort, Class::BestEffort, Class::Idle];
                let class = class[self.below(3) as usize];
                let is_head = self.below(12) == 0;
                Step::Insert(op, class, self.below(24), 1 + self.below(2), is_head)
            }
            18..=29 => Step::Next,
            30..=35 => Step::Complete(self.below(8) as usize),
            36 => Step::GiveUp(self.below(8) as usize),
            _ => {
                let sleeps = [1, 5, 10, 15, 20, 40, 60, 100, 300];
                Step::Sleep(sleeps[self.below(9) as usize] * MS)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_the_model(
        seed in any::<u64>(),
        targets in (0..50_u64, 0..50_u64),
        device_depth in 1..40_u32,
        nr_steps in 0..300_usize,
    ) {
        let params = params().read_lat_ns(targets.0 * MS).write_lat_ns(targets.1 * MS);
        let mut pair = Pair::new(params, device_depth, None);
        let mut steps = Steps(seed);
        for nth in 0..nr_steps {
            let step = steps.next(false);
            prop_assert!(pair.step(step), "step {nth}: {step:?}");
        }
        // Every request leaves the scheduler, if the device completes what it has.
        for _ in 0..4 * DEPTH {
            prop_assert!(pair.step(Step::Next) && pair.step(Step::Complete(0)));
        }
        prop_assert_eq!(pair.free.len(), DEPTH as usize);
    }
}

/// The steps of exhaustive histories.
fn alphabet() -> Vec<Step> {
    let mut steps =
        Vec::from([Step::Next, Step::Complete(0), Step::Sleep(1100 * MS), Step::GiveUp(0)]);
    for op in [Op::Read, Op::Write, Op::Discard] {
        for start in [4, 8] {
            steps.push(Step::Insert(op, Class::BestEffort, start, 4, false));
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
    let nr = all(&Pair::new(params(), 2, None), &alphabet(), 5);
    assert_eq!(nr, Some(10_u64.pow(5)));
}

#[test]
fn histories_with_much_load_agree_with_the_model() {
    let mut steps = Steps(7);
    for device_depth in [2, 4, 8, 300] {
        let mut pair = Pair::new(params(), device_depth, None);
        assert!((0..1500).all(|_| pair.step(steps.next(true))));
    }
}

#[test]
fn each_bug_in_the_model_makes_a_difference() {
    for bug in Bug::ALL {
        let mut steps = Steps(1);
        let is_found = (0..200).any(|nth| {
            let mut pair = Pair::new(params(), [4, 8, 24][nth % 3], Some(bug));
            (0..200).any(|_| !pair.step(steps.next(true)))
        });
        assert!(is_found, "{bug:?}");
    }
}

/// Inserts requests that do not merge, takes all that may go, and returns their operations.
fn order(device_depth: u32, ops: &[Op]) -> Vec<Op> {
    let mut pair = Pair::new(KyberParams::default(), device_depth, None);
    for (nth, op) in ops.iter().enumerate() {
        let start = 10 * nth as u64;
        assert!(pair.step(Step::Insert(*op, Class::BestEffort, start, 1, false)));
    }
    while pair.scheduler.nr_queued() > 0 {
        let nr_out = pair.out.len();
        assert!(pair.step(Step::Next));
        if pair.out.len() == nr_out {
            break;
        }
    }
    pair.out.iter().map(|(tag, _)| pair.scheduler.row(*tag).rq.op).collect()
}

#[test]
fn writes_leave_half_of_a_small_device_to_reads() {
    let (read, write, discard) = (Op::Read, Op::Write, Op::Discard);
    assert_eq!(order(8, &[write; 7]), [write; 4]);
    assert_eq!(order(8, &[read; 7]), [read; 7]);
    let mixed = [write, discard, discard, discard, write, read, Op::WriteZeroes];
    let expected = [read, write, write, discard, Op::WriteZeroes, discard];
    assert_eq!(order(8, &mixed), expected, "the third discard finds no room");
}

#[test]
fn domains_take_turns_in_batches() {
    let (read, write, discard) = (Op::Read, Op::Write, Op::Discard);
    let ops = [[discard; 2], [write; 2], [read; 2], [write; 2], [write; 2], [write; 2]];
    // A batch of 8 writes ends with the first turn of discards.
    let expected = [[read; 2], [write; 2], [write; 2], [write; 2], [write; 2], [discard; 2]];
    assert_eq!(order(256, ops.as_flattened()), expected.as_flattened());
}

#[test]
fn requests_of_all_domains_leave_when_the_device_is_gone() {
    let mut pair = Pair::new(KyberParams::default(), 1, None);
    for (nth, op) in [Op::Write, Op::Write, Op::Discard, Op::Read].into_iter().enumerate() {
        assert!(pair.step(Step::Insert(op, Class::BestEffort, 10 * nth as u64, 1, false)));
    }
    assert!((0..3).all(|_| pair.step(Step::Next)));
    assert_eq!(pair.scheduler.next(pair.now), None, "the depth of writes is 1");
    assert!(pair.scheduler.next_any().is_some());
    assert_eq!(pair.scheduler.next_any(), None);
}

#[test]
fn depths_that_were_tuned_stay_when_the_number_of_tags_changes() {
    let mut pair = Pair::new(params(), 256, None);
    assert!(pair.step(Step::Load(Op::Read, 0, 25 * MS)));
    assert!(pair.step(Step::Sleep(200 * MS)) && pair.step(Step::Load(Op::Write, 0, 10 * MS)));
    assert!(pair.step(Step::Sleep(200 * MS)) && pair.step(Step::Load(Op::Read, 0, 25 * MS)));
    let depth = pair.scheduler.tuning.depth(Domain::Write);
    pair.scheduler.set_depths(256, 3);
    assert_eq!(pair.scheduler.tuning.depth(Domain::Write), depth);
    assert!(depth < 128, "{depth}");
}
