//! Tests of NOWAIT bios, and of bios that wait behind a gate.

use crate::common::{Bench, limits};
use forebay_core::{BioFlags, BlockStatus, Gates, Issue, Op, Policy};

const K4: u64 = 4096;
const AGAIN: Result<u64, BlockStatus> = Err(BlockStatus::Again);

fn bench(depth: u32) -> Bench {
    let limits = limits().max_sectors(8);
    Bench::new(limits, Policy::default().queue_depth(depth))
}

#[test]
fn nowait_bio_is_issued_or_refused_at_once() {
    let mut bench = bench(2);
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, 2 * K4, 1);
    assert_eq!(bench.toy.running.len(), 2, "there are tags for both parts");
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, K4, 2);
    assert_eq!(bench.ends(), [(2, AGAIN)]);
    bench.complete(0, Ok(K4));
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, 2 * K4, 3);
    assert_eq!(bench.ends(), [(3, AGAIN)], "one tag is too few");
    assert_eq!(bench.toy.running.len(), 1, "nothing of it was issued");
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, K4, 4);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(2 * K4)), (4, Ok(K4))]);
}

#[test]
fn bio_that_needs_more_tags_than_exist_is_not_supported() {
    let mut bench = bench(2);
    bench.issue(Op::Write, BioFlags::NOWAIT, 0, 3 * K4, 1);
    assert_eq!(bench.ends(), [(1, Err(BlockStatus::NotSupported))]);
}

#[test]
fn it_does_not_overtake_those_that_wait_or_wait_for_a_busy_driver() {
    let mut bench = bench(8);
    bench.toy.answers.push_back(Issue::Busy);
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, K4, 1);
    assert_eq!(bench.ends(), [(1, AGAIN)]);
    bench.toy.answers.push_back(Issue::Busy);
    bench.issue(Op::Read, BioFlags::NONE, 0, K4, 2);
    bench.toy.answers.push_back(Issue::Busy);
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, K4, 3);
    assert_eq!(bench.ends(), [(3, AGAIN)]);
    bench.turn();
    bench.finish();
    assert_eq!(bench.ends(), [(2, Ok(K4))]);
}

#[test]
fn it_merges_with_its_like_alone_and_all_are_answered() {
    let mut bench = bench(1);
    bench.issue(Op::Read, BioFlags::NONE, 1 << 20, K4, 0);
    for (n, flags) in [BioFlags::NOWAIT, BioFlags::NOWAIT, BioFlags::NONE].into_iter().enumerate() {
        let bio = bench.bio(Op::Read, n as u64 * 512, 512, n as u64 + 1);
        bench.queue_bio(forebay_core::Bio { flags, ..bio }, 1);
    }
    bench.unplug();
    assert_eq!(bench.ends(), [(1, AGAIN), (2, AGAIN)]);
    bench.finish();
    assert_eq!(bench.ends(), [(0, Ok(K4)), (3, Ok(512))]);
}

#[test]
fn closed_gates_stop_new_io_and_let_issued_io_end() {
    let mut bench = bench(4);
    bench.issue(Op::Read, BioFlags::NONE, 0, K4, 1);
    bench.queue.gates = Gates { dispatch: false, ..Gates::OPEN };
    bench.issue(Op::Read, BioFlags::NONE, 0, K4, 2);
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, K4, 3);
    bench.finish_running();
    assert_eq!(bench.ends(), [(3, AGAIN), (1, Ok(K4))]);
    bench.queue.gates = Gates { enter: false, ..Gates::OPEN };
    bench.issue(Op::Read, BioFlags::NONE, 0, K4, 4);
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, K4, 5);
    // Admitted bios continue. Then no admitted bio is left.
    bench.finish_running();
    assert_eq!(bench.ends(), [(5, AGAIN), (2, Ok(K4))]);
    assert!(bench.turn().is_drained());
    bench.queue.gates = Gates::OPEN;
    bench.turn();
    bench.finish();
    assert_eq!(bench.ends(), [(4, Ok(K4))]);
}

#[test]
fn a_bio_that_waited_for_a_tag_is_marked() {
    let mut bench = bench(1);
    bench.issue(Op::Read, BioFlags::NONE, 0, K4, 1);
    bench.issue(Op::Read, BioFlags::NONE, 0, K4, 2);
    bench.finish();
    let waited: Vec<_> = bench.ended.iter().map(|ended| ended.has_waited).collect();
    assert_eq!(waited, [false, true]);
    assert_eq!(bench.queue.stats().tag_waits, 1);
    assert!(bench.queue.stats().tag_wait_ns > 0);
}

#[test]
fn the_parts_of_one_that_a_busy_driver_refuses_are_answered_together() {
    let mut bench = bench(8);
    bench.toy.answers.push_back(Issue::Busy);
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, 3 * K4, 1);
    assert_eq!((bench.ends(), bench.toy.seen.len()), (vec![(1, AGAIN)], 0));
    bench.finish();
}

#[test]
fn empty_bio_does_not_open_a_closed_gate() {
    let mut bench = bench(8);
    bench.queue.gates = Gates { dispatch: false, ..Gates::OPEN };
    bench.issue(Op::Read, BioFlags::NONE, 0, K4, 1);
    bench.issue(Op::Flush, BioFlags::NOWAIT, 0, 0, 2);
    assert_eq!((bench.ends(), bench.toy.seen.len()), (vec![(2, Ok(0))], 0));
    bench.queue.gates = Gates::OPEN;
    bench.turn();
    bench.finish();
}

