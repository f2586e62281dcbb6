//! Tests of the flush machine: joining, waiting, eliding, and reporting failures.

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Emulation, FlushPolicy, Gates, Issue, LostWrites, Op, Policy,
    QueueLimits, WakePolicy,
};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

fn cached() -> QueueLimits {
    limits().volatile_cache(true)
}

fn bench() -> Bench {
    Bench::new(cached(), Policy::default())
}

impl Bench {
    fn write(&mut self, page: u64) {
        self.issue(Op::Write, NONE, page * K4, K4, page);
    }

    fn flush(&mut self, user_data: u64) {
        self.issue(Op::Flush, NONE, 0, 0, user_data);
    }

    fn wait_for(&mut self, point: u64, user_data: u64) {
        assert!(self.queue_bio(Bio { user_data, ..Bio::flush_up_to(point) }, 0));
        self.turn();
    }

    /// Writes a page and completes the write. Returns the newest durable point.
    fn wrote(&mut self, page: u64) -> u64 {
        self.write(page);
        let last = self.toy.running.len() - 1;
        self.complete(last, Ok(K4));
        self.queue.device.durability().point()
    }

    fn ops(&self) -> Vec<Op> {
        self.toy.seen.iter().map(|seen| seen.op).collect()
    }

    /// Returns the counts of flushes: asked, issued, joined, elided, refused.
    fn flush_stats(&self) -> [u64; 5] {
        let stats = self.queue.stats();
        [
            stats.flushes_asked,
            stats.flushes_issued,
            stats.flushes_joined,
            stats.flushes_elided,
            stats.flushes_refused,
        ]
    }
}

#[test]
fn flushes_that_come_while_one_runs_share_the_next() {
    let mut bench = bench();
    (1..=5).for_each(|n| bench.flush(n));
    assert_eq!(bench.ops(), [Op::Flush], "F1");
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends(), [(1, Ok(0))], "F2: those that came later may not join it");
    assert_eq!(bench.ops(), [Op::Flush; 2]);
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends(), [(2, Ok(0)), (3, Ok(0)), (4, Ok(0)), (5, Ok(0))]);
    assert_eq!(bench.flush_stats(), [5, 2, 3, 0, 0]);
}

#[test]
fn a_flush_takes_no_tag_of_others() {
    let policy = Policy::default().queue_depth(1);
    let mut bench = Bench::new(cached(), policy);
    bench.write(1);
    (2..=4).for_each(|n| bench.flush(n));
    assert_eq!(bench.ops(), [Op::Write, Op::Flush]);
    bench.complete(0, Ok(K4));
    bench.write(5);
    assert_eq!(bench.ops(), [Op::Write, Op::Flush, Op::Write]);
    bench.finish();
    assert_eq!(bench.ends().len(), 5);
}

#[test]
fn a_waiter_for_a_point_joins_a_flush_that_was_issued_after_it() {
    let mut bench = bench();
    let old = bench.wrote(1);
    bench.flush(2);
    let late = bench.wrote(3);
    bench.wait_for(old, 4);
    bench.wait_for(late, 5);
    bench.ends();
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends(), [(2, Ok(0)), (4, Ok(0))]);
    bench.finish();
    assert_eq!(bench.ends(), [(5, Ok(0))]);
    bench.wait_for(old, 6);
    assert_eq!(bench.ends(), [(6, Ok(0))], "it is durable, whoever asked for the flush");
    assert_eq!(bench.flush_stats(), [4, 2, 1, 1, 0]);
}

#[test]
fn a_point_from_elsewhere_stands_for_now() {
    let mut bench = bench();
    bench.wrote(1);
    bench.wait_for(u64::MAX, 2);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(K4)), (2, Ok(0))]);
}

