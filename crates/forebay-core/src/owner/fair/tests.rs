//! Unit tests of start-time fair queueing: beside a naive model with exact fractions, and the bound
//! of fairness.

use super::*;
use proptest::prelude::*;

/// The weights of random owners, and a number that all of them divide.
const WEIGHTS: [u32; 7] = [1, 2, 3, 100, 250, 7, 10_000];
const MULTIPLE: i128 = 210_000;

/// The number of random histories of each property.
const CASES: u32 = 400;

/// Serves `nr` I/Os of owners that always have I/O. Returns the cost that each has got.
fn serve(fair: &mut FairQueue, owners: &[(FairId, u64)], nr: usize) -> Vec<u64> {
    for (owner, _) in owners {
        fair.enqueue(*owner);
    }
    let mut got = alloc::vec![0; owners.len()];
    for _ in 0..nr {
        let next = fair.next().expect("I/O is queued");
        let at = owners.iter().position(|(owner, _)| *owner == next).expect("it has I/O");
        fair.enqueue(next);
        fair.charge(next, owners[at].1);
        got[at] += owners[at].1;
    }
    for (owner, _) in owners {
        fair.cancel(*owner);
    }
    got
}

#[test]
fn weights_divide_the_cost_of_small_and_large_io() {
    let mut fair = FairQueue::new();
    let owners =
        [(100, 4096), (200, 1 << 20), (400, 65536)].map(|(w, cost)| (fair.add(None, w), cost));
    let got = serve(&mut fair, &owners, 100_000);
    let sum: u64 = got.iter().sum();
    for (got, seventh) in got.iter().zip([1, 2, 4]) {
        let share = *got as f64 / sum as f64;
        assert!((share * 7.0 / f64::from(seventh) - 1.0).abs() < 0.01, "{got} of {sum}");
    }
    assert_eq!((fair.next(), fair.nr_queued()), (None, 0));
}

#[test]
fn equal_owners_take_turns() {
    let mut fair = FairQueue::new();
    let owners: Vec<FairId> = (0..5).map(|_| fair.add(None, 100)).collect();
    owners.iter().for_each(|owner| (0..3).for_each(|_| fair.enqueue(*owner)));
    for nth in 0..15 {
        assert_eq!(fair.next(), Some(owners[nth % 5]));
        fair.charge(owners[nth % 5], 4096);
    }
    assert_eq!(fair.next(), None);
}

#[test]
fn idle_owner_saves_no_credit_and_gets_its_share_at_once() {
    let mut fair = FairQueue::new();
    let owners = [fair.add(None, 100), fair.add(None, 100)].map(|owner| (owner, 4096));
    assert_eq!(serve(&mut fair, &owners, 10), [5 * 4096; 2]);
    assert_eq!(serve(&mut fair, &owners[..1], 10_000), [10_000 * 4096]);
    // The one that was busy is at most one I/O behind now, and the other one at most one ahead.
    let got = serve(&mut fair, &owners, 10);
    assert!(got.iter().all(|got| (4 * 4096..=6 * 4096).contains(got)), "{got:?}");
    let new = (fair.add(None, 200), 4096);
    let got = serve(&mut fair, &[owners[0], owners[1], new], 12);
    assert!((5 * 4096..=7 * 4096).contains(&got[2]), "{got:?}");
}

#[test]
fn share_of_an_idle_owner_goes_to_its_siblings_first() {
    let mut fair = FairQueue::new();
    let tenants = [fair.add(None, 100), fair.add(None, 300)];
    let jobs = [1, 3].map(|weight| (fair.add(Some(tenants[0]), weight), 4096));
    let other = (tenants[1], 4096);
    let nr = 16_000;
    let near = |got: &[u64], expected: &[u64]| {
        let is_near = |(got, nr): (&u64, &u64)| got.abs_diff(nr * 4096) <= 2 * 4096;
        assert!(got.iter().zip(expected).all(is_near), "{got:?}");
    };
    near(&serve(&mut fair, &[jobs[0], jobs[1], other], nr), &[1000, 3000, 12_000]);
    near(&serve(&mut fair, &[jobs[0], other], nr), &[4000, 12_000]);
    near(&serve(&mut fair, &jobs, nr), &[4000, 12_000]);
    // The own I/O of the tenant counts as a child of the usual weight.
    fair.set_weight(jobs[0].0, WEIGHT_DEFAULT);
    let got = serve(&mut fair, &[jobs[0], (tenants[0], 4096), other], nr);
    near(&got, &[2000, 2000, 12_000]);
}

