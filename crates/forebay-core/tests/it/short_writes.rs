//! The rest of a write that came back short. A device whose counts are not exact may have written
//! it; then it goes out again only if nothing can have overtaken it.

use crate::common::{Bench, Ended, TestQueue, Toy, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, DeviceState, Op, Policy, QueueLimits, Segment, UnplugCause,
};
use std::sync::Arc;

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;
const IO: Result<u64, BlockStatus> = Err(BlockStatus::Io);

/// Limits of a device that may have written more than it counts.
fn doubtful() -> QueueLimits {
    QueueLimits { exact_counts: false, ..limits() }
}

fn bench(limits: QueueLimits) -> Bench {
    Bench::new(limits, Policy::default())
}

/// A write of four pages is at the device, which has written all of it; somebody has read it. Then
/// its third page is written anew, and that has ended.
fn overtaken(limits: QueueLimits) -> Bench {
    let mut bench = bench(limits);
    bench.issue(Op::Write, NONE, 0, 4 * K4, 0);
    bench.issue(Op::Read, NONE, 2 * K4, K4, 1);
    bench.complete(1, Ok(K4));
    bench.issue(Op::Write, NONE, 2 * K4, K4, 2);
    bench.complete(1, Ok(K4));
    assert_eq!(bench.ends(), [(1, Ok(K4)), (2, Ok(K4))]);
    bench
}

#[test]
fn what_was_overtaken_is_not_written_again_where_it_may_have_been_written() {
    let mut bench = overtaken(doubtful());
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.issued().len(), 3, "the old bytes do not come back");
    assert_eq!(bench.ends(), [(0, IO)]);
    assert_eq!(bench.queue.stats().overtaken, 1);
    bench.finish();
}

#[test]
fn it_is_where_the_device_has_not_written_it() {
    let mut bench = overtaken(limits());
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.issued()[3..], [(Op::Write, K4, 3 * K4)]);
    bench.finish();
    assert_eq!(bench.ends(), [(0, Ok(4 * K4))]);
}

#[test]
fn a_write_before_it_or_beside_its_rest_is_in_nobodys_way() {
    let mut bench = bench(doubtful());
    bench.issue(Op::Write, NONE, 0, 4 * K4, 1);
    bench.complete(0, Ok(4 * K4));
    bench.issue(Op::Write, NONE, 0, 4 * K4, 2);
    bench.issue(Op::Write, NONE, 0, K4, 3);
    bench.issue(Op::Write, NONE, 4 * K4, K4, 4);
    bench.complete(1, Ok(K4));
    bench.complete(1, Ok(K4));
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.issued()[4..], [(Op::Write, K4, 3 * K4)]);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(4 * K4)), (3, Ok(K4)), (4, Ok(K4)), (2, Ok(4 * K4))]);
}

#[test]
fn nothing_that_overlaps_the_rest_goes_out_before_its_end() {
    let mut bench = bench(doubtful());
    bench.issue(Op::Write, NONE, 0, 4 * K4, 0);
    bench.complete(0, Ok(K4));
    bench.issue(Op::Write, NONE, 3 * K4, K4, 1);
    bench.issue(Op::Write, NONE, 0, K4, 2);
    let rest = (Op::Write, K4, 3 * K4);
    assert_eq!(bench.toy.issued()[1..], [rest, (Op::Write, 0, K4)]);
    // Short once more: it is its own turn still.
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.issued()[3..], [(Op::Write, 2 * K4, 2 * K4)]);
    bench.complete(1, Ok(2 * K4));
    assert_eq!(bench.toy.issued()[4..], [(Op::Write, 3 * K4, K4)]);
    bench.finish();
    assert_eq!(bench.ends(), [(0, Ok(4 * K4)), (2, Ok(K4)), (1, Ok(K4))]);
}

#[test]
fn of_a_merged_write_the_covered_bios_end_well_and_the_rest_is_judged() {
    for overtakes in [false, true] {
        let mut bench = bench(doubtful());
        bench.plug_each(Op::Write, 0..4);
        bench.unplug();
        let start = if overtakes { 3 * K4 } else { 0 };
        bench.issue(Op::Write, NONE, start, K4, 9);
        bench.complete(1, Ok(K4));
        bench.complete(0, Ok(K4 + 512));
        bench.finish();
        let result = if overtakes { IO } else { Ok(K4) };
        let rest = [1, 2, 3].map(|n| (n, result));
        assert_eq!(bench.ends(), [(9, Ok(K4)), (0, Ok(K4)), rest[0], rest[1], rest[2]]);
    }
}