#[test]
fn a_flush_is_elided_only_by_permission_and_only_if_nothing_has_ended_since() {
    for (elide, expected) in [(false, [4, 4, 0, 0, 0]), (true, [4, 3, 0, 1, 0])] {
        let mut bench = Bench::new(cached(), Policy::default().elide(elide));
        bench.wrote(1);
        bench.flush(2);
        bench.finish();
        bench.flush(3);
        bench.finish();
        // A failed write may have changed the device, too.
        bench.write(4);
        bench.complete(0, Err(BlockStatus::Io));
        bench.flush(5);
        bench.finish();
        assert!(bench.queue_bio(Bio { user_data: 6, ..Bio::fsync() }, 0));
        bench.turn();
        assert_eq!(bench.toy.running.len(), 1, "an fsync is more than a flush");
        bench.finish();
        assert_eq!(bench.flush_stats(), expected, "elide={elide}");
    }
}

#[test]
fn write_that_ends_during_a_flush_is_not_durable_by_it() {
    let mut bench = Bench::new(cached(), Policy::default().elide(true));
    bench.flush(1);
    let late = bench.wrote(2);
    bench.complete(0, Ok(0));
    assert!(!bench.queue.device.durability().is_durable(late));
    bench.flush(3);
    assert_eq!(bench.toy.running.len(), 1, "it is not elided");
}

#[test]
fn a_write_that_is_durable_as_it_ends_has_no_point() {
    let mut bench = Bench::new(cached().fua(true), Policy::default());
    bench.issue(Op::Write, BioFlags::FUA, 0, K4, 1);
    bench.complete(0, Ok(K4));
    let before = bench.queue.device.durability().point();
    bench.issue(Op::Write, BioFlags::FUA, 0, K4, 1);
    bench.complete(0, Err(BlockStatus::Io));
    let now = bench.queue.device.durability().point();
    assert_eq!((before, now), (1, 2), "but one that failed has");
}

#[test]
fn a_failed_flush_fails_its_waiters_and_later_waiters_for_lost_data() {
    let mut bench = bench();
    let safe = bench.wrote(1);
    bench.flush(2);
    bench.complete(0, Ok(0));
    let lost = bench.wrote(3);
    bench.flush(4);
    bench.flush(5);
    bench.ends();
    bench.complete(0, Err(BlockStatus::Medium));
    let told = [(4, Err(BlockStatus::Medium)), (5, Err(BlockStatus::Io))];
    assert_eq!(bench.ends(), told, "F3; and it is not tried again in silence");
    assert!(bench.toy.running.is_empty());
    bench.flush(6);
    bench.wait_for(lost, 7);
    bench.wait_for(safe, 8);
    bench.issue(Op::Write, BioFlags::PREFLUSH, 0, K4, 9);
    let sticky = Err(BlockStatus::Io);
    assert_eq!(bench.ends(), [(6, sticky), (7, sticky), (8, Ok(0)), (9, sticky)]);
    // A FUA write issued now does not depend on that loss.
    bench.issue(Op::Write, BioFlags::FUA, 0, K4, 10);
    bench.finish();
    assert_eq!(bench.ends(), [(10, Ok(K4))]);
    let durability = bench.queue.device.durability();
    assert_eq!(durability.acknowledge_loss(), Some(LostWrites { after: safe, up_to: lost }));
    bench.flush(11);
    bench.finish();
    assert_eq!(bench.ends(), [(11, Ok(0))]);
}

