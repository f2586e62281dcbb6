//! Tests of time limits (H1-H4): when a request is cancelled, and when its device is given up.

use crate::common::{Bench, limits};
use forebay_core::{
    BioFlags, BlockStatus, Emulation, LateRequest, LateRequests, LateStage, Op, Policy, Reap,
    WakePolicy,
};
use std::sync::{Arc, Mutex};

const LIMIT_NS: u64 = 10_000;
const GRACE_NS: u64 = 5_000;
const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

/// The time that passes before each turn of a bench.
const STEP_NS: u64 = 10;

#[derive(Debug, Default)]
struct Log(Mutex<Vec<LateRequest>>);

impl LateRequests for Log {
    fn note(&self, late: LateRequest) {
        self.0.lock().unwrap().push(late);
    }
}

fn policy() -> Policy {
    Policy::default().queue_depth(2).io_timeout_ns(LIMIT_NS).io_timeout_grace_ns(GRACE_NS)
}

fn bench_with(policy: Policy) -> (Bench, Arc<Log>) {
    let mut bench = Bench::new(limits(), policy);
    let log = Arc::new(Log::default());
    bench.queue.hctx.set_late_requests(Arc::clone(&log) as Arc<dyn LateRequests>);
    (bench, log)
}

fn bench() -> (Bench, Arc<Log>) {
    bench_with(policy())
}

fn stages(log: &Log) -> Vec<LateStage> {
    log.0.lock().unwrap().iter().map(|late| late.stage).collect()
}

#[test]
fn request_is_cancelled_at_its_limit_and_once() {
    for can_cancel in [false, true] {
        let (mut bench, log) = bench();
        bench.toy.can_cancel = can_cancel;
        bench.issue(Op::Read, NONE, K4, K4, 1);
        bench.turn_after(LIMIT_NS - STEP_NS - 1);
        assert!(bench.toy.cancelled.is_empty(), "a nanosecond is left");
        bench.turn_after(0);
        bench.turn_after(0);
        assert_eq!(bench.toy.cancelled, [bench.toy.seen[0].tag], "H1");
        assert_eq!((bench.queue.stats().timeouts, bench.queue.runs().nr_timeouts()), (1, 1));
        let stage = if can_cancel { LateStage::Cancelled } else { LateStage::Awaited };
        let fields = |late: &LateRequest| (late.op, late.start, late.len, late.stage);
        let late: Vec<_> = log.0.lock().unwrap().iter().map(fields).collect();
        assert_eq!(late, [(Op::Read, K4, K4, stage)]);
        assert!(!bench.queue.device.is_failed());
        bench.finish();
        assert_eq!(bench.ends(), [(1, Ok(K4))], "H4: it succeeds after all");
    }
}

#[test]
fn deadlines_are_those_of_the_oldest_request_and_of_its_grace() {
    let (mut bench, _log) = bench();
    assert_eq!(bench.turn().deadline(), None);
    bench.issue(Op::Read, NONE, 0, K4, 1);
    let first = bench.turn().deadline().expect("a time limit");
    bench.issue(Op::Read, NONE, K4, K4, 2);
    assert_eq!(bench.turn().deadline(), Some(first));
    // Before the deadline nothing is due. The second request is younger by three turns of a bench.
    bench.turn_after(LIMIT_NS - 5 * STEP_NS);
    let turned = bench.turn();
    assert_eq!((turned.deadline(), bench.toy.cancelled.len()), (Some(first + 3 * STEP_NS), 1));
    let turned = bench.turn_after(2 * STEP_NS);
    assert_eq!((turned.deadline(), bench.toy.cancelled.len()), (Some(first + GRACE_NS), 2));
}

