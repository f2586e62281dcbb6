//! A scheduler beside a naive model: both go through one history of steps, and must agree.
//!
//! A step does to both what a hardware context does to its scheduler: a request that is inserted
//! merges with its neighbours, and one that was handed out completes or is given up. A test
//! chooses the letters of its histories ([`Letters`]), and goes through random ones, through all
//! short ones, or through those that find a bug.

use crate::bio::Op;
use crate::origin::{Class, Origin, Priority};
use crate::plant::{CorePlant, choose};
use crate::sched::{Neighbours, Position, Queued, Scheduler};
use crate::tag::Tag;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

/// The number of tags.
pub(super) const DEPTH: u32 = 12;

/// The tag of a request that has none yet.
const NO_TAG: Tag = Tag::from_index(u16::MAX as usize);

/// A naive model of a scheduler. Its functions are those of [`Scheduler`].
pub(super) trait Model: Clone {
    type Scheduler: Scheduler + Clone;

    fn insert(&mut self, rq: Queued, at: Position, now: u64);
    fn neighbours(&self, rq: &Queued) -> Neighbours;
    fn grown(&mut self, tag: Tag, start: u64, len: u64);
    fn absorbed(&mut self, into: Tag, tag: Tag);
    fn next(&mut self, now: u64) -> Option<Tag>;
    fn completed(&mut self, tag: Tag, now: u64, device_ns: u64);
    fn given_up(&mut self, tag: Tag);
    fn nr_queued(&self) -> usize;

    /// Makes the time pass.
    fn pass(&mut self, _now: u64) {}

    /// Returns whether other results of the scheduler are right after [`next`](Self::next) or
    /// [`completed`](Self::completed).
    fn agrees(&self, _scheduler: &Self::Scheduler) -> bool {
        true
    }
}

/// A step of a history.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Operation, origin, first block, number of blocks, and whether at the head.
    Insert(Op, Origin, u64, u64, bool),
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

/// A request that was handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Out {
    pub(super) rq: Queued,
    since_ns: u64,
    is_given_up: bool,
}

/// The scheduler and the model, which go through one history.
#[derive(Clone)]
pub(super) struct Pair<M: Model> {
    pub(super) scheduler: M::Scheduler,
    naive: M,
    pub(super) now: u64,
    free: Vec<Tag>,
    queued: Vec<Queued>,
    /// In the order of their dispatch.
    pub(super) out: Vec<Out>,
}

impl<M: Model> Pair<M> {
    pub(super) fn new(scheduler: M::Scheduler, naive: M) -> Pair<M> {
        Pair {
            scheduler,
            naive,
            now: 1000,
            free: (0..DEPTH as usize).map(Tag::from_index).collect(),
            queued: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Makes a step on both. Returns whether they agree.
    pub(super) fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Insert(op, origin, start, len, is_head) => {
                self.insert(op, origin, start, len, is_head)
            }
            Step::Next => self.next(),
            Step::Complete(nth) if !self.out.is_empty() => self.complete(nth % self.out.len()),
            Step::GiveUp(nth) if self.out.get(nth).is_some_and(|out| !out.is_given_up) => {
                let tag = self.out[nth].rq.tag;
                self.out[nth].is_given_up = true;
                self.scheduler.given_up(tag);
                self.naive.given_up(tag);
                true
            }
            Step::Complete(_) | Step::GiveUp(_) => true,
            Step::Sleep(ns) => {
                self.now += ns;
                self.naive.pass(self.now);
                true
            }
            // No merges, and nothing else is queued.
            Step::Load(op, queued_ns, device_ns) => (0..520).all(|nth| {
                self.step(Step::Insert(op, Origin::NONE, nth % 2 * 50, 1, false))
                    && self.step(Step::Sleep(queued_ns))
                    && self.step(Step::Next)
                    && self.step(Step::Sleep(device_ns))
                    && self.step(Step::Complete(usize::from(nth % 7 == 0)))
            }),
        }
    }

    fn insert(&mut self, op: Op, origin: Origin, start: u64, len: u64, is_head: bool) -> bool {
        let Some(tag) = self.free.pop() else { return true };
        let rq = Queued { tag, op, origin, start, len, since_ns: self.now };
        let new = Queued { tag: NO_TAG, ..rq };
        if self.scheduler.neighbours(&new) != self.naive.neighbours(&new) {
            return false;
        }
        let at = if is_head { Position::Head } else { Position::Tail };
        self.scheduler.insert(rq, at, self.now);
        self.naive.insert(rq, at, self.now);
        self.queued.push(rq);
        is_head || self.merge(rq)
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
        let second = self.remove(tag);
        let first = self.queued.iter_mut().find(|rq| rq.tag == into).expect("it is queued");
        assert_eq!(first.start + first.len, second.start);
        first.len += second.len;
        let rq = *first;
        self.scheduler.absorbed(into, tag);
        self.naive.absorbed(into, tag);
        self.scheduler.grown(into, rq.start, rq.len);
        self.naive.grown(into, rq.start, rq.len);
        self.free.push(tag);
        rq
    }

    fn remove(&mut self, tag: Tag) -> Queued {
        let place = self.queued.iter().position(|rq| rq.tag == tag).expect("it is queued");
        self.queued.remove(place)
    }