#[test]
fn write_in_flight_when_a_flush_fails_is_lost_too() {
    for (flags, is_short) in
        [(NONE, false), (NONE, true), (BioFlags::FUA, false), (BioFlags::FUA, true)]
    {
        let mut bench = bench();
        bench.flush(1);
        bench.issue(Op::Write, flags, 0, K4, 2);
        if is_short {
            bench.complete(1, Ok(512));
        }
        bench.complete(0, Err(BlockStatus::Io));
        assert_eq!(bench.ends(), [(1, Err(BlockStatus::Io))]);
        bench.complete(0, Ok(if is_short { K4 - 512 } else { K4 }));
        // The data may have been dropped, and another flush would not restore them.
        let result = if flags == NONE { Ok(K4) } else { Err(BlockStatus::Io) };
        assert_eq!(bench.ends(), [(2, result)]);
        bench.flush(3);
        assert_eq!(bench.ends(), [(3, Err(BlockStatus::Io))]);
        // The loss does not affect later writes.
        assert!(bench.queue.device.durability().acknowledge_loss().is_some());
        bench.wrote(4);
        bench.flush(5);
        bench.finish();
        assert_eq!(bench.ends().last(), Some(&(5, Ok(0))));
    }
}

#[test]
fn a_flush_that_never_reaches_the_device_fails_as_one_that_did() {
    let mut bench = bench();
    bench.wrote(1);
    bench.toy.answers.push_back(Issue::Failed(BlockStatus::NotSupported));
    bench.flush(2);
    assert_eq!(bench.ends(), [(1, Ok(K4)), (2, Err(BlockStatus::NotSupported))]);
    assert!(bench.queue.device.durability().lost().is_some());
}

#[test]
fn a_flush_waits_for_writes_that_need_one_but_not_for_ever() {
    let policy = Policy::default().flush_pending_ns(100);
    let mut bench = Bench::new(cached(), policy);
    bench.issue(Op::Write, BioFlags::FUA, 0, K4, 1);
    bench.flush(2);
    assert_eq!(bench.ops(), [Op::Write], "one flush will do for both");
    bench.complete(0, Ok(K4));
    assert_eq!(bench.ops(), [Op::Write, Op::Flush]);
    bench.finish();
    assert_eq!(bench.flush_stats(), [2, 1, 1, 0, 0]);
    bench.issue(Op::Write, BioFlags::FUA, 0, K4, 3);
    bench.flush(4);
    (0..20).for_each(|_| _ = bench.turn());
    assert_eq!(bench.toy.running.len(), 2, "F6");
}

/// Issues writes and flushes to a device that executes a flush only alone. Returns the operations
/// that it received, in order.
fn alone(flush: FlushPolicy) -> (Bench, Vec<Op>) {
    let limits = cached().flush_queueable(false);
    let mut bench = Bench::new(limits, Policy::default().flush(flush));
    bench.flush(1);
    bench.flush(2);
    bench.toy.answers.push_back(Issue::Busy);
    bench.write(3);
    bench.toy.answers.clear();
    // The device has the write, and is busy for the next request.
    if flush == FlushPolicy::Tail {
        bench.toy.answers.extend([Issue::Queued, Issue::Busy]);
    }
    bench.complete(0, Ok(0));
    bench.toy.answers.clear();
    bench.turn();
    bench.finish();
    let ops = bench.ops();
    (bench, ops)
}

#[test]
fn the_queue_is_held_while_a_flush_runs_that_the_device_takes_only_by_itself() {
    let flushes_first = [Op::Flush, Op::Flush, Op::Write];
    let (mut bench, ops) = alone(FlushPolicy::Hold);
    assert_eq!((ops.as_slice(), bench.queue.stats().requeues), (&flushes_first[..], 0));
    assert_eq!(bench.ends().len(), 3, "F5: and let go");
    let (bench, ops) = alone(FlushPolicy::Requeue);
    assert_eq!((ops.as_slice(), bench.queue.stats().requeues), (&flushes_first[..], 1));
    let (bench, ops) = alone(FlushPolicy::Tail);
    assert_eq!(ops, [Op::Flush, Op::Write, Op::Flush]);
    assert_eq!(bench.queue.stats().requeues, 2);
}