#[test]
fn grace_begins_with_the_check_and_ends_with_the_device() {
    let (mut bench, log) = bench();
    bench.issue(Op::Read, NONE, 0, K4, 1);
    bench.issue(Op::Read, NONE, K4, K4, 2);
    for page in 3..6 {
        bench.issue(Op::Read, NONE, page * K4, K4, page);
    }
    bench.turn_after(3 * LIMIT_NS);
    bench.turn_after(GRACE_NS - STEP_NS - 1);
    assert!(!bench.queue.device.is_failed() && bench.ends().is_empty());
    bench.turn_after(0);
    assert!(bench.queue.device.is_given_up(), "H3");
    let gone = Err(BlockStatus::Offline);
    assert_eq!(bench.ends(), [(3, gone), (4, gone), (5, gone)], "they may never get a tag");
    let awaited = LateStage::Awaited;
    assert_eq!(stages(&log), [awaited, awaited, LateStage::GivenUp], "the device is gone once");
    assert_eq!((bench.queue.stats().timeouts, bench.queue.stats().early_ends), (2, 0));
    bench.turn_after(GRACE_NS);
    assert_eq!(stages(&log).len(), 3);
    // H2: borrowed memory stays with the driver.
    bench.complete(0, Err(BlockStatus::Io));
    bench.complete(0, Ok(K4));
    assert_eq!(bench.ends(), [(1, Err(BlockStatus::Timeout)), (2, Ok(K4))]);
    bench.queue.device.revive();
    bench.issue(Op::Read, NONE, 0, K4, 6);
    bench.turn_after(GRACE_NS);
    assert!(!bench.queue.device.is_failed(), "its limit is not over");
    bench.finish();
    assert_eq!(bench.ends(), [(6, Ok(K4))]);
}

#[test]
fn failure_beside_an_overdue_request_keeps_its_status() {
    let (mut bench, _log) = bench();
    bench.issue(Op::Read, NONE, 0, K4, 1);
    bench.turn_after(LIMIT_NS / 2);
    bench.issue(Op::Read, NONE, K4, K4, 2);
    bench.turn_after(LIMIT_NS / 2);
    assert_eq!(bench.toy.cancelled.len(), 1);
    bench.complete(1, Err(BlockStatus::Io));
    bench.complete(0, Err(BlockStatus::Io));
    assert_eq!(bench.ends(), [(2, Err(BlockStatus::Io)), (1, Err(BlockStatus::Timeout))]);
    // No request is overdue any more.
    bench.issue(Op::Read, NONE, 0, K4, 3);
    bench.complete(0, Err(BlockStatus::Io));
    assert_eq!(bench.ends(), [(3, Err(BlockStatus::Io))]);
}

#[test]
fn disk_without_a_limit_has_no_deadline() {
    let (mut bench, log) = bench_with(Policy::default().queue_depth(2));
    bench.issue(Op::Read, NONE, 0, K4, 1);
    assert_eq!(bench.turn_after(1 << 50).deadline(), None);
    assert_eq!((bench.toy.cancelled.len(), stages(&log).len()), (0, 0));
    bench.finish();
}

#[test]
fn threads_that_wait_for_tags_of_a_gone_device_wait_no_longer() {
    for wake in [WakePolicy::Single, WakePolicy::Batch, WakePolicy::Stash] {
        let (mut bench, _log) = bench_with(policy().emulation(Emulation::default().wake(wake)));
        for page in 1..6 {
            bench.issue(Op::Read, NONE, page * K4, K4, page);
        }
        bench.turn_after(LIMIT_NS);
        bench.turn_after(GRACE_NS);
        let gone = Err(BlockStatus::Offline);
        assert_eq!(bench.ends(), [(3, gone), (4, gone), (5, gone)], "{wake:?}");
        bench.finish_running();
    }
}

#[test]
fn class_that_may_have_no_tag_ends_with_its_device() {
    let (mut bench, _log) = bench_with(policy().async_depth(1));
    for page in 1..4 {
        bench.issue(Op::Read, BioFlags::BACKGROUND, page * K4, K4, page);
    }
    assert_eq!(bench.toy.running.len(), 1);
    bench.turn_after(LIMIT_NS);
    bench.turn_after(GRACE_NS);
    let gone = Err(BlockStatus::Offline);
    assert_eq!(bench.ends(), [(2, gone), (3, gone)]);
    bench.finish_running();
}

