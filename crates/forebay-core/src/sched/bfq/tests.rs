//! Tests of `bfq` beside a naive model.

mod naive;

use super::*;
use crate::origin::{Class, Priority};
use crate::owner::OwnerId;
use alloc::format;
use naive::{Bug, Naive};
use proptest::prelude::*;

const DEPTH: u32 = 12;

const MS: u64 = 1_000_000;

/// The bytes of a block. All weights of the tests divide them, so the tags of the model are exact.
const BLOCK: u64 = 102_400;

/// A step of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Operation, class, nth owner or 0, first block, number of blocks, and whether at the head.
    Insert(Op, Class, usize, u64, u64, bool),
    Next,
    /// The device is gone.
    NextAny,
    /// The number of the request, counted from the one that has been out for the longest.
    Complete(usize),
    /// The same for a request that is given up.
    GiveUp(usize),
    Sleep(u64),
    /// The nth owner, and its new weight.
    Weight(usize, u32),
    /// The nth owner is removed, and another is added, which often gets its number.
    Replace(usize),
}

/// The scheduler and the model, which go through one history.
#[derive(Clone)]
struct Pair {
    scheduler: Bfq,
    naive: Naive,
    owners: Owners,
    ids: Vec<OwnerId>,
    free: Vec<Tag>,
    out: Vec<Tag>,
    now: u64,
}

fn rotational() -> QueueLimits {
    QueueLimits::default().rotational(true)
}

impl Pair {
    /// Creates both with two owners of the usual weight.
    fn new(params: BfqParams, bug: Option<Bug>) -> Pair {
        let mut pair = Pair {
            scheduler: Bfq::new(params, &rotational(), DEPTH),
            naive: Naive::new(params, DEPTH as usize, bug),
            owners: Owners::new(),
            ids: Vec::new(),
            free: (0..DEPTH as usize).map(Tag::from_index).collect(),
            out: Vec::new(),
            now: 1000,
        };
        pair.add_owner();
        pair.add_owner();
        pair
    }

    fn add_owner(&mut self) {
        let name = format!("{}", self.owners.generation());
        let id = self.owners.add(&name, None, 0).expect("the name is new").id();
        self.ids.push(id);
        self.naive.set_weight(id.number(), 100);
        self.scheduler.set_owners(&self.owners);
    }

    fn step(&mut self, step: Step) -> bool {
        let agree = self.make(step);
        agree
            && self.scheduler.nr_queued() == self.naive.nr_queued()
            && self.scheduler.next_at_ns() == self.naive.next_at_ns()
    }

