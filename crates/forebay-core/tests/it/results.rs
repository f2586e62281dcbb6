//! Tests that merging, splitting and steps do not change a result: short counts, failures, flushes.

use crate::common::{Bench, limits};
use forebay_core::{BioFlags, BlockStatus, Issue, Op, Policy, Tag};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

fn bench() -> Bench {
    Bench::new(limits(), Policy::default())
}

/// Issues four neighbours as one request.
fn merged(op: Op) -> Bench {
    let mut bench = bench();
    bench.plug_each(op, 0..4);
    bench.unplug();
    assert_eq!(bench.toy.seen.len(), 1);
    bench
}

#[test]
fn a_short_count_ends_the_covered_bios_and_continues_with_the_rest() {
    let mut bench = merged(Op::Read);
    bench.complete(0, Ok(K4 + 512));
    assert_eq!(bench.ends(), [(0, Ok(K4))]);
    let rest = bench.toy.seen[1].clone();
    assert_eq!((rest.start, rest.len, rest.nr_bios), (K4 + 512, 3 * K4 - 512, 3));
    assert_eq!(rest.tag, bench.toy.seen[0].tag, "under the same tag");
    assert_eq!(rest.segments[0].addr, bench.toy.seen[0].segments[1].addr + 512);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(K4)), (2, Ok(K4)), (3, Ok(K4))]);
}

#[test]
fn a_count_of_zero_is_the_end_of_the_file_for_a_read_only() {
    let mut bench = merged(Op::Read);
    bench.complete(0, Ok(2 * K4 + 100));
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends(), [(0, Ok(K4)), (1, Ok(K4)), (2, Ok(100)), (3, Ok(0))]);
    let mut bench = merged(Op::Write);
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends(), [0, 1, 2, 3].map(|n| (n, Err(BlockStatus::Io))));
}

#[test]
fn a_read_with_one_bad_sector_fails_only_its_bio() {
    for status in [BlockStatus::Medium, BlockStatus::Io] {
        let mut bench = merged(Op::Read);
        bench.complete(0, Err(status));
        for n in 0..4 {
            assert_eq!(bench.toy.running.len(), 1, "one after another, under one tag");
            let retry = bench.toy.seen.last().expect("it is running");
            assert_eq!(retry.ranges, [(n * K4, K4)], "a retry covers one bio");
            bench.complete(0, if n == 2 { Err(status) } else { Ok(K4) });
        }
        let expected = [(0, Ok(K4)), (1, Ok(K4)), (2, Err(status)), (3, Ok(K4))];
        assert_eq!(bench.ends(), expected);
        assert_eq!(bench.toy.seen.len(), 5);
        assert_eq!(bench.queue.stats().retries, 1);
    }
}

#[test]
fn failures_that_are_of_no_single_bio_are_not_tried_again() {
    for (op, status) in [
        (Op::Read, BlockStatus::Timeout),
        (Op::Read, BlockStatus::Offline),
        (Op::Write, BlockStatus::NoSpace),
    ] {
        let mut bench = merged(op);
        bench.complete(0, Ok(K4));
        bench.complete(0, Err(status));
        let mut expected = vec![(0, Ok(K4))];
        expected.extend([1, 2, 3].map(|n| (n, Err(status))));
        assert_eq!(bench.ends(), expected, "what a count proved stays proved");
        assert_eq!(bench.toy.seen.len(), 2);
    }
}

/// Issues a bio of three parts.
fn split(op: Op, flags: BioFlags) -> Bench {
    let limits = limits().max_sectors(8).volatile_cache(true);
    let mut bench = Bench::new(limits, Policy::default());
    bench.issue(op, flags, 0, 3 * K4, 7);
    bench
}