#[test]
fn tags_of_requests_that_were_given_up_return_to_a_shared_set() {
    let policy = policy().queue_depth(4);
    let mut bench = Bench::new(limits().volatile_cache(true), policy);
    bench.issue(Op::Read, BioFlags::OWNED, 0, K4, 1);
    bench.issue(Op::Write, BioFlags::OWNED, K4, K4, 2);
    bench.issue(Op::Flush, NONE, 0, 0, 3);
    bench.turn_after(LIMIT_NS);
    assert!(!bench.queue.hctx.may_change_late() && !bench.queue.hctx.has_only_given_up());
    bench.turn_after(GRACE_NS);
    let hctx = &mut bench.queue.hctx;
    assert!(hctx.may_change_late() && hctx.has_only_given_up());
    assert_eq!((hctx.nr_given_up_tags(), hctx.nr_quarantined(), hctx.nr_busy_tags()), (2, 2, 2));
    assert_eq!(hctx.nr_free_tags(), 2);
    // With the two that the context has not used.
    assert_eq!((hctx.put_given_up_tags(), hctx.nr_busy_tags()), (4, 0));
}

#[test]
fn turn_at_a_deadline_does_what_is_due_and_leaves_a_later_one() {
    let (mut bench, _log) = bench();
    bench.issue(Op::Read, NONE, 0, K4, 1);
    for step in 0..2 {
        let now = bench.turn().deadline().expect("a time limit");
        let turned = bench.turn_at(now);
        assert!(turned.deadline().is_none_or(|next| next > now), "W7");
        assert_eq!((bench.toy.cancelled.len(), bench.queue.device.is_failed()), (1, step == 1));
    }
    bench.finish_running();
}

#[test]
fn completions_are_looked_for_with_care_before_a_request_counts_as_overdue() {
    for (left_ns, how) in [(1, Reap::NoSyscall), (0, Reap::Full)] {
        let (mut bench, _log) = bench();
        bench.issue(Op::Read, NONE, 0, K4, 1);
        let deadline = bench.turn().deadline().expect("a time limit");
        let bio = bench.bio(Op::Read, 1 << 20, K4, 2);
        assert!(bench.queue_bio(bio, 0));
        bench.turn_at(deadline - left_ns);
        assert_eq!(bench.toy.reaps.last(), Some(&how));
        bench.finish();
    }
}

#[test]
fn device_that_works_again_is_not_given_up_twice_for_one_request() {
    let (mut bench, _log) = bench();
    bench.issue(Op::Read, NONE, 0, K4, 1);
    bench.turn_after(LIMIT_NS);
    bench.turn_after(GRACE_NS);
    assert!(bench.queue.device.is_given_up());
    bench.queue.device.revive();
    bench.issue(Op::Read, NONE, K4, K4, 2);
    // The limit of the second request makes a check, which finds the first one again.
    bench.turn_after(LIMIT_NS);
    assert!(!bench.queue.device.is_failed() && bench.toy.cancelled.len() == 2);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(K4)), (2, Ok(K4))]);
}

#[test]
fn request_has_limits_of_its_own_whatever_its_tag_did_before() {
    for flags in [NONE, BioFlags::OWNED] {
        let (mut bench, _log) = bench_with(policy().queue_depth(1));
        bench.issue(Op::Read, flags, 0, K4, 1);
        bench.turn_after(LIMIT_NS);
        if flags == BioFlags::OWNED {
            bench.turn_after(GRACE_NS);
            bench.queue.device.revive();
        }
        bench.complete(0, Ok(K4));
        bench.ends();
        bench.issue(Op::Read, NONE, K4, K4, 2);
        bench.complete(0, Err(BlockStatus::Io));
        assert_eq!(bench.ends(), [(2, Err(BlockStatus::Io))], "{flags:?}: it was not overdue");
        bench.issue(Op::Read, NONE, K4, K4, 3);
        bench.turn_after(LIMIT_NS);
        assert_eq!(bench.toy.cancelled.len(), 2, "{flags:?}");
        bench.turn_after(GRACE_NS / 2);
        assert!(!bench.queue.device.is_failed(), "{flags:?}: its grace period is not over");
        bench.finish();
    }
}