/// Queues flushes of all kinds behind a write that finds no tag, while a flush runs, and completes
/// that flush. Returns how many of these flushes the next one ends.
fn flushes_ended_by_the_next_one(wake: WakePolicy, is_frozen: bool) -> usize {
    let policy =
        Policy::default().queue_depth(2).nr_reserved(1).emulation(Emulation::default().wake(wake));
    let mut bench = Bench::new(cached(), policy);
    bench.write(1);
    bench.write(2);
    bench.flush(3);
    assert_eq!(bench.ops(), [Op::Write, Op::Flush]);
    bench.queue.gates = Gates { enter: !is_frozen, ..Gates::OPEN };
    let kinds = [NONE, BioFlags::RESERVED, BioFlags::BACKGROUND, BioFlags::FSYNC];
    for (flags, user_data) in kinds.into_iter().zip(4..) {
        let bio = Bio { flags, ..bench.bio(Op::Flush, 0, 0, user_data) };
        assert!(bench.queue_bio(bio, 0));
        if is_frozen {
            bench.turn();
        }
    }
    bench.queue.gates = Gates::OPEN;
    for user_data in 8..10 {
        let bio = Bio { flags: BioFlags::NOWAIT, ..bench.bio(Op::Flush, 0, 0, user_data) };
        assert!(bench.queue_bio(bio, 0));
    }
    bench.complete(1, Ok(0));
    assert_eq!(bench.ends(), [(3, Ok(0))], "F2");
    bench.complete(1, Ok(0));
    let ends = bench.ends();
    assert!(ends.iter().all(|end| *end == (end.0, Ok(0)) && end.0 > 3), "{ends:?}");
    ends.len()
}

#[test]
fn flushes_of_all_kinds_share_the_next_flush() {
    for wake in [WakePolicy::Fair, WakePolicy::Single, WakePolicy::Batch] {
        for is_frozen in [false, true] {
            assert_eq!(flushes_ended_by_the_next_one(wake, is_frozen), 6, "F6: {wake:?}");
        }
    }
}

#[test]
fn a_nowait_flush_does_not_miss_the_one_that_its_turn_issues() {
    let mut bench = bench();
    bench.flush(1);
    for (flags, user_data) in [(NONE, 2), (BioFlags::NOWAIT, 3), (BioFlags::NOWAIT, 4)] {
        let bio = Bio { flags, ..bench.bio(Op::Flush, 0, 0, user_data) };
        assert!(bench.queue_bio(bio, 0));
    }
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends(), [(1, Ok(0))]);
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends(), [(2, Ok(0)), (3, Ok(0)), (4, Ok(0))], "F6");
}

#[test]
fn a_nowait_flush_waits_behind_a_queue_that_is_held_for_a_flush() {
    let limits = cached().flush_queueable(false);
    let mut bench = Bench::new(limits, Policy::default());
    bench.flush(1);
    bench.write(2);
    bench.issue(Op::Flush, BioFlags::NOWAIT, 0, 0, 3);
    bench.complete(0, Ok(0));
    assert_eq!(bench.ops(), [Op::Flush, Op::Flush]);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(0)), (3, Ok(0)), (2, Ok(K4))]);
}

#[test]
fn thread_that_only_flushes_does_not_starve_others() {
    let limits = cached().flush_queueable(false);
    let mut bench = Bench::new(limits, Policy::default());
    bench.flush(0);
    bench.write(1);
    let mut n = 2;
    while !bench.ops().contains(&Op::Write) {
        bench.flush(n);
        bench.complete(0, Ok(0));
        n += 1;
        assert!(n < 20, "the write waits still: {:?}", bench.ops());
    }
    // The next flush is not forgotten for the write.
    assert!(bench.ops().ends_with(&[Op::Flush, Op::Write, Op::Flush]), "{:?}", bench.ops());
    bench.finish();
    assert_eq!(bench.ends().len() as u64, n);
}

