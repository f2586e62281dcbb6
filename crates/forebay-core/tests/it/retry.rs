//! Tests of retries: failed merged writes are retried bio by bio, unless a write has overtaken
//! them.

use crate::common::{Bench, Ended, TestQueue, Toy, limits};
use forebay_core::{Backing, Bio, BlockStatus, DeviceState, Op, Policy, Segment, UnplugCause};
use std::sync::Arc;

const K4: u64 = 4096;
const MEDIUM: Result<u64, BlockStatus> = Err(BlockStatus::Medium);

/// Issues four neighbours as one request.
fn merged(op: Op) -> Bench {
    let mut bench = Bench::new(limits(), Policy::default());
    bench.plug_each(op, 0..4);
    bench.unplug();
    assert_eq!(bench.toy.issued(), [(op, 0, 4 * K4)]);
    bench
}

#[test]
fn a_write_with_one_bad_sector_fails_only_its_bio() {
    let mut bench = merged(Op::Write);
    bench.complete(0, MEDIUM);
    for result in [Ok(K4), MEDIUM, Ok(K4), Ok(K4)] {
        bench.complete(0, result);
    }
    assert_eq!(bench.ends(), [(0, Ok(K4)), (1, MEDIUM), (2, Ok(K4)), (3, Ok(K4))]);
    assert_eq!(bench.queue.stats().retries, 1);
}

#[test]
fn a_write_that_a_later_one_overlaps_is_not_tried_again() {
    let mut bench = merged(Op::Write);
    bench.issue(Op::Write, Default::default(), 2 * K4, K4, 9);
    bench.complete(1, Ok(K4));
    bench.complete(0, MEDIUM);
    let failed = [0, 1, 2, 3].map(|n| (n, MEDIUM));
    assert_eq!(bench.ends(), [(9, Ok(K4)), failed[0], failed[1], failed[2], failed[3]]);
    assert_eq!((bench.queue.stats().retries, bench.queue.stats().overtaken), (0, 1));
}

#[test]
fn a_read_is_repeated_after_any_later_write() {
    let mut bench = merged(Op::Read);
    bench.issue(Op::Write, Default::default(), 2 * K4, K4, 9);
    bench.complete(1, Ok(K4));
    bench.complete(0, MEDIUM);
    (0..4).for_each(|_| bench.complete(0, Ok(K4)));
    assert_eq!(bench.ends().len(), 5);
    assert_eq!(bench.queue.stats().retries, 1);
}

#[test]
fn nothing_that_overlaps_is_issued_until_the_retries_end() {
    let mut bench = merged(Op::Write);
    bench.complete(0, MEDIUM);
    // The first of the four is being tried again.
    bench.issue(Op::Read, Default::default(), 3 * K4, 2 * K4, 8);
    bench.issue(Op::Write, Default::default(), 4 * K4, K4, 9);
    assert_eq!(bench.toy.issued()[1..], [(Op::Write, 0, K4), (Op::Write, 4 * K4, K4)]);
    bench.complete(1, Ok(K4));
    for _ in 0..4 {
        assert_eq!(bench.toy.running.len(), 1);
        bench.complete(0, Ok(K4));
    }
    assert_eq!(bench.toy.issued().last(), Some(&(Op::Read, 3 * K4, 2 * K4)));
    bench.finish();
    assert_eq!(bench.ends().len(), 6);
}

#[test]
fn two_requests_that_overlap_and_fail_do_not_wait_for_each_other() {
    for op in [Op::Read, Op::Write] {
        let mut bench = merged(op);
        bench.plug_each(op, 0..4);
        bench.unplug();
        bench.complete(0, MEDIUM);
        bench.complete(0, MEDIUM);
        bench.finish();
        assert_eq!(bench.ends().len(), 8, "{op:?}");
    }
}

/// A hardware context of a device with two, and its driver.
struct Context {
    queue: TestQueue,
    toy: Toy,
    ended: Vec<Ended>,
}

impl Context {
    fn new(index: u32, device: &Arc<DeviceState>) -> Context {
        let queue = TestQueue::with_device(limits(), Policy::default(), index, device);
        Context { queue, toy: Toy::default(), ended: Vec::new() }
    }

