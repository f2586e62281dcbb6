//! Tests of what a driver receives in a turn, and of the moments and points of a turn.

use crate::common::{Bench, limits};
use forebay_core::{Bio, BioFlags, BlockStatus, Issue, Op, Policy, QueuedBio};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

fn cached() -> Bench {
    Bench::new(limits().volatile_cache(true), Policy::default())
}

#[test]
fn only_the_last_request_of_a_batch_is_marked_as_the_last() {
    for limits in [limits(), limits().max_sectors(8)] {
        // Three requests: of three bios, and parts of one.
        let mut bench = Bench::new(limits, Policy::default());
        match limits.max_sectors {
            8 => bench.issue(Op::Read, NONE, 0, 3 * K4, 1),
            _ => {
                bench.plug_each(Op::Read, [0, 10, 20]);
                bench.unplug();
            }
        }
        let last: Vec<bool> = bench.toy.seen.iter().map(|seen| seen.last).collect();
        assert_eq!(last, [false, false, true]);
        bench.finish();
    }
}

#[test]
fn request_that_was_queued_again_is_not_the_last_before_others() {
    let mut bench = Bench::new(limits(), Policy::default());
    bench.toy.answers.push_back(Issue::Busy);
    bench.plug_each(Op::Read, [0, 10]);
    bench.unplug();
    bench.turn();
    let last: Vec<bool> = bench.toy.seen.iter().map(|seen| seen.last).collect();
    assert_eq!(last, [false, true]);
    bench.finish();
}

#[test]
fn flush_of_all_metadata_is_marked_and_a_write_is_not() {
    let mut bench = cached();
    for (nth, flags) in [(0, NONE), (1, BioFlags::FSYNC)] {
        bench.issue(Op::Write, flags.union(BioFlags::FUA), 0, K4, 0);
        bench.finish();
        bench.issue(Op::Flush, flags, 0, 0, 0);
        bench.finish();
        let flush = bench.toy.seen.last().expect("it is the last");
        assert_eq!((flush.op, flush.metadata), (Op::Flush, nth == 1));
    }
    let writes = bench.toy.seen.iter().filter(|seen| seen.op == Op::Write);
    assert!(writes.clone().count() == 2 && writes.clone().all(|seen| !seen.metadata));
}

#[test]
fn request_has_the_owner_of_its_first_bio() {
    let mut bench = Bench::new(limits(), Policy::default());
    for owner in [7, 8] {
        let mut queued = QueuedBio::new(owner, 0);
        queued.fill(bench.bio(Op::Read, owner * K4, K4, owner));
        bench.queue.queue_box(queued, 1);
    }
    bench.unplug();
    assert_eq!((bench.toy.seen.len(), bench.toy.seen[0].owner), (1, 7));
    bench.finish();
}

#[test]
fn box_keeps_a_pointer_for_its_holder() {
    let (mut one, mut other) = (QueuedBio::new(1, 0), QueuedBio::new(1, 1));
    assert!(one.link_mut().is_null());
    *one.link_mut() = &raw mut *other;
    assert_eq!(*one.link_mut(), &raw mut *other);
}

#[test]
fn write_on_a_disk_without_a_cache_is_durable_when_it_ends() {
    let mut bench = Bench::new(limits(), Policy::default());
    let bio = bench.bio(Op::Write, 0, K4, 1);
    bench.queue_bio(bio, 0);
    bench.queue.turn_on(&mut bench.toy, 20);
    bench.toy.complete_oldest();
    let ends = bench.queue.turn_on(&mut bench.toy, 30);
    assert_eq!(ends, [(1, Op::Write, Ok(K4), 0)]);
}

#[test]
fn write_that_ends_after_the_issue_of_a_flush_has_a_later_point() {
    let mut bench = cached();
    let queue = |bench: &mut Bench, op, start, user_data| {
        let len = if op == Op::Flush { 0 } else { K4 };
        let bio = bench.bio(op, start, len, user_data);
        bench.queue_bio(bio, 0);
    };
    queue(&mut bench, Op::Write, 0, 1);
    bench.queue.turn_on(&mut bench.toy, 20);
    bench.toy.complete_oldest();
    // In one turn: the write ends, a flush is issued, and the driver refuses another write.
    queue(&mut bench, Op::Flush, 0, 2);
    queue(&mut bench, Op::Write, K4, 3);
    bench.toy.answers.extend([Issue::Queued, Issue::Failed(BlockStatus::Io)]);
    let ends = bench.queue.turn_on(&mut bench.toy, 30);
    let [(1, Op::Write, Ok(K4), before), (3, Op::Write, Err(BlockStatus::Io), after)] = ends[..]
    else {
        panic!("{ends:?}")
    };
    assert!(before < after, "the flush may have missed what the refused write has changed");
    bench.toy.complete_oldest();
    bench.queue.turn_on(&mut bench.toy, 40);
    let durability = bench.queue.device.durability();
    assert!(durability.is_durable(before) && !durability.is_durable(after));
}

#[test]
fn flush_is_issued_at_the_deadline_of_its_turn() {
    let policy = Policy::default().flush_pending_ns(1000);
    let mut bench = Bench::new(limits().volatile_cache(true), policy);
    bench.issue(Op::Write, BioFlags::FUA, 0, K4, 1);
    bench.issue(Op::Flush, BioFlags::FSYNC, 0, 0, 2);
    let deadline = bench.turn().deadline().expect("the flush waits for the write");
    assert_eq!(bench.turn_at(deadline - 1).deadline(), Some(deadline));
    assert_eq!((bench.turn_at(deadline).deadline(), bench.toy.running.len()), (None, 2), "F6");
    bench.finish();
}

#[test]
fn preflush_that_is_elided_leaves_the_order_of_the_others() {
    let policy = Policy::default().elide(true);
    let mut bench = Bench::new(limits().volatile_cache(true), policy);
    bench.issue(Op::Flush, NONE, 0, 0, 0);
    bench.finish();
    // Nothing was written since, so there is nothing to flush.
    bench.ends();
    for page in 1..=2 {
        let bio = bench.bio(Op::Write, page << 20, K4, page);
        bench.queue_bio(Bio { flags: BioFlags::PREFLUSH, ..bio }, 0);
    }
    let read = bench.bio(Op::Read, 3 << 20, K4, 3);
    bench.queue_bio(read, 0);
    bench.turn();
    bench.finish();
    let mut pages: Vec<u64> = bench.ends().iter().map(|end| end.0).collect();
    pages.sort_unstable();
    assert_eq!((pages, bench.queue.stats().flushes_issued), (vec![1, 2, 3], 1));
}

#[test]
fn writes_that_complete_together_have_one_point() {
    let mut bench = cached();
    for nth in 0..2 {
        let bio = bench.bio(Op::Write, nth << 20, K4, nth);
        bench.queue_bio(bio, 0);
    }
    bench.queue.turn_on(&mut bench.toy, 20);
    (0..2).for_each(|_| bench.toy.complete_oldest());
    let ends = bench.queue.turn_on(&mut bench.toy, 30);
    assert_eq!(ends.len(), 2);
    assert!(ends[0].3 > 0 && ends[0].3 == ends[1].3, "one flush is enough for both: {ends:?}");
}