#[test]
fn a_split_bio_ends_once_with_the_result_of_its_lowest_failure() {
    let io = Err(BlockStatus::Io);
    let medium = Err(BlockStatus::Medium);
    type Case = ([Result<u64, BlockStatus>; 3], Result<u64, BlockStatus>);
    let cases: [Case; 6] = [
        ([Ok(K4), Ok(K4), Ok(K4)], Ok(3 * K4)),
        ([Ok(K4), io, Ok(K4)], io),
        ([Ok(K4), io, medium], io),
        ([Ok(K4), Ok(K4), Ok(0)], Ok(2 * K4)),
        ([Ok(K4), Ok(0), Ok(0)], Ok(K4)),
        ([Ok(K4), Ok(0), io], Ok(K4)),
    ];
    for (results, expected) in cases {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut bench = split(Op::Read, NONE);
            assert_eq!(bench.toy.running, [0, 1, 2]);
            for part in order {
                assert_eq!(bench.ends(), []);
                let nth = bench.toy.running.iter().position(|nth| *nth == part).unwrap();
                bench.complete(nth, results[part]);
            }
            assert_eq!(bench.ends(), [(7, expected)], "{results:?} {order:?}");
        }
    }
}

#[test]
fn a_bio_of_more_parts_than_tags_is_cut_as_tags_come_free() {
    let limits = limits().max_sectors(8);
    let mut bench = Bench::new(limits, Policy::default().queue_depth(2));
    bench.issue(Op::Write, NONE, 0, 1000 * K4, 7);
    assert_eq!(bench.toy.running.len(), 2);
    bench.finish();
    assert_eq!(bench.toy.seen.len(), 1000);
    assert_eq!(bench.ends(), [(7, Ok(1000 * K4))]);
    assert_eq!(bench.queue.stats().splits, 999);
}

#[test]
fn a_durable_write_takes_its_steps_in_order() {
    let all = BioFlags::FUA.union(BioFlags::PREFLUSH);
    let ops = |cache, fua, flags| {
        let limits = limits().volatile_cache(cache).fua(fua);
        let mut bench = Bench::new(limits, Policy::default());
        bench.issue(Op::Write, flags, 0, K4, 7);
        bench.finish();
        assert_eq!(bench.ends(), [(7, Ok(K4))]);
        let of_flush = |tag: Tag| tag.index() == Policy::default().queue_depth as usize;
        assert!(
            bench.toy.seen.iter().all(|seen| of_flush(seen.tag) == (seen.op == Op::Flush)),
            "flushes have a tag of their own"
        );
        bench.toy.seen.iter().map(|seen| (seen.op, seen.fua)).collect::<Vec<_>>()
    };
    let (flush, write) = ((Op::Flush, false), (Op::Write, false));
    assert_eq!(ops(true, false, all), [flush, write, flush]);
    assert_eq!(ops(true, true, all), [flush, (Op::Write, true)]);
    assert_eq!(ops(true, true, NONE), [write]);
    assert_eq!(ops(false, true, all), [write]);
}

#[test]
fn a_short_durable_write_is_flushed_after_its_last_byte() {
    let mut bench = split(Op::Write, BioFlags::FUA);
    bench.complete(0, Ok(512));
    bench.finish();
    let ops: Vec<Op> = bench.toy.seen.iter().map(|seen| seen.op).collect();
    let writes = [Op::Write; 4];
    assert_eq!(ops[..4], writes, "three parts, and the rest of the first");
    assert_eq!(ops[4..], [Op::Flush], "one flush for all parts");
    assert_eq!(bench.ends(), [(7, Ok(3 * K4))]);
}

#[test]
fn a_failed_flush_fails_the_bio_before_and_after_its_data() {
    for failing in 0..3 {
        let limits = limits().volatile_cache(true);
        let mut bench = Bench::new(limits, Policy::default());
        bench.issue(Op::Write, BioFlags::FUA.union(BioFlags::PREFLUSH), 0, K4, 7);
        for _ in 0..failing {
            bench.toy.complete_oldest();
            bench.turn();
        }
        bench.complete(0, Err(BlockStatus::Io));
        assert_eq!(bench.ends(), [(7, Err(BlockStatus::Io))], "step {failing}");
        assert_eq!(bench.toy.seen.len(), failing + 1, "and nothing follows");
    }
}