#[test]
fn owner_with_queued_io_gets_children() {
    let mut fair = FairQueue::new();
    let (tenant, other) = (fair.add(None, 100), fair.add(None, 100));
    (0..2).for_each(|_| fair.enqueue(tenant));
    fair.enqueue(other);
    let child = fair.add(Some(tenant), 100);
    fair.enqueue(child);
    assert_eq!((fair.nr_queued_of(tenant), fair.nr_queued()), (2, 4));
    let mut order = Vec::new();
    while let Some(owner) = fair.next() {
        fair.charge(owner, 10);
        order.push(owner);
    }
    assert_eq!(order, [tenant, other, child, tenant]);
    fair.remove(child);
    fair.remove(tenant);
    // Its nodes are used again, without their tags.
    let again = fair.add(None, 1);
    fair.enqueue(again);
    assert_eq!(fair.next(), Some(again));
}

#[test]
fn tags_of_a_busy_owner_are_exact_after_many_ios() {
    let mut fair = FairQueue::new();
    let owner = fair.add(None, 7);
    fair.enqueue(owner);
    let nr = 100_000u64;
    for _ in 0..nr {
        fair.enqueue(owner);
        fair.charge(owner, 4097);
    }
    let exact = (u128::from(nr * 4097) << FRACTION) / 7;
    assert_eq!(fair.nodes[owner.0 as usize].start, exact);
}

#[test]
fn cost_and_weights_out_of_range_are_clamped() {
    let mut fair = FairQueue::new();
    let (light, heavy) = (fair.add(None, 0), fair.add(None, u32::MAX));
    for _ in 0..3 {
        [light, heavy].iter().for_each(|owner| fair.enqueue(*owner));
        [light, heavy].iter().for_each(|owner| fair.charge(*owner, u64::MAX));
    }
    let finish = |owner: FairId| fair.nodes[owner.0 as usize].finish;
    assert_eq!(finish(light), 3 * (u128::from(FairQueue::COST_MAX) << FRACTION));
    assert!(finish(heavy) > 2 * finish(light) / 3, "it began at the finish of the light one");
}

#[test]
fn io_after_the_first_add_allocates_nothing() {
    let mut fair = FairQueue::new();
    let owners: Vec<_> = (0..64).map(|nth| (fair.add(None, nth + 1), 4096)).collect();
    let capacity = fair.nodes[TOP as usize].ready.capacity();
    serve(&mut fair, &owners, 1000);
    assert_eq!(fair.nodes[TOP as usize].ready.capacity(), capacity);
}

#[test]
fn removal_anywhere_keeps_the_order() {
    let mut fair = FairQueue::new();
    let owners: Vec<FairId> = (0..64).map(|_| fair.add(None, 100)).collect();
    let mut state = 1u32;
    for _ in 0..50 {
        for owner in &owners {
            fair.enqueue(*owner);
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            fair.enqueue(*owner);
            fair.charge(*owner, u64::from(state >> 8));
        }
        for owner in owners.iter().step_by(3) {
            fair.cancel(*owner);
        }
        let mut last = 0;
        while let Some(owner) = fair.next() {
            let start = fair.nodes[owner.0 as usize].start;
            assert!(start >= last, "a larger tag went before a smaller one");
            last = start;
            fair.cancel(owner);
        }
    }
}

#[test]
#[should_panic(expected = "was removed")]
fn removed_owner_cannot_be_charged() {
    let mut fair = FairQueue::new();
    let owner = fair.add(None, 1);
    fair.remove(owner);
    fair.enqueue(owner);
}

/// One step of a random history. Owners are indices into a list.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enqueue(usize),
    /// The next I/O goes, with this cost.
    Go(u64),
    Cancel(usize),
}

fn step(nr_owners: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..nr_owners).prop_map(Step::Enqueue),
        5 => prop_oneof![1..5000u64, Just(1 << 20)].prop_map(Step::Go),
        1 => (0..nr_owners).prop_map(Step::Cancel),
    ]
}

/// A node of the naive model. Tags are exact: integers in parts of 1 / `MULTIPLE`.
#[derive(Clone, Debug, Default)]
struct Exact {
    parent: usize,
    weight: i128,
    nr_queued: u64,
    start: i128,
    finish: i128,
    now: i128,
    finish_max: i128,
    was_ready: bool,
}

/// The naive model: node 0 is above all owners, and each ready node is found by a search.
#[derive(Debug)]
struct Model(Vec<Exact>);

impl Model {
    fn children(&self, at: usize) -> impl Iterator<Item = usize> {
        (1..self.0.len()).filter(move |child| self.0[*child].parent == at)
    }

    fn is_ready(&self, at: usize) -> bool {
        self.0[at].nr_queued > 0 || self.children(at).any(|child| self.is_ready(child))
    }