    fn write(&mut self, start: u64, level: u32) {
        let bio = Bio::data(Op::Write, start, Segment { addr: 1 << 20, len: K4 as u32 });
        self.queue.queue_bio(bio, level, 0).expect("a good bio");
    }

    fn turn(&mut self) {
        self.queue.turn(&mut self.toy, 0, &mut self.ended);
    }

    /// Issues two neighbours as one request.
    fn write_merged(&mut self) {
        self.write(0, 1);
        self.write(K4, 1);
        self.queue.unplug(UnplugCause::Outermost, 1, 0);
        self.turn();
    }
}

#[test]
fn any_write_of_another_context_counts_and_is_held_back_meanwhile() {
    let device = Arc::new(DeviceState::new(2));
    let (mut one, mut other) = (Context::new(0, &device), Context::new(1, &device));
    one.write_merged();
    one.toy.complete(0, MEDIUM);
    one.turn();
    assert_eq!(one.queue.stats().retries, 1, "nobody has written since");
    other.write(K4, 0);
    other.turn();
    assert!(other.toy.seen.is_empty(), "what overlaps is held back");
    one.toy.complete_oldest();
    one.turn();
    one.toy.complete_oldest();
    one.turn();
    assert_eq!(one.ended.len(), 2);
    other.turn();
    assert_eq!(other.toy.seen.len(), 1);
    // Now the other context writes while a merged write is in flight.
    one.write_merged();
    other.write(1 << 20, 0);
    other.turn();
    one.toy.complete(0, MEDIUM);
    one.turn();
    assert_eq!(one.queue.stats().overtaken, 1);
    assert!(one.ended[2..].iter().all(|ended| ended.result == MEDIUM));
}

#[test]
fn retry_of_one_disk_does_not_undo_a_newer_write_of_another_on_the_same_file() {
    let backing = Backing::shared(1);
    let disk = || Arc::new(DeviceState::on(&backing, 1));
    let (mut one, mut other) = (Context::new(0, &disk()), Context::new(0, &disk()));
    one.write_merged();
    other.write(K4, 0);
    other.turn();
    other.toy.complete_oldest();
    other.turn();
    assert_eq!(other.ended.len(), 1);
    one.toy.complete(0, MEDIUM);
    one.turn();
    assert_eq!((one.queue.stats().retries, one.queue.stats().overtaken), (0, 1), "A2");
    assert_eq!(one.toy.seen.len(), 1, "the older bytes are not written again");
    assert!(one.ended.iter().all(|ended| ended.result == MEDIUM) && one.ended.len() == 2);
    // If the other disk has not written since, its write is held back until the retries end.
    one.write_merged();
    one.toy.complete(0, MEDIUM);
    one.turn();
    assert_eq!(one.queue.stats().retries, 1);
    other.write(K4, 0);
    other.turn();
    assert_eq!(other.toy.seen.len(), 1, "A1");
    for _ in 0..2 {
        one.toy.complete_oldest();
        one.turn();
    }
    other.turn();
    assert_eq!(other.toy.seen.len(), 2);
}

#[test]
fn a_gone_device_stays_gone_until_it_is_revived() {
    let mut bench = Bench::new(limits(), Policy::default().queue_depth(4));
    for n in 0..1000 {
        let bio = bench.bio(Op::Read, n * 2 * K4, K4, n);
        bench.queue_bio(bio, 0);
    }
    bench.turn();
    bench.complete(0, Err(BlockStatus::Offline));
    assert!(bench.queue.device.is_failed());
    // Requests at the driver end with its result; all others end at once.
    assert_eq!((bench.ended.len(), bench.toy.seen.len()), (997, 4));
    bench.finish();
    let mut ends = bench.ends();
    ends.sort_by_key(|end| end.0);
    assert!(ends.iter().map(|end| end.0).eq(0..1000));
    assert_eq!(ends.iter().filter(|end| end.1 == Err(BlockStatus::Offline)).count(), 997);
    bench.issue(Op::Read, Default::default(), 0, K4, 1);
    assert_eq!(bench.ends(), [(1, Err(BlockStatus::Offline))]);
    bench.queue.device.revive();
    bench.issue(Op::Read, Default::default(), 0, K4, 2);
    bench.finish();
    assert_eq!(bench.ends(), [(2, Ok(K4))]);
}

/// Policies of a context that issues new requests on its fast path, and by the full rules.
fn ways() -> [Policy; 2] {
    [Policy::default(), Policy::default().nr_reserved(1)]
}