    fn next(&mut self) -> bool {
        let tag = self.scheduler.next(self.now);
        if tag != self.naive.next(self.now) {
            return false;
        }
        if let Some(tag) = tag {
            let rq = self.remove(tag);
            self.out.push(Out { rq, since_ns: self.now, is_given_up: false });
        }
        self.naive.agrees(&self.scheduler)
    }

    fn complete(&mut self, nth: usize) -> bool {
        let Out { rq, since_ns, .. } = self.out.remove(nth);
        let device_ns = self.now - since_ns;
        self.scheduler.completed(rq.tag, self.now, device_ns);
        self.naive.completed(rq.tag, self.now, device_ns);
        self.free.push(rq.tag);
        self.naive.agrees(&self.scheduler)
    }

    /// Returns the queued requests, in the order of their insertion.
    pub(super) fn queued(&self) -> &[Queued] {
        &self.queued
    }

    /// Hands out and completes all that is left. Returns whether the two agree, and all tags are
    /// free at the end.
    pub(super) fn drain(mut self) -> bool {
        let ends = (0..4 * DEPTH).all(|_| self.step(Step::Next) && self.step(Step::Complete(0)));
        ends && self.free.len() == DEPTH as usize
    }

    /// Hands out requests until none may go, and returns those that are out.
    pub(super) fn take_all(&mut self) -> Vec<Queued> {
        loop {
            let nr_out = self.out.len();
            assert!(self.next());
            if self.out.len() == nr_out {
                return self.out.iter().map(|out| out.rq).collect();
            }
        }
    }

    /// Goes through all histories of `nr` more steps. Returns their number, or `None` if the two
    /// differ.
    pub(super) fn all(&self, steps: &[Step], nr: usize) -> Option<u64> {
        if nr == 0 {
            return Some(1);
        }
        let after = |step: &Step| {
            let mut pair = self.clone();
            pair.step(*step).then_some(pair)
        };
        steps.iter().map(|step| after(step)?.all(steps, nr - 1)).sum()
    }

    /// Returns whether the two differ in a random history of `nr` steps.
    pub(super) fn differs(mut self, letters: &Letters, seed: &mut u64, nr: usize) -> bool {
        (0..nr).any(|_| {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            !self.step(letters.step(*seed >> 16))
        })
    }
}

/// The letters of histories. A letter that is given twice is chosen twice as often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letters {
    pub(super) ops: &'static [Op],
    pub(super) origins: &'static [Origin],
    /// The number of blocks at which a request may start.
    pub(super) nr_blocks: u64,
    pub(super) sleeps_ns: &'static [u64],
    /// Operation, time in the scheduler, and time at the device.
    pub(super) loads: &'static [(Op, u64, u64)],
}

impl Letters {
    /// Returns the step that a random number stands for.
    pub(super) fn step(&self, mut random: u64) -> Step {
        let mut below = |bound: usize| {
            let nth = random % bound as u64;
            random /= bound as u64;
            nth as usize
        };
        match below(40) {
            0 if !self.loads.is_empty() => {
                let (op, queued_ns, device_ns) = self.loads[below(self.loads.len())];
                Step::Load(op, queued_ns, device_ns)
            }
            0..=16 => {
                let op = self.ops[below(self.ops.len())];
                let origin = self.origins[below(self.origins.len())];
                let start = below(self.nr_blocks as usize) as u64;
                Step::Insert(op, origin, start, 1 + below(2) as u64, below(12) == 0)
            }
            17..=27 => Step::Next,
            28..=33 => Step::Complete(below(8)),
            34 | 35 => Step::GiveUp(below(8)),
            _ => Step::Sleep(self.sleeps_ns[below(self.sleeps_ns.len())]),
        }
    }

    /// Returns the letters of exhaustive histories: two places that touch, for each operation and
    /// origin, and one sleep.
    pub(super) fn alphabet(&self, sleep_ns: u64) -> Vec<Step> {
        let mut steps =
            Vec::from([Step::Next, Step::Complete(0), Step::GiveUp(0), Step::Sleep(sleep_ns)]);
        for op in self.ops {
            for origin in self.origins {
                steps.extend([4, 8].map(|start| Step::Insert(*op, *origin, start, 4, false)));
            }
        }
        steps
    }
}

/// Returns the origin of I/O of a class.
pub(super) const fn of_class(class: Class) -> Origin {
    match Priority::new(class, 4) {
        Some(priority) => Origin::NONE.with_priority(priority),
        None => unreachable!(),
    }
}

/// Checks that each bug that is planted in a scheduler makes a difference, and that each of its
/// rules has one. The rules are `letters` with the numbers from 1 to `nr_rules`.
pub(super) fn check_plants(letters: &str, nr_rules: usize, differs: impl Fn() -> bool) {
    let of_letters = |plant: &&CorePlant| plant.breaks().starts_with(letters);
    let plants: Vec<CorePlant> = CorePlant::ALL.iter().filter(of_letters).copied().collect();
    for nth in 1..=nr_rules {
        let rule = format!("{letters}{nth}:");
        assert!(plants.iter().any(|plant| plant.breaks() == rule), "{rule} no bug breaks it");
    }
    assert!(!differs(), "without a bug");
    for planted in plants {
        choose(Some(Box::new(move |plant| plant == planted)));
        let is_found = differs();
        choose(None);
        assert!(is_found, "{planted:?}");
    }
}
