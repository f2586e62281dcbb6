//! Tests of `mq_deadline` beside a naive model.

mod naive;
mod passes;

use super::*;
use crate::origin::Class;
use crate::sched::beside::{DEPTH, Letters, Pair, Step, check_plants, of_class};
use naive::{Bug, Naive};
use proptest::prelude::*;

fn pair(params: MqDeadlineParams, bug: Option<Bug>) -> Pair<Naive> {
    Pair::new(MqDeadline::new(params, DEPTH), Naive::new(params, bug))
}

/// Inserts a request of a block.
fn insert(pair: &mut Pair<Naive>, op: Op, class: Class, start: u64) {
    assert!(pair.step(Step::Insert(op, of_class(class), start, 1, false)));
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

const REAL_TIME: Origin = of_class(Class::RealTime);
const BEST_EFFORT: Origin = of_class(Class::BestEffort);
const IDLE: Origin = of_class(Class::Idle);

/// The letters of random histories.
const LETTERS: Letters = Letters {
    ops: &[Op::Read, Op::Read, Op::Read, Op::Write, Op::Write, Op::Write, Op::Discard],
    origins: &[REAL_TIME, BEST_EFFORT, BEST_EFFORT, BEST_EFFORT, IDLE],
    nr_blocks: 20,
    sleeps_ns: &[1, 10, 25, 50, 51, 80, 110, 119],
    loads: &[],
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_the_model(
        params in params(),
        steps in proptest::collection::vec(any::<u64>(), 0..120),
    ) {
        let mut pair = pair(params, None);
        for (nth, random) in steps.into_iter().enumerate() {
            let step = LETTERS.step(random);
            prop_assert!(pair.step(step), "step {nth}: {step:?}");
        }
        prop_assert!(pair.drain());
    }

    /// The batch and the count of DL2 are common to all classes, so the bound holds within one.
    #[test]
    fn writes_of_one_class_wait_for_a_bounded_number_of_reads(
        params in params(),
        steps in proptest::collection::vec(any::<u64>(), 0..120),
    ) {
        let mut pair = pair(params, None);
        let letters = Letters { origins: &[BEST_EFFORT], ..LETTERS };
        let most = params.fifo_batch * (params.writes_starved + 1);
        let mut nr_reads = 0;
        for random in steps {
            let mut step = letters.step(random);
            if let Step::Insert(.., is_head) = &mut step {
                *is_head = false;
            }
            let nr_out = pair.out.len();
            prop_assert!(pair.step(step));
            let Some(out) = pair.out.get(nr_out) else { continue };
            // How many reads went since the last write, while a write waited.
            let is_waiting = pair.queued().iter().any(|rq| rq.op != Op::Read);
            nr_reads = if out.rq.op == Op::Read && is_waiting { nr_reads + 1 } else { 0 };
            prop_assert!(nr_reads <= most, "{nr_reads} reads went, at most {most} may");
        }
    }
}

#[test]
fn all_short_histories_agree_with_the_model() {
    let letters = Letters { ops: &[Op::Read, Op::Write], origins: &[BEST_EFFORT, IDLE], ..LETTERS };
    let nr = pair(small_params().fifo_batch(1), None).all(&letters.alphabet(210), 5);
    assert_eq!(nr, Some(12_u64.pow(5)));
}

#[test]
fn each_bug_in_the_model_makes_a_difference() {
    for bug in Bug::ALL {
        let mut seed = 1;
        let is_found =
            (0..2000).any(|_| pair(small_params(), Some(bug)).differs(&LETTERS, &mut seed, 100));
        assert!(is_found, "{bug:?}");
    }
}

#[test]
fn each_planted_bug_makes_a_difference() {
    check_plants("DL", 8, || {
        let mut seed = 1;
        (0..200).any(|nth| {
            let params = small_params().front_merges(nth % 2 == 0);
            pair(params, None).differs(&LETTERS, &mut seed, 100)
        })
    });
}

#[test]
fn batch_goes_in_the_order_of_addresses_and_the_next_begins_with_the_oldest() {
    let mut pair = pair(MqDeadlineParams::default().fifo_batch(3), None);
    for start in [50, 20, 90, 70, 10] {
        insert(&mut pair, Op::Read, Class::BestEffort, start);
    }
    // After three, a new batch goes on at the next address; after the highest, with the oldest.
    assert!(pair.take_all().iter().map(|rq| rq.start).eq([10, 20, 50, 70, 90]));
}

#[test]
fn device_that_is_gone_gets_every_class() {
    let mut pair = pair(MqDeadlineParams::default(), None);
    for class in Class::ALL {
        insert(&mut pair, Op::Read, class, 5);
    }
    assert_eq!(pair.take_all().len(), 1, "DL4");
    assert!(pair.scheduler.next_any().is_some() && pair.scheduler.next_any().is_some());
    assert_eq!(pair.scheduler.next_any(), None);
}