    /// Makes a step on both. Returns whether they agree.
    fn make(&mut self, step: Step) -> bool {
        match step {
            Step::Sleep(ns) => self.now += ns,
            Step::Complete(nth) if !self.out.is_empty() => {
                let tag = self.out.remove(nth % self.out.len());
                self.scheduler.completed(tag, self.now, 1);
                self.naive.completed(tag, self.now);
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
            Step::Next => {
                let tag = self.scheduler.next(self.now);
                self.out.extend(tag);
                return tag == self.naive.next(self.now);
            }
            Step::NextAny => {
                if let Some(tag) = self.scheduler.next_any() {
                    self.naive.take_any(tag);
                    self.out.push(tag);
                }
            }
            Step::Weight(nth, weight) => {
                let id = self.ids[nth % self.ids.len()];
                self.owners.get(id).expect("it exists").set_weight(weight);
                self.naive.set_weight(id.number(), weight.into());
                self.scheduler.set_owners(&self.owners);
            }
            Step::Replace(nth) => {
                let id = self.ids.remove(nth % self.ids.len());
                self.owners.remove(id).expect("it has no children");
                self.naive.remove_owner(id.number());
                if nth % 2 == 0 {
                    self.scheduler.set_owners(&self.owners);
                }
                self.add_owner();
            }
            Step::Insert(op, class, nth, start, len, is_head) => {
                let Some(tag) = self.free.pop() else { return true };
                let priority = Priority::new(class, 4).expect("a level");
                let owner = nth.checked_sub(1).map_or(0, |nth| self.ids[nth].number());
                let origin = Origin::NONE.with_priority(priority).with_owner(owner);
                let (start, len) = (start * BLOCK, len * BLOCK);
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
        true
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
}

/// Parameters with short times and small budgets, so that each rule matters in short histories.
fn small_params() -> BfqParams {
    BfqParams::default()
        .max_budget(600)
        .timeout_sync_ns(40 * MS)
        .fifo_expire_sync_ns(20 * MS)
        .fifo_expire_async_ns(50 * MS)
}

/// A generator of histories.
struct Steps(u64);

impl Steps {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn next(&mut self) -> Step {
        let ops = [Op::Read, Op::Read, Op::Read, Op::Write, Op::Write, Op::Discard];
        let be = Class::BestEffort;
        let classes = [be, be, be, be, be, be, Class::RealTime, Class::Idle];
        match self.below(32) {
            0..=12 => {
                let op = ops[self.below(6) as usize];
                let class = classes[self.below(8) as usize];
                let owner = self.below(3) as usize;
                let is_head = self.below(16) == 0;
                let start = self.below([12, 60][owner % 2]);
                Step::Insert(op, class, owner, start, 1 + self.below(2), is_head)
            }
            13..=20 => Step::Next,
            21..=26 => Step::Complete(self.below(4) as usize),
            27 => match self.below(6) {
                0 | 1 => {
                    let weights = [25, 50, 100, 100, 200, 400];
                    Step::Weight(self.below(2) as usize, weights[self.below(6) as usize])
                }
                2 => Step::Replace(self.below(4) as usize),
                3 => Step::GiveUp(self.below(4) as usize),
                4 => Step::NextAny,
                _ => Step::Sleep(210 * MS),
            },
            _ => Step::Sleep([1, 2, 4, 8, 20][self.below(5) as usize] * MS),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_the_model(
        seed in any::<u64>(),
        budget in 1..20_u32,
        times in (0..12_u64, 1..80_u64, 0..80_u64, 0..80_u64),
        nr_steps in 0..300_usize,
    ) {
        let (idle, timeout, sync, async_) = times;
        let params = BfqParams::default()
            .max_budget(200 * budget)
            .slice_idle_ns(idle * MS)
            .timeout_sync_ns(timeout * MS)
            .fifo_expire_sync_ns(sync * MS)
            .fifo_expire_async_ns(async_ * MS);
        let mut pair = Pair::new(params, None);
        let mut steps = Steps(seed);
        for nth in 0..nr_steps {
            let step = steps.next();
            prop_assert!(pair.step(step), "step {nth}: {step:?}");
        }
        // Every request leaves the scheduler, if the device completes what it has and time passes.
        for _ in 0..4 * DEPTH {
            prop_assert!(pair.step(Step::Next) && pair.step(Step::Complete(0)));
            prop_assert!(pair.step(Step::Sleep(13 * MS)));
        }
        prop_assert_eq!(pair.free.len(), DEPTH as usize);
    }
}

/// The steps of exhaustive histories.
fn alphabet() -> Vec<Step> {
    let mut steps =
        Vec::from([Step::Next, Step::Complete(0), Step::Sleep(8 * MS), Step::Sleep(60 * MS)]);
    for owner in [1, 2] {
        for (op, start) in [(Op::Read, 4), (Op::Read, 8), (Op::Write, 4)] {
            steps.push(Step::Insert(op, Class::BestEffort, owner, start, 4, false));
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
    let mut pair = Pair::new(small_params(), None);
    assert!(pair.step(Step::Weight(0, 400)));
    assert_eq!(all(&pair, &alphabet(), 5), Some(10_u64.pow(5)));
}

#[test]
fn each_bug_in_the_model_makes_a_difference() {
    for bug in Bug::ALL {
        let mut steps = Steps(1);
        let is_found = (0..2000).any(|_| {
            let mut pair = Pair::new(small_params(), Some(bug));
            (0..400).any(|_| !pair.step(steps.next()))
        });
        assert!(is_found, "{bug:?}");
    }
}

/// A device that moves `bytes_per_ms` and takes `seek_ms` for a request that does not begin at the
/// end of the one before.
struct Device {
    bytes_per_ms: u64,
    seek_ms: u64,
    position: u64,
}

/// An owner that keeps one read of a block in flight.
struct Reader {
    weight: u32,
    think_ms: u64,
    /// The distance between two reads.
    gap: u64,
}

/// The bytes of each reader after `ms`, with one request at the device at a time.
fn run(params: BfqParams, readers: &[Reader], ms: u64) -> Vec<u64> {
    let mut owners = Owners::new();
    let depth = readers.len() as u32 + 1;
    let mut bfq = Bfq::new(params, &rotational(), depth);
    for (nth, reader) in readers.iter().enumerate() {
        let owner = owners.add(&format!("{nth}"), None, 0).expect("the name is new");
        owner.set_weight(reader.weight);
    }
    bfq.set_owners(&owners);
    let mut device = Device { bytes_per_ms: 10 * BLOCK, seek_ms: 10, position: 0 };
    // When each reader submits its next read, and where.
    let mut next: Vec<(u64, u64)> = (0..readers.len()).map(|nth| (0, (nth as u64) << 40)).collect();
    let mut bytes: Vec<u64> = readers.iter().map(|_| 0).collect();
    // Tenths of a millisecond.
    let mut now = 0;
    let mut busy: Option<(u64, Tag)> = None;
    while now < ms * 10 {
        if let Some((until, tag)) = busy.filter(|busy| busy.0 <= now) {
            let nth = tag.index();
            bfq.completed(tag, now * MS / 10, 1);
            bytes[nth] += BLOCK;
            next[nth] =
                (until + readers[nth].think_ms * 10, next[nth].1 + BLOCK + readers[nth].gap);
            busy = None;
        }
        for (nth, (at, start)) in next.iter_mut().enumerate().filter(|it| it.1.0 <= now) {
            let origin = Origin::NONE.with_owner(nth as u32 + 1);
            let tag = Tag::from_index(nth);
            let rq = Queued { tag, op: Op::Read, origin, start: *start, len: BLOCK, since_ns: 0 };
            bfq.insert(rq, Position::Tail, now * MS / 10);
            *at = u64::MAX;
        }
        if busy.is_none()
            && let Some(tag) = bfq.next(now * MS / 10)
        {
            let rq = bfq.row(tag).rq;
            let seek_ms = if rq.start == device.position { 0 } else { device.seek_ms };
            device.position = rq.start + rq.len;
            busy = Some((now + seek_ms * 10 + rq.len * 10 / device.bytes_per_ms, tag));
        }
        now += 1;
    }
    bytes
}

fn reader(weight: u32) -> Reader {
    Reader { weight, think_ms: 0, gap: 0 }
}

#[test]
fn sequential_readers_share_the_bytes_by_weight_and_lose_few_to_seeks() {
    let alone = run(BfqParams::default(), &[reader(100)], 60_000)[0];
    for (light, heavy) in [(100, 400), (100, 100), (25, 200)] {
        let bytes = run(BfqParams::default(), &[reader(light), reader(heavy)], 60_000);
        let ratio = bytes[1] as f64 / bytes[0] as f64;
        let expected = f64::from(heavy) / f64::from(light);
        assert!((ratio / expected - 1.0).abs() < 0.05, "{bytes:?}");
        assert!((bytes[0] + bytes[1]) * 100 >= alone * 85, "{bytes:?}, {alone} alone");
    }
}

#[test]
fn reader_that_thinks_keeps_its_share_up_to_the_idle_time() {
    let thinks = |think_ms| Reader { think_ms, ..reader(100) };
    // 1 ms for each block of 0.1 ms. The other one moves as many bytes, and has the rest.
    let bytes = run(BfqParams::default(), &[thinks(1), reader(100)], 60_000);
    assert!(bytes[0] * 3 >= bytes[1], "{bytes:?}");
    let bytes = run(BfqParams::default(), &[thinks(20), reader(100)], 60_000);
    assert!(bytes[0] * 20 < bytes[1], "{bytes:?}");
}

#[test]
fn random_reader_pays_for_its_time() {
    let random = Reader { gap: 1 << 30, ..reader(100) };
    let alone = run(BfqParams::default(), &[reader(100)], 60_000)[0];
    // The weights differ, so the random reader is awaited too.
    let bytes = run(BfqParams::default(), &[random, reader(200)], 60_000);
    let share = bytes[1] as f64 / alone as f64;
    assert!((0.5..0.75).contains(&share), "{bytes:?}, {alone} alone: {share}");
}