#[test]
fn nowait_bio_ends_at_a_closed_gate_although_nothing_waits() {
    let closed = [Gates { enter: false, ..Gates::OPEN }, Gates { dispatch: false, ..Gates::OPEN }];
    for gates in closed {
        let mut bench = bench(8);
        bench.queue.gates = gates;
        bench.issue(Op::Read, BioFlags::NOWAIT, 0, K4, 1);
        assert_eq!((bench.ends(), bench.toy.seen.len()), (vec![(1, AGAIN)], 0), "{gates:?}");
    }
}

#[test]
fn nowait_flush_ends_at_a_closed_gate_and_opens_it_for_no_other() {
    let closed = [Gates { enter: false, ..Gates::OPEN }, Gates { dispatch: false, ..Gates::OPEN }];
    for gates in closed {
        let limits = limits().volatile_cache(true);
        let mut bench = Bench::new(limits, Policy::default());
        bench.queue.gates = gates;
        bench.issue(Op::Read, BioFlags::NONE, 0, K4, 1);
        let flags = BioFlags::NOWAIT.union(BioFlags::FSYNC);
        bench.issue(Op::Flush, flags, 0, 0, 2);
        assert_eq!((bench.ends(), bench.toy.seen.len()), (vec![(2, AGAIN)], 0), "{gates:?}");
        bench.queue.gates = Gates::OPEN;
        bench.turn();
        bench.finish();
        assert_eq!(bench.ends(), [(1, Ok(K4))]);
    }
}

#[test]
fn nowait_flush_waits_for_a_busy_driver_like_any_other() {
    let limits = limits().volatile_cache(true);
    let mut bench = Bench::new(limits, Policy::default());
    for (op, flags) in [(Op::Read, BioFlags::NONE), (Op::Flush, BioFlags::NOWAIT)] {
        let len = if op == Op::Read { K4 } else { 0 };
        let bio = bench.bio(op, 0, len, len);
        bench.queue_bio(forebay_core::Bio { flags, ..bio }, 0);
    }
    bench.toy.answers.push_back(Issue::Busy);
    bench.turn();
    assert_eq!((bench.ends(), bench.toy.seen.len()), (vec![], 0));
    bench.turn();
    bench.finish();
    let mut ends = bench.ends();
    ends.sort_unstable_by_key(|end| end.0);
    assert_eq!(ends, [(0, Ok(0)), (K4, Ok(K4))]);
}

#[test]
fn nowait_bio_is_issued_in_one_turn_with_others_on_a_disk_with_a_cache() {
    let limits = limits().volatile_cache(true);
    let mut bench = Bench::new(limits, Policy::default());
    for (nth, flags) in [BioFlags::NONE, BioFlags::NOWAIT].into_iter().enumerate() {
        let bio = bench.bio(Op::Read, 0, K4, nth as u64);
        bench.queue_bio(forebay_core::Bio { flags, ..bio }, 0);
    }
    bench.turn();
    bench.finish();
    assert_eq!(bench.ends(), [(0, Ok(K4)), (1, Ok(K4))]);
}

#[test]
fn nowait_bio_does_not_pass_one_that_gathers_tags() {
    let limits = limits().max_sectors(8).rotational(true);
    let mut bench = Bench::new(limits, Policy::default().queue_depth(8));
    (0..5).for_each(|page| bench.issue(Op::Read, BioFlags::NONE, page << 20, K4, page));
    bench.issue(Op::Read, BioFlags::NONE, 9 << 20, 4 * K4, 9);
    assert_eq!((bench.toy.seen.len(), bench.queue.hctx.nr_free_tags()), (5, 3), "it needs four");
    bench.issue(Op::Read, BioFlags::NOWAIT, 10 << 20, K4, 10);
    assert_eq!(bench.ends(), [(10, AGAIN)]);
    bench.finish();
}

#[test]
fn bio_that_found_its_tags_at_once_is_not_marked_as_waiting() {
    let mut bench = bench(4);
    bench.issue(Op::Read, BioFlags::NONE, 0, 3 * K4, 1);
    bench.issue(Op::Read, BioFlags::NOWAIT, 0, K4, 2);
    bench.finish();
    let waited: Vec<_> = bench.ended.iter().map(|ended| ended.has_waited).collect();
    assert_eq!((waited, bench.queue.stats().tag_waits), (vec![false, false], 0));
}

#[test]
fn bio_that_waits_behind_one_with_a_preflush_is_marked() {
    let limits = limits().volatile_cache(true);
    let mut bench = Bench::new(limits, Policy::default().queue_depth(2));
    let preflush = BioFlags::PREFLUSH.union(BioFlags::FSYNC);
    bench.issue(Op::Write, preflush, 3 << 20, K4, 3);
    (0..2).for_each(|nth| bench.issue(Op::Read, BioFlags::NONE, nth << 20, K4, nth));
    bench.issue(Op::Read, BioFlags::NONE, 2 << 20, K4, 2);
    // The flush and both reads complete together. The data of the write go first.
    (0..3).for_each(|_| bench.toy.complete_oldest());
    bench.turn();
    assert_eq!(bench.toy.issued()[3..].iter().map(|rq| rq.1 >> 20).collect::<Vec<_>>(), [3, 2]);
    bench.finish();
    let waited = |id| bench.ended.iter().any(|end| end.user_data == id && end.has_waited);
    assert_eq!([0, 1, 2].map(waited), [false, false, true]);
}

#[test]
fn write_with_a_preflush_that_finds_a_tag_is_not_marked_as_waiting() {
    let limits = limits().volatile_cache(true);
    let mut bench = Bench::new(limits, Policy::default());
    let preflush = BioFlags::PREFLUSH.union(BioFlags::FSYNC);
    bench.issue(Op::Write, preflush, 0, K4, 1);
    bench.finish();
    assert!(!bench.ended[0].has_waited);
}
