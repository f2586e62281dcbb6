//! Flushes between I/O of different classes: a low class keeps nothing from a higher one.

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Class, MqDeadlineParams, Op, Origin, Policy, Priority, QueueLimits,
    SchedulerPolicy,
};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;
const S: u64 = 1_000_000_000;

use Class::{BestEffort, Idle, RealTime};

fn bench(limits: QueueLimits, device_depth: u32) -> Bench {
    let policy = Policy::default().queue_depth(16).scheduler(SchedulerPolicy::MqDeadline);
    let params = MqDeadlineParams::default().prio_aging_expire_ns(10 * S);
    // A tag for each request.
    let policy = policy.device_depth(Some(device_depth)).nr_requests(Some(16));
    let mut bench = Bench::new(limits, policy.mq_deadline(params));
    bench.turn_at(S);
    bench
}

/// A device that executes a flush only while nothing else is in flight.
fn alone() -> QueueLimits {
    limits().volatile_cache(true).flush_queueable(false)
}

/// A device that executes a flush beside other requests.
fn beside() -> QueueLimits {
    limits().volatile_cache(true)
}

impl Bench {
    /// Submits a bio of a page, or a flush, and takes a turn.
    fn issue_of(&mut self, class: Class, op: Op, flags: BioFlags, page: u64) {
        let origin = Origin::NONE.with_priority(Priority::new(class, 4).expect("a level"));
        let (start, len) = if op == Op::Flush { (0, 0) } else { (page * K4, K4) };
        let bio = self.bio(op, start, len, page);
        self.queue_bio(Bio { flags, origin, ..bio }, 0);
        self.turn();
    }

    /// Submits a flush of all data, which no earlier one can replace.
    fn sync_of(&mut self, class: Class, id: u64) {
        self.issue_of(class, Op::Flush, BioFlags::FSYNC, id);
    }

    /// Returns the operation and page of each command issued since the last call.
    fn commands(&mut self) -> Vec<(Op, u64)> {
        let seen = &self.toy.seen[self.nr_checked..];
        self.nr_checked = self.toy.seen.len();
        seen.iter().map(|seen| (seen.op, seen.start / K4)).collect()
    }
}

const FLUSH: (Op, u64) = (Op::Flush, 0);

#[test]
fn read_of_a_higher_class_goes_before_a_flush_of_a_lower_one_on_a_device_that_flushes_alone() {
    for (read, flush) in [(RealTime, BestEffort), (RealTime, Idle), (BestEffort, Idle)] {
        let mut bench = bench(alone(), 1);
        bench.issue_of(read, Op::Read, NONE, 1);
        bench.issue_of(read, Op::Read, NONE, 5);
        bench.sync_of(flush, 90);
        assert_eq!(bench.commands(), [(Op::Read, 1)], "{read:?} {flush:?}");
        bench.complete(0, Ok(K4));
        assert_eq!(bench.commands(), [(Op::Read, 5), FLUSH], "{read:?} {flush:?}");
        bench.finish();
    }
}

#[test]
fn flush_of_the_same_class_or_a_higher_one_goes_before_queued_reads() {
    for (read, flush) in [(RealTime, RealTime), (BestEffort, RealTime), (Idle, Idle)] {
        let mut bench = bench(alone(), 1);
        bench.issue_of(read, Op::Read, NONE, 1);
        bench.issue_of(read, Op::Read, NONE, 5);
        bench.sync_of(flush, 90);
        assert_eq!(bench.commands(), [(Op::Read, 1), FLUSH], "{read:?} {flush:?}");
        bench.finish();
        assert_eq!(bench.commands(), [(Op::Read, 5)]);
    }
}

#[test]
fn read_waits_for_one_flush_of_a_lower_class_and_not_for_those_behind_it() {
    let mut bench = bench(alone(), 4);
    bench.sync_of(Idle, 90);
    bench.issue_of(RealTime, Op::Read, NONE, 1);
    bench.sync_of(Idle, 91);
    assert_eq!(bench.commands(), [FLUSH], "the queue is held");
    bench.complete(0, Ok(0));
    assert_eq!(bench.commands(), [(Op::Read, 1), FLUSH]);
    bench.finish();
}

#[test]
fn a_higher_class_that_waits_for_the_same_flush_makes_it_go_first() {
    let mut bench = bench(alone(), 1);
    bench.issue_of(BestEffort, Op::Read, NONE, 1);
    bench.issue_of(BestEffort, Op::Read, NONE, 5);
    bench.sync_of(Idle, 90);
    assert_eq!(bench.commands(), [(Op::Read, 1)]);
    bench.sync_of(RealTime, 91);
    assert_eq!(bench.commands(), [FLUSH]);
    bench.finish();
}