    /// Assigns start tags to the nodes that have become ready, and ends busy periods.
    fn settle(&mut self) {
        for at in 1..self.0.len() {
            let is_ready = self.is_ready(at);
            if is_ready && !self.0[at].was_ready {
                self.0[at].start = self.0[self.0[at].parent].now.max(self.0[at].finish);
            }
            self.0[at].was_ready = is_ready;
        }
        for at in 0..self.0.len() {
            if !self.children(at).any(|child| self.is_ready(child)) {
                self.0[at].now = self.0[at].now.max(self.0[at].finish_max);
            }
        }
    }

    /// Returns how far the start tag of a node is above the smallest of its siblings.
    fn excess(&self, at: usize) -> i128 {
        let siblings = self.children(self.0[at].parent).filter(|at| self.0[*at].was_ready);
        let smallest = siblings.map(|at| self.0[at].start).min();
        self.0[at].start - smallest.expect("it is ready itself")
    }

    fn charge(&mut self, mut at: usize, cost: u64) {
        self.0[at].nr_queued -= 1;
        while at != 0 {
            let parent = self.0[at].parent;
            let ready = self.children(parent).filter(|at| self.0[*at].was_ready);
            let now = ready.map(|at| self.0[at].start).min().expect("it is ready itself");
            let node = &mut self.0[at];
            node.finish = node.start + i128::from(cost) * MULTIPLE / node.weight;
            node.start = node.finish;
            let finish = node.finish;
            self.0[parent].now = now;
            self.0[parent].finish_max = self.0[parent].finish_max.max(finish);
            at = parent;
        }
        self.settle();
    }
}

/// Two groups of three owners, and three owners beside them, in the queue and in the model. Owners
/// are those without children.
fn build(weights: &[usize]) -> (FairQueue, Model, Vec<(FairId, usize)>) {
    let (mut fair, mut model) = (FairQueue::new(), Model(alloc::vec![Exact::default()]));
    let mut owners = Vec::new();
    let mut group = (None, 0);
    for (nth, weight) in weights.iter().enumerate() {
        let weight = WEIGHTS[*weight];
        let is_group = nth == 3 || nth == 7;
        let (parent, place) = if is_group { (None, 0) } else { group };
        let id = fair.add(parent, weight);
        let exact = Exact { parent: place, weight: weight.into(), ..Exact::default() };
        model.0.push(exact);
        match is_group {
            true => group = (Some(id), model.0.len() - 1),
            false => owners.push((id, model.0.len() - 1)),
        }
    }
    (fair, model, owners)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    /// FQ1 to FQ4: each choice is the smallest exact start tag on each level, to the last bits of a
    /// tag, and the tags do not drift apart.
    #[test]
    fn choices_are_those_of_the_naive_model(
        weights in proptest::collection::vec(0..WEIGHTS.len(), 11),
        steps in proptest::collection::vec(step(9), 1..300),
    ) {
        let (mut fair, mut model, owners) = build(&weights);
        // A tag loses up to one of its last bits whenever another owner's becomes its own.
        let tolerance = (MULTIPLE >> FRACTION) * 400;
        for step in steps {
            match step {
                Step::Enqueue(at) => {
                    fair.enqueue(owners[at].0);
                    model.0[owners[at].1].nr_queued += 1;
                    model.settle();
                }
                Step::Cancel(at) if fair.nr_queued_of(owners[at].0) > 0 => {
                    fair.cancel(owners[at].0);
                    model.0[owners[at].1].nr_queued -= 1;
                    model.settle();
                }
                Step::Cancel(_) => {}
                Step::Go(cost) => {
                    let next = fair.next();
                    prop_assert_eq!(next.is_some(), model.is_ready(0));
                    let Some(next) = next else { continue };
                    let owner = owners.iter().find(|owner| owner.0 == next);
                    let mut at = owner.expect("it is one of them").1;
                    let leaf = at;
                    while at != 0 {
                        prop_assert!(model.0[at].was_ready && model.excess(at) <= tolerance);
                        at = model.0[at].parent;
                    }
                    fair.charge(next, cost);
                    model.charge(leaf, cost);
                }
            }
            for (id, at) in &owners {
                let tag = (fair.nodes[id.0 as usize].finish as i128 * MULTIPLE) >> FRACTION;
                prop_assert!((tag - model.0[*at].finish).abs() <= tolerance);
            }
        }
    }

    /// The bound of the paper, for each pair of siblings and each interval in which both have I/O.
    #[test]
    fn service_of_busy_owners_differs_by_an_io_of_each(
        weights in proptest::collection::vec(0..WEIGHTS.len(), 5),
        steps in proptest::collection::vec(step(5), 1..400),
    ) {
        let mut fair = FairQueue::new();
        let weights: Vec<i128> = weights.iter().map(|at| WEIGHTS[*at].into()).collect();
        let owners: Vec<FairId> = weights.iter().map(|w| fair.add(None, *w as u32)).collect();
        let mut got = [0i128; 5];
        let mut largest = [0i128; 5];
        // The range of `W_f / w_f - W_g / w_g` since both have I/O, times both weights.
        let mut ranges = [[None::<(i128, i128)>; 5]; 5];
        for step in steps {
            match step {
                Step::Enqueue(at) => fair.enqueue(owners[at]),
                Step::Cancel(at) if fair.nr_queued_of(owners[at]) > 0 => fair.cancel(owners[at]),
                Step::Cancel(_) => {}
                Step::Go(cost) => {
                    let Some(next) = fair.next() else { continue };
                    fair.charge(next, cost);
                    let at = owners.iter().position(|owner| *owner == next).expect("there");
                    got[at] += i128::from(cost);
                    largest[at] = largest[at].max(cost.into());
                }
            }
            for f in 0..5 {
                for g in 0..f {
                    let is_busy = |at: usize| fair.nr_queued_of(owners[at]) > 0;
                    let (w_f, w_g) = (weights[f], weights[g]);
                    let now = got[f] * w_g - got[g] * w_f;
                    let both = is_busy(f) && is_busy(g);
                    let (low, high) = ranges[f][g].unwrap_or((now, now));
                    let range = (low.min(now), high.max(now));
                    // An I/O that leaves its owner idle still belongs to the interval.
                    let bound = largest[f] * w_g + largest[g] * w_f;
                    let rounding = ((w_f * w_g * 4) >> FRACTION) + 1;
                    prop_assert!(range.1 - range.0 <= bound + rounding);
                    ranges[f][g] = both.then_some(range);
                }
            }
        }
    }
}

