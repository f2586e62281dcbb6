//! Tests of what owners get: shares by weight, and rates of backlogged owners, in virtual time.

use crate::coroutine::{Cpu, Task};
use crate::cpu_costs::CpuCosts;
use crate::engine::Engine;
use crate::runtime::thread::{Io, Thread};
use crate::scenario::Scenario;
use crate::scenario::owners::{GOAL_WINDOW_NS, NewOwner, OwnerSettings};
use crate::scheduler::ThreadTimes;
use crate::trace::Kind;
use forebay_core::{
    BioFlags, CostModel, Limits, Op, Policy, Priority, QueueLimits, Rate, SchedulerPolicy, WeightBy,
};
use forebay_model::Fixed;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

const MS: u64 = 1_000_000;
const BLOCK: u64 = 4096;

/// Reads of one owner, at a constant depth.
#[derive(Clone, Debug)]
struct Reads {
    weight: u32,
    limits: Limits,
    /// The blocks of each read.
    nr: u64,
    depth: usize,
    time_ns: Range<u64>,
}

impl Reads {
    fn weighted(weight: u32, nr: u64, from_ns: u64) -> Reads {
        let limits = Limits::default();
        Reads { weight, limits, nr, depth: 32, time_ns: from_ns..1100 * MS }
    }
}

/// When each read of each owner has ended.
type Ends = Rc<RefCell<Vec<Vec<u64>>>>;

fn scenario(owners: &[Reads], policy: Policy, latency_ns: u64) -> Scenario {
    let limits = QueueLimits::default()
        .capacity_bytes(Some(64 << 20))
        .logical_block_size(BLOCK as u32)
        .physical_block_size(BLOCK as u32)
        .max_hw_sectors(2048)
        .max_sectors(2048);
    let first = owners.iter().map(|reads| NewOwner {
        parent: None,
        weight: Some(reads.weight),
        limits: reads.limits,
    });
    let first = first.collect();
    let by = WeightBy::Cost;
    Scenario {
        limits,
        policy,
        is_stash_v1: false,
        makes_own_calls: false,
        begins_in_wait: false,
        is_traced: false,
        engine: Engine::Model(Box::new(Fixed::new(latency_ns, 4))),
        nr_tasks: owners.len(),
        preempt: 0,
        nap: 0,
        step_ns: 1,
        times: ThreadTimes::default(),
        cpu: CpuCosts::default(),
        command_ns: 0,
        worker: None,
        budget: None,
        bound: u64::MAX,
        file: None,
        faults: Vec::new(),
        owners: Some(OwnerSettings {
            by,
            cost: CostModel::default(),
            has_weights: true,
            first,
            changes: 0,
            none: 0,
            goal_window_ns: GOAL_WINDOW_NS,
        }),
    }
}

/// Runs a task for each owner. Returns the times at which their reads have ended.
fn run(owners: &[Reads], policy: Policy, latency_ns: u64) -> Vec<Vec<u64>> {
    let ends = Ends::new(RefCell::new(vec![Vec::new(); owners.len()]));
    let scenario = scenario(owners, policy, latency_ns);
    let result = crate::run(0, scenario, None, |world, id| {
        let (reads, ends) = (owners[id].clone(), Rc::clone(&ends));
        Task::new(world, id, move |cpu| read(cpu, &reads, &ends))
    });
    if let Err(violation) = result {
        panic!("{violation}");
    }
    ends.take()
}