#[test]
fn flush_that_has_waited_for_long_goes_before_a_higher_class() {
    let mut bench = bench(alone(), 1);
    bench.issue_of(RealTime, Op::Read, NONE, 1);
    bench.issue_of(RealTime, Op::Read, NONE, 5);
    bench.sync_of(Idle, 90);
    bench.turn_at(bench.now() + 10 * S - 20);
    assert_eq!(bench.commands(), [(Op::Read, 1)]);
    bench.turn_after(20);
    assert_eq!(bench.commands(), [FLUSH]);
    bench.finish();
    assert_eq!(bench.commands(), [(Op::Read, 5)]);
}

#[test]
fn flush_of_a_high_class_waits_for_no_queued_write_of_a_low_one() {
    for limits in [alone(), beside()] {
        let mut bench = bench(limits, 1);
        bench.issue_of(BestEffort, Op::Write, NONE, 1);
        for page in [5, 7] {
            bench.issue_of(Idle, Op::Write, NONE, page);
        }
        bench.issue_of(Idle, Op::Write, BioFlags::FUA, 9);
        bench.sync_of(RealTime, 90);
        assert_eq!(bench.commands(), [(Op::Write, 1), FLUSH]);
        bench.complete(1, Ok(0));
        assert_eq!(bench.ends(), [(90, Ok(0))]);
        bench.finish();
    }
}

#[test]
fn low_class_between_its_data_and_its_flush_holds_back_no_other() {
    let mut bench = bench(beside(), 1);
    // Its data are done, and its flush is at the device.
    bench.issue_of(Idle, Op::Write, BioFlags::FUA, 1);
    bench.complete(0, Ok(K4));
    assert_eq!(bench.commands(), [(Op::Write, 1), FLUSH]);
    bench.issue_of(RealTime, Op::Read, NONE, 5);
    assert_eq!(bench.commands(), [(Op::Read, 5)]);
    // The other way round, the higher class is not at the device any more (DL4).
    bench.finish();
    bench.issue_of(RealTime, Op::Write, BioFlags::FUA, 2);
    bench.complete(0, Ok(K4));
    bench.issue_of(Idle, Op::Read, NONE, 6);
    assert_eq!(bench.commands(), [(Op::Write, 2), FLUSH, (Op::Read, 6)]);
    bench.finish();
}

#[test]
fn data_after_a_flush_go_first_within_their_class_only() {
    let mut bench = bench(beside(), 1);
    bench.issue_of(BestEffort, Op::Write, NONE, 1);
    bench.complete(0, Ok(K4));
    bench.issue_of(RealTime, Op::Read, NONE, 2);
    bench.issue_of(Idle, Op::Write, NONE, 5);
    bench.issue_of(Idle, Op::Write, BioFlags::PREFLUSH, 9);
    bench.issue_of(RealTime, Op::Read, NONE, 12);
    assert_eq!(bench.commands(), [(Op::Write, 1), (Op::Read, 2), FLUSH]);
    bench.complete(1, Ok(0));
    bench.finish();
    assert_eq!(bench.commands(), [(Op::Read, 12), (Op::Write, 9), (Op::Write, 5)]);
}

#[test]
fn flush_of_a_low_class_that_the_busy_device_refused_lets_a_higher_class_pass() {
    let mut bench = bench(alone(), 4);
    bench.issue_of(BestEffort, Op::Read, NONE, 1);
    bench.toy.answers.push_back(forebay_core::Issue::Busy);
    bench.sync_of(BestEffort, 90);
    assert_eq!(bench.commands(), [(Op::Read, 1)]);
    bench.toy.answers.extend([forebay_core::Issue::Queued, forebay_core::Issue::Busy]);
    bench.issue_of(RealTime, Op::Read, NONE, 5);
    assert_eq!(bench.commands(), [(Op::Read, 5)]);
    bench.issue_of(Idle, Op::Read, NONE, 7);
    assert_eq!(bench.commands(), [FLUSH], "the device takes it beside others in this test");
    bench.finish();
    assert_eq!(bench.commands(), [(Op::Read, 7)]);
}

#[test]
fn failed_flush_of_a_low_class_fails_no_read_of_a_higher_one() {
    let mut bench = bench(alone(), 1);
    bench.issue_of(Idle, Op::Write, NONE, 1);
    bench.complete(0, Ok(K4));
    bench.sync_of(Idle, 90);
    bench.issue_of(RealTime, Op::Read, NONE, 5);
    bench.complete(0, Err(BlockStatus::Io));
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(K4)), (90, Err(BlockStatus::Io)), (5, Ok(K4))]);
}