/// I/O that goes while none is queued has the same effect on all later I/O, whether it was queued
/// for a moment or not.
#[test]
fn io_that_passes_counts_as_if_it_had_been_queued() {
    let mut seed = 1_u64;
    let mut below = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % bound
    };
    for _ in 0..200 {
        let (mut fair, mut queued) = (FairQueue::new(), FairQueue::new());
        let mut owners = Vec::new();
        for _ in 0..2 + below(4) {
            let parent = owners.get(below(8) as usize).copied();
            let weight = 1 + below(300) as u32;
            owners.push(fair.add(parent, weight));
            assert_eq!(owners.last().copied(), Some(queued.add(parent, weight)));
        }
        let cost = |below: &mut dyn FnMut(u64) -> u64| match below(10) {
            0 => FairQueue::COST_MAX + 1,
            _ => below(100_000),
        };
        for _ in 0..200 {
            let owner = owners[below(owners.len() as u64) as usize];
            match below(20) {
                0 => {
                    let weight = 1 + below(300) as u32;
                    fair.set_weight(owner, weight);
                    queued.set_weight(owner, weight);
                }
                1..4 => {
                    let others: Vec<_> = owners.iter().copied().filter(|_| below(2) > 0).collect();
                    for &other in &others {
                        fair.enqueue(other);
                        queued.enqueue(other);
                    }
                    for _ in &others {
                        let next = fair.next().expect("I/O is queued");
                        assert_eq!(queued.next(), Some(next));
                        let cost = cost(&mut below);
                        fair.charge(next, cost);
                        queued.charge(next, cost);
                    }
                }
                _ => {
                    for _ in 0..1 + below(4) {
                        let cost = cost(&mut below);
                        fair.pass(owner, cost);
                        queued.enqueue(owner);
                        queued.charge(owner, cost);
                    }
                }
            }
        }
        fair.end_streak();
        let tags = |fair: &FairQueue| {
            let of = |node: &Node| (node.finish, node.rest, node.now, node.finish_max);
            fair.nodes.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(tags(&fair), tags(&queued));
    }
}

#[test]
fn restart_forgets_costs_and_keeps_the_order() {
    let mut fair = FairQueue::new();
    let owners = [100, 100, 100].map(|weight| fair.add(None, weight));
    let child = fair.add(Some(owners[2]), 100);
    for owner in [child, owners[1], owners[0]] {
        (0..30).for_each(|_| fair.enqueue(owner));
    }
    fair.charge(owners[1], 50_000);
    fair.charge(child, 9_000_000);
    fair.restart();
    let mut order = Vec::new();
    for _ in 0..12 {
        let next = fair.next().expect("I/O is queued");
        fair.charge(next, 1);
        order.push(next);
    }
    // Before, the child would have waited for 9 million I/Os of the others.
    assert_eq!(order[..3], [owners[0], owners[1], child], "the order of their tags");
    assert_eq!(order[3..6], order[..3], "each in turn");
    assert_eq!(order.iter().filter(|owner| **owner == child).count(), 4);
}