#[test]
fn thread_that_only_flushes_does_not_starve_one_that_found_the_device_busy() {
    let limits = cached().flush_queueable(false);
    let mut bench = Bench::new(limits, Policy::default());
    bench.toy.answers.push_back(Issue::Busy);
    bench.write(1);
    let mut n = 2;
    while !bench.ops().contains(&Op::Write) {
        // The device takes a flush, and is busy for the write beside it.
        let [begin, end] = [[Issue::Queued, Issue::Busy], [Issue::Busy; 2]];
        bench.toy.answers = if n == 2 { begin } else { end }.into();
        bench.flush(n);
        bench.toy.answers = begin.into();
        if n > 2 {
            bench.complete(0, Ok(0));
        }
        n += 1;
        assert!(n < 20, "the write waits still: {:?}", bench.ops());
    }
    bench.toy.answers.clear();
    bench.turn();
    bench.finish();
    assert_eq!(bench.ends().len() as u64, n - 1);
}

#[test]
fn a_preflush_goes_before_its_data_however_large_that_is() {
    let limits = cached().max_sectors(8).max_hw_sectors(8);
    let mut bench = Bench::new(limits, Policy::default());
    let both = BioFlags::FUA.union(BioFlags::PREFLUSH);
    bench.issue(Op::Write, both, 0, 5 * K4, 7);
    bench.finish();
    let mut expected = vec![Op::Flush];
    expected.extend([Op::Write; 5]);
    expected.push(Op::Flush);
    assert_eq!(bench.ops(), expected, "one flush before, one after");
    assert_eq!(bench.ends(), [(7, Ok(5 * K4))]);
}

#[test]
fn a_nowait_write_with_a_preflush_is_answered_after_that_if_there_is_no_tag() {
    let policy = Policy::default().queue_depth(1);
    let mut bench = Bench::new(cached(), policy);
    let flags = BioFlags::NOWAIT.union(BioFlags::PREFLUSH);
    bench.issue(Op::Write, flags, 0, K4, 1);
    assert_eq!(bench.ops(), [Op::Flush]);
    bench.write(2);
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends(), [(1, Err(BlockStatus::Again))]);
    bench.issue(Op::Flush, BioFlags::NOWAIT, 0, 0, 3);
    bench.finish();
    assert_eq!(bench.ends().len(), 2);
    bench.issue(Op::Write, flags, 0, K4, 4);
    bench.finish();
    assert_eq!(bench.ends(), [(4, Ok(K4))]);
}

#[test]
fn two_contexts_of_a_disk_share_flush_results_and_losses() {
    use crate::common::TestQueue;
    let mut one = Bench::new(cached(), Policy::default().elide(true));
    let mut other = Bench::new(cached(), Policy::default().elide(true));
    let device = std::sync::Arc::clone(&one.queue.device);
    other.queue = TestQueue::with_device(cached(), Policy::default().elide(true), 0, &device);
    let point = one.wrote(1);
    other.flush(2);
    other.finish();
    assert!(device.durability().is_durable(point), "it covers what others have written");
    one.flush(3);
    assert_eq!(one.ends(), [(1, Ok(K4)), (3, Ok(0))], "elided");
    let running = other.wrote(4);
    one.flush(5);
    other.flush(6);
    one.complete(0, Err(BlockStatus::Io));
    device.durability().acknowledge_loss();
    other.finish();
    let ends = other.ends();
    assert_eq!(ends.last(), Some(&(6, Err(BlockStatus::Io))), "it waited when that was lost");
    assert!(device.durability().is_durable(running));
}

#[test]
fn a_flush_does_not_wait_behind_writes_held_for_another() {
    let limits = cached().flush_queueable(false);
    let mut bench = Bench::new(limits, Policy::default());
    bench.flush(1);
    bench.write(2);
    bench.flush(3);
    bench.complete(0, Ok(0));
    assert_eq!(bench.ops(), [Op::Flush, Op::Flush], "before the write makes the cache dirty");
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(0)), (3, Ok(0)), (2, Ok(K4))]);
}