fn read(cpu: Cpu<'_>, reads: &Reads, ends: &Ends) {
    let (world, id) = (Rc::clone(&cpu.world), cpu.id);
    world.note(Kind::Start, id as u64, id as u64);
    cpu.sleep(reads.time_ns.start);
    let mut thread = Thread::new(cpu);
    thread.owner = id as u32 + 1;
    let mut ended = Vec::new();
    let mut block = 0;
    while world.now() < reads.time_ns.end {
        while thread.nr_in_layer + thread.ready.len() < reads.depth {
            // No two of them are neighbours.
            block = (block + 2 * reads.nr) % (16 * 1024 - 2 * reads.nr);
            let (flags, cuts) = (BioFlags::NONE, Vec::new());
            let io = Io {
                op: Op::Read,
                flags,
                block,
                nr: reads.nr,
                cuts,
                charge: None,
                point: 0,
                priority: Priority::default(),
            };
            thread.submit(io).expect("a good read");
        }
        thread.reap(1, usize::MAX, &mut ended);
        ends.borrow_mut()[id].extend(ended.drain(..).map(|end| end.ended_ns));
    }
    thread.retire(&mut ended);
}

/// Returns the cost of the reads that ended in a time.
fn service(reads: &Reads, ends: &[u64], time_ns: Range<u64>) -> f64 {
    let cost = CostModel::default().cost(WeightBy::Cost, Op::Read, 1, reads.nr * BLOCK);
    (ends.iter().filter(|at_ns| time_ns.contains(at_ns)).count() as u64 * cost) as f64
}

/// Checks that the service in a time has the proportions of the weights, within 3 %.
fn check_shares(owners: &[Reads], ends: &[Vec<u64>], time_ns: Range<u64>) {
    let service: Vec<f64> = owners
        .iter()
        .zip(ends)
        .map(|(reads, ends)| service(reads, ends, time_ns.clone()))
        .collect();
    let weights: u32 = owners.iter().map(|reads| reads.weight).sum();
    let sum: f64 = service.iter().sum();
    for (reads, service) in owners.iter().zip(&service) {
        let share = f64::from(reads.weight) / f64::from(weights);
        let error = service / sum / share - 1.0;
        assert!(error.abs() < 0.03, "weight {}: {error:+.4} in {time_ns:?}", reads.weight);
    }
}

fn policies() -> [Policy; 2] {
    let policy = Policy::default().queue_depth(16).nr_requests(Some(8));
    [policy, policy.scheduler(SchedulerPolicy::MqDeadline).device_depth(Some(4))]
}

#[test]
fn weights_divide_the_cost_of_small_and_large_reads() {
    for policy in policies() {
        let owners =
            [Reads::weighted(100, 1, 0), Reads::weighted(200, 256, 0), Reads::weighted(400, 1, 0)];
        let ends = run(&owners, policy, 100_000);
        check_shares(&owners, &ends, 100 * MS..1100 * MS);
    }
}

#[test]
fn newcomer_gets_its_share_within_50_ms() {
    for policy in policies() {
        let owners = [
            Reads::weighted(100, 1, 0),
            Reads::weighted(200, 4, 0),
            Reads::weighted(400, 1, 500 * MS),
        ];
        let ends = run(&owners, policy, 100_000);
        check_shares(&owners[..2], &ends[..2], 100 * MS..500 * MS);
        check_shares(&owners, &ends, 550 * MS..650 * MS);
    }
}

#[test]
fn backlogged_owner_gets_its_rate_in_every_time() {
    let latency_ns = 10_000;
    let mut limits = Limits::default();
    limits.both.iops = Rate { per_s: 3333, burst: Some(1) };
    let (weight, time_ns) = (100, 0..1000 * MS);
    let reads = Reads { weight, limits, nr: 1, depth: 4, time_ns };
    let owners = [reads, Reads { depth: 2, ..Reads::weighted(100, 8, 0) }];
    let starts = run(&owners, policies()[0], latency_ns).swap_remove(0);
    let of_rate = |ns: u64| ns as f64 * 3333.0 / 1e9;
    assert!(starts.len() > 3000);
    for (at, from_ns) in starts.iter().enumerate() {
        for (nth, to_ns) in starts[at..].iter().enumerate().step_by(97) {
            // `nth` I/Os start after the first of these, up to the last.
            let expected = of_rate(to_ns - from_ns);
            let missing = expected - nth as f64;
            assert!((-1.1..=1.0).contains(&missing), "{missing} of {expected}");
        }
    }
}