/// Writes four pages and another place, under two tags, and completes both. The next request takes
/// the tag of the second.
fn write_under_another_tag(bench: &mut Bench) {
    bench.issue(Op::Write, Default::default(), 0, 4 * K4, 10);
    bench.issue(Op::Write, Default::default(), 1 << 20, K4, 11);
    bench.finish();
    bench.ends();
}

#[test]
fn write_that_ended_before_a_merged_one_was_issued_has_not_overtaken_it() {
    for policy in ways() {
        let mut bench = Bench::new(limits(), policy);
        write_under_another_tag(&mut bench);
        bench.plug_each(Op::Write, 0..4);
        bench.unplug();
        bench.complete(0, MEDIUM);
        (0..4).for_each(|_| bench.complete(0, Ok(K4)));
        assert_eq!(bench.ends(), [0, 1, 2, 3].map(|n| (n, Ok(K4))));
        assert_eq!(bench.queue.stats().overtaken, 0);
    }
}

#[test]
fn write_that_ended_before_a_doubtful_one_was_issued_has_not_overtaken_its_rest() {
    for policy in ways() {
        let mut bench = Bench::new(limits().exact_counts(false), policy);
        write_under_another_tag(&mut bench);
        bench.issue(Op::Write, Default::default(), 0, 4 * K4, 1);
        bench.complete(0, Ok(K4));
        bench.finish();
        assert_eq!((bench.ends(), bench.queue.stats().overtaken), (vec![(1, Ok(4 * K4))], 0));
    }
}

#[test]
fn writes_that_overtake_others_are_found_by_the_full_rules_too() {
    for policy in ways() {
        for exact_counts in [false, true] {
            let mut bench = Bench::new(limits().exact_counts(exact_counts), policy);
            bench.plug_each(Op::Write, 0..2);
            bench.unplug();
            bench.issue(Op::Write, Default::default(), K4, K4, 9);
            bench.complete(1, Ok(K4));
            let result = if exact_counts { MEDIUM } else { Ok(512) };
            bench.complete(0, result);
            bench.finish_running();
            assert_eq!(bench.queue.stats().overtaken, 1);
            assert!(bench.ends()[1..].iter().all(|end| end.1.is_err()));
        }
    }
}

#[test]
fn rest_of_a_short_read_holds_no_write_back() {
    let mut bench = Bench::new(limits().exact_counts(false), Policy::default());
    bench.issue(Op::Read, Default::default(), 0, 2 * K4, 1);
    bench.complete(0, Ok(K4));
    bench.issue(Op::Write, Default::default(), K4, K4, 2);
    assert_eq!(bench.toy.running.len(), 2);
    bench.finish();
}

#[test]
fn wait_beside_a_retry_does_not_count_on_the_bios_that_follow_it() {
    let mut bench = merged(Op::Read);
    bench.complete(0, MEDIUM);
    bench.issue(Op::Read, Default::default(), 1 << 20, K4, 9);
    for _ in 0..3 {
        assert_eq!((bench.toy.running.len(), bench.queue.hctx.prepare_wait(5)), (2, 1));
        let retry = bench.toy.running.iter().position(|&at| bench.toy.seen[at].start < 1 << 20);
        bench.complete(retry.expect("it is running"), Ok(K4));
    }
    // Any request at the driver may join four bios, as the failed one did.
    assert_eq!(bench.queue.hctx.prepare_wait(5), 2, "nothing follows the last");
    bench.finish();
    assert_eq!(bench.ends().len(), 5);
}

#[test]
fn disk_of_many_contexts_prevents_retries_on_its_file_only_while_it_is_open() {
    let backing = Backing::shared(1);
    let mut one = Context::new(0, &Arc::new(DeviceState::on(&backing, 1)));
    // More contexts than there are write counts.
    let large = DeviceState::on(&backing, 1000);
    one.write_merged();
    one.toy.complete(0, MEDIUM);
    one.turn();
    assert_eq!((one.queue.stats().retries, one.queue.stats().overtaken), (0, 1));
    drop(large);
    one.write_merged();
    one.toy.complete(0, MEDIUM);
    one.turn();
    assert_eq!((one.queue.stats().retries, one.queue.stats().overtaken), (1, 1));
}