#[test]
fn a_flush_reaches_the_device_only_if_there_is_a_cache() {
    for (volatile_cache, flushes) in [(true, 1), (false, 0)] {
        let limits = limits().volatile_cache(volatile_cache);
        let mut bench = Bench::new(limits, Policy::default());
        bench.issue(Op::Flush, NONE, 0, 0, 7);
        bench.finish();
        assert_eq!(bench.toy.seen.len(), flushes);
        assert_eq!(bench.ends(), [(7, Ok(0))]);
    }
    let limits = limits().volatile_cache(true);
    let mut bench = Bench::new(limits, Policy::default());
    bench.issue(Op::Flush, NONE, 0, 0, 7);
    bench.complete(0, Err(BlockStatus::Io));
    assert_eq!(bench.ends(), [(7, Err(BlockStatus::Io))]);
}

#[test]
fn a_busy_driver_gets_the_same_request_again_in_the_same_order() {
    let mut bench = bench();
    bench.toy.answers.extend([Issue::Queued, Issue::Busy]);
    bench.plug_each(Op::Read, [0, 10, 20]);
    bench.unplug();
    assert_eq!(bench.toy.seen.len(), 1);
    assert_eq!(bench.toy.nr_commits, 1, "what was taken is committed");
    assert!(bench.turn().nr_in_flight() == 3);
    assert!(bench.toy.seen.is_sorted_by_key(|seen| seen.start));
    assert_eq!(bench.queue.stats().requeues, 1);
    bench.finish();
    assert_eq!(bench.ends().len(), 3);
}

#[test]
fn a_request_that_the_driver_will_never_take_ends_its_bios() {
    let mut bench = bench();
    bench.toy.answers.push_back(Issue::Failed(BlockStatus::Offline));
    bench.plug_each(Op::Read, 0..3);
    bench.unplug();
    assert_eq!(bench.ends(), [0, 1, 2].map(|n| (n, Err(BlockStatus::Offline))));
    assert_eq!(bench.queue.nr_bios(), 0);
}

#[test]
fn an_empty_bio_ends_without_the_driver() {
    let mut bench = bench();
    bench.issue(Op::Read, NONE, 4096, 0, 7);
    assert_eq!(bench.ends(), [(7, Ok(0))]);
    assert!(bench.toy.seen.is_empty());
}

#[test]
fn a_wait_asks_for_as_many_completions_as_are_needed_and_can_come() {
    let mut bench = Bench::new(limits(), Policy::default().queue_depth(8));
    (0..8).for_each(|n| bench.issue(Op::Read, NONE, n * 2 * K4, K4, n));
    assert_eq!(bench.queue.hctx.prepare_wait(5), 5);
    assert_eq!(bench.queue.hctx.prepare_wait(50), 8, "no more than are in flight");
    bench.issue(Op::Read, NONE, 1 << 20, K4, 9);
    assert_eq!(
        bench.queue.hctx.prepare_wait(5),
        1,
        "one waits for a tag, and may be among the five"
    );
    bench.finish();
    bench.plug_each(Op::Read, 0..4);
    bench.unplug();
    bench.issue(Op::Read, NONE, 1 << 20, K4, 9);
    assert_eq!(bench.queue.hctx.prepare_wait(5), 2, "four bios may end at once");
    bench.finish();
    let limits = limits().volatile_cache(true);
    let mut bench = Bench::new(limits, Policy::default());
    bench.issue(Op::Read, NONE, 0, K4, 1);
    bench.issue(Op::Write, BioFlags::FUA, K4, K4, 2);
    assert_eq!(bench.queue.hctx.prepare_wait(2), 1, "a flush follows the write");
    bench.complete(1, Ok(K4));
    assert_eq!(bench.queue.hctx.prepare_wait(2), 2, "the flush is the last");
}

#[test]
fn a_malformed_read_does_not_take_its_neighbours_along() {
    let mut bench = merged(Op::Read);
    bench.complete(0, Err(BlockStatus::Invalid));
    for n in 0..4 {
        bench.complete(0, if n == 1 { Err(BlockStatus::Invalid) } else { Ok(K4) });
    }
    let expected = [(0, Ok(K4)), (1, Err(BlockStatus::Invalid)), (2, Ok(K4)), (3, Ok(K4))];
    assert_eq!(bench.ends(), expected);
}