#[test]
fn others_that_find_the_device_busy_do_not_keep_a_flush_for_ever() {
    let limits = cached().flush_queueable(false);
    let mut bench = Bench::new(limits, Policy::default());
    bench.flush(0);
    bench.write(1);
    let mut n = 2;
    while !bench.ops().contains(&Op::Write) {
        bench.flush(n);
        // The device takes one command at a time.
        bench.toy.answers.clear();
        bench.toy.answers.extend([Issue::Queued, Issue::Busy]);
        bench.write(n + 100);
        bench.toy.answers.clear();
        bench.toy.answers.extend([Issue::Queued, Issue::Busy]);
        bench.complete(0, Ok(0));
        n += 1;
        assert!(n < 20);
    }
    let nr_flushes = bench.queue.stats().flushes_issued;
    for n in 200..300 {
        bench.toy.answers.clear();
        bench.toy.answers.push_back(Issue::Busy);
        bench.write(n);
        bench.toy.answers.clear();
        bench.toy.answers.extend([Issue::Queued, Issue::Busy]);
        bench.complete(0, Ok(K4));
        if bench.queue.stats().flushes_issued > nr_flushes {
            return;
        }
    }
    panic!("the flush waits still: {:?}", bench.ops());
}

#[test]
fn a_flush_of_all_metadata_is_not_elided_by_a_point() {
    let mut bench = bench();
    let point = bench.wrote(1);
    bench.flush(2);
    bench.finish();
    let flags = BioFlags::FSYNC.union(BioFlags::UP_TO);
    assert!(bench.queue_bio(Bio { flags, ..Bio::flush_up_to(point) }, 0));
    bench.turn();
    assert_eq!(bench.toy.running.len(), 1);
}

#[test]
fn a_preflush_covers_all_ended_writes_at_any_offset() {
    let mut bench = bench();
    bench.flush(1);
    bench.wrote(2);
    bench.complete(0, Ok(0));
    let nr_flushes = bench.queue.stats().flushes_issued;
    bench.issue(Op::Write, BioFlags::PREFLUSH.union(BioFlags::UP_TO), 0, K4, 3);
    assert_eq!(bench.queue.stats().flushes_issued, nr_flushes + 1);
}

#[test]
fn a_wait_beside_a_flush_asks_for_no_more_than_one_merged_request_may_end() {
    let mut bench = bench();
    bench.plug_each(Op::Write, 0..4);
    bench.unplug();
    bench.turn();
    bench.flush(4);
    assert_eq!(bench.toy.running.len(), 2);
    assert_eq!(bench.queue.hctx.prepare_wait(4), 1, "the write may come before the flush");
    assert_eq!(bench.queue.hctx.prepare_wait(5), 2);
}

#[test]
fn write_at_the_device_when_a_flush_fails_is_lost_although_it_ends_later() {
    use crate::common::TestQueue;
    for is_elsewhere in [false, true] {
        let mut one = bench();
        let mut other = bench();
        let device = std::sync::Arc::clone(&one.queue.device);
        other.queue = TestQueue::with_device(cached(), Policy::default(), 0, &device);
        one.flush(1);
        one.finish();
        // The data may be in the cache already, with the completion on its way.
        let writer = if is_elsewhere { &mut other } else { &mut one };
        writer.write(2);
        one.flush(3);
        one.complete(usize::from(!is_elsewhere), Err(BlockStatus::Io));
        let writer = if is_elsewhere { &mut other } else { &mut one };
        writer.complete(0, Ok(K4));
        writer.flush(4);
        writer.finish();
        assert_eq!(writer.ends().last(), Some(&(4, Err(BlockStatus::Io))), "{is_elsewhere}");
        assert!(device.durability().acknowledge_loss().is_some());
        // The loss does not affect later writes.
        let late = writer.wrote(5);
        writer.flush(6);
        writer.finish();
        assert_eq!(writer.ends().last(), Some(&(6, Ok(0))), "{is_elsewhere}");
        assert!(device.durability().is_durable(late));
    }
}
