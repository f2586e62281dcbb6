//! Tests of `kyber` beside a naive model.

mod flash;
mod naive;

use super::*;
use crate::origin::Class;
use crate::sched::beside::{DEPTH, Letters, Pair, Step, check_plants, of_class};
use alloc::vec::Vec;
use naive::{Bug, Naive};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn pair(params: KyberParams, device_depth: u32, bug: Option<Bug>) -> Pair<Naive> {
    let mut scheduler = Kyber::new(params, DEPTH);
    scheduler.set_depths(device_depth, DEPTH);
    let targets_ns = [params.read_lat_ns, params.write_lat_ns, 5000 * MS];
    Pair::new(scheduler, Naive::new(targets_ns, device_depth.into(), bug))
}

/// Targets of which the sleeps of the histories are quarters and multiples.
fn params() -> KyberParams {
    KyberParams::default().read_lat_ns(20 * MS).write_lat_ns(80 * MS)
}

/// The letters of random histories.
const LETTERS: Letters = Letters {
    ops: &[Op::Read, Op::Read, Op::Write, Op::Write, Op::Discard, Op::WriteZeroes],
    origins: &[Origin::NONE, Origin::NONE, of_class(Class::Idle)],
    nr_blocks: 24,
    sleeps_ns: &[MS, 5 * MS, 10 * MS, 15 * MS, 20 * MS, 40 * MS, 60 * MS, 100 * MS, 300 * MS],
    loads: &[],
};

/// The same with load, so that the depths are tuned.
const LOADED: Letters = Letters {
    loads: &[
        (Op::Read, 0, 5 * MS),
        (Op::Read, 0, 20 * MS),
        (Op::Read, 60 * MS, 15 * MS),
        (Op::Read, 120 * MS, 0),
        (Op::Write, 0, 10 * MS),
        (Op::Write, 60 * MS, 5 * MS),
        (Op::Write, 60 * MS, 20 * MS),
        (Op::Write, 120 * MS, 10 * MS),
    ],
    ..LETTERS
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_the_model(
        targets in (0..50_u64, 0..50_u64),
        device_depth in 1..40_u32,
        steps in proptest::collection::vec(any::<u64>(), 0..300),
    ) {
        let params = params().read_lat_ns(targets.0 * MS).write_lat_ns(targets.1 * MS);
        let mut pair = pair(params, device_depth, None);
        for (nth, random) in steps.into_iter().enumerate() {
            let step = LETTERS.step(random);
            prop_assert!(pair.step(step), "step {nth}: {step:?}");
        }
        prop_assert!(pair.drain());
    }
}

#[test]
fn all_short_histories_agree_with_the_model() {
    let ops = &[Op::Read, Op::Write, Op::Discard];
    let letters = Letters { ops, origins: &[Origin::NONE], ..LETTERS };
    let nr = pair(params(), 2, None).all(&letters.alphabet(1100 * MS), 5);
    assert_eq!(nr, Some(10_u64.pow(5)));
}

#[test]
fn histories_with_much_load_agree_with_the_model() {
    let mut seed = 7;
    for device_depth in [2, 4, 8, 300] {
        assert!(!pair(params(), device_depth, None).differs(&LOADED, &mut seed, 1500));
    }
}

#[test]
fn each_bug_in_the_model_makes_a_difference() {
    for bug in Bug::ALL {
        let mut seed = 1;
        let is_found = (0..200).any(|nth| {
            let pair = pair(params(), [4, 8, 24][nth % 3], Some(bug));
            pair.differs(&LOADED, &mut seed, 200)
        });
        assert!(is_found, "{bug:?}");
    }
}

#[test]
fn each_planted_bug_makes_a_difference() {
    check_plants("KY", 9, || {
        let mut seed = 1;
        let depths = [4, 8, 24].iter().cycle().take(60);
        depths.copied().any(|depth| pair(params(), depth, None).differs(&LOADED, &mut seed, 200))
    });
}

/// Inserts requests that do not merge, takes all that may go, and returns their operations.
fn order(device_depth: u32, ops: &[Op]) -> Vec<Op> {
    let mut pair = pair(KyberParams::default(), device_depth, None);
    for (nth, op) in ops.iter().enumerate() {
        assert!(pair.step(Step::Insert(*op, Origin::NONE, 10 * nth as u64, 1, false)));
    }
    pair.take_all().iter().map(|rq| rq.op).collect()
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
    let mut pair = pair(KyberParams::default(), 1, None);
    for (nth, op) in [Op::Write, Op::Write, Op::Discard, Op::Read].into_iter().enumerate() {
        assert!(pair.step(Step::Insert(op, Origin::NONE, 10 * nth as u64, 1, false)));
    }
    assert!((0..3).all(|_| pair.step(Step::Next)));
    assert_eq!(pair.scheduler.next(pair.now), None, "the depth of writes is 1");
    assert!(pair.scheduler.next_any().is_some());
    assert_eq!(pair.scheduler.next_any(), None);
}

#[test]
fn depths_that_were_tuned_stay_when_the_number_of_tags_changes() {
    let mut pair = pair(params(), 256, None);
    assert!(pair.step(Step::Load(Op::Read, 0, 25 * MS)));
    assert!(pair.step(Step::Sleep(200 * MS)) && pair.step(Step::Load(Op::Write, 0, 10 * MS)));
    assert!(pair.step(Step::Sleep(200 * MS)) && pair.step(Step::Load(Op::Read, 0, 25 * MS)));
    let depth = pair.scheduler.tuning.depth(Domain::Write);
    pair.scheduler.set_depths(256, 3);
    assert_eq!(pair.scheduler.tuning.depth(Domain::Write), depth);
    assert!(depth < 128, "{depth}");
}