#[test]
fn a_rest_that_fails_is_tried_bio_by_bio_in_the_place_that_it_has() {
    let mut bench = bench(doubtful());
    bench.plug_each(Op::Write, 0..4);
    bench.unplug();
    bench.complete(0, Ok(K4));
    bench.complete(0, Err(BlockStatus::Medium));
    bench.issue(Op::Read, NONE, 3 * K4, K4, 9);
    assert_eq!(bench.toy.running.len(), 1, "held back");
    for result in [Ok(K4), Err(BlockStatus::Medium), Ok(K4)] {
        bench.complete(0, result);
    }
    bench.finish();
    let medium = Err(BlockStatus::Medium);
    let ends = [(0, Ok(K4)), (1, Ok(K4)), (2, medium), (3, Ok(K4)), (9, Ok(K4))];
    assert_eq!(bench.ends(), ends);
}

#[test]
fn a_flush_that_follows_the_data_holds_nothing_back() {
    let limits = QueueLimits { volatile_cache: true, ..doubtful() };
    let mut bench = bench(limits);
    bench.issue(Op::Write, BioFlags::FUA, 0, 2 * K4, 0);
    bench.complete(0, Ok(K4));
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.seen.last().map(|seen| seen.op), Some(Op::Flush));
    bench.issue(Op::Write, NONE, K4, K4, 1);
    assert_eq!(bench.toy.running.len(), 2, "the write is beside the flush");
    bench.finish();
    assert_eq!(bench.ends(), [(0, Ok(2 * K4)), (1, Ok(K4))]);
}

#[test]
fn a_part_of_a_bio_that_was_overtaken_fails_the_whole() {
    let limits = QueueLimits { max_sectors: 16, ..doubtful() };
    let mut bench = bench(limits);
    bench.issue(Op::Write, NONE, 0, 4 * K4, 0);
    assert_eq!(bench.toy.running.len(), 2);
    bench.issue(Op::Write, NONE, K4, K4, 1);
    bench.complete(2, Ok(K4));
    bench.complete(0, Ok(K4));
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(K4)), (0, IO)]);
}

/// A write of two pages is at the device by the first of two contexts, and short; what `other` has
/// done meanwhile is in the second.
fn beside(other: impl FnOnce(&mut TestQueue)) -> Vec<Ended> {
    let device = Arc::new(DeviceState::new(2));
    let queue = |index| TestQueue::with_device(doubtful(), Policy::default(), index, &device);
    let (mut one, mut two) = (queue(0), queue(1));
    let (mut toy, mut ended) = (Toy::default(), Vec::new());
    let bio = Bio::data(Op::Write, 0, Segment { addr: 1 << 20, len: 2 * K4 as u32 });
    one.queue_bio(bio, 0, 0).expect("a good bio");
    one.turn(&mut toy, 0, &mut ended);
    other(&mut two);
    toy.complete(0, Ok(K4));
    one.turn(&mut toy, 0, &mut ended);
    while !toy.running.is_empty() {
        toy.complete_oldest();
        one.turn(&mut toy, 0, &mut ended);
    }
    ended
}

#[test]
fn a_write_of_another_context_may_have_overtaken_it_and_a_read_may_not() {
    let do_one = |op: Op| {
        beside(|two| {
            let bio = Bio::data(op, 8 * K4, Segment { addr: 1 << 22, len: K4 as u32 });
            two.queue_bio(bio, 0, 0).expect("a good bio");
            two.unplug(UnplugCause::Outermost, 0, 0);
            two.turn(&mut Toy::default(), 0, &mut Vec::new());
        })
    };
    assert_eq!(do_one(Op::Write)[0].result, IO);
    assert_eq!(do_one(Op::Read)[0].result, Ok(2 * K4));
    assert_eq!(beside(|_| {})[0].result, Ok(2 * K4));
}
