//! Tests of flushes that a turn leaves to a thread which waits for them, and of state that the
//! disks on one file share.

use crate::common::{Bench, limits};
use forebay_core::{Backing, BioFlags, BlockStatus, DeviceState, Op, Policy};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

fn bench(flush_queueable: bool) -> Bench {
    let limits = limits().volatile_cache(true).flush_queueable(flush_queueable);
    let mut bench = Bench::new(limits, Policy::default());
    bench.issue(Op::Write, NONE, 0, K4, 1);
    bench.finish();
    bench.ends();
    bench
}

#[test]
fn flush_is_left_once_and_issued_by_the_next_turn() {
    let mut bench = bench(true);
    bench.queue.hctx.leave_flush(true);
    let flush = bench.bio(Op::Flush, 0, 0, 2);
    bench.queue_bio(flush, 0);
    let turned = bench.turn();
    assert!(bench.toy.running.is_empty() && !turned.work_left() && !turned.is_drained());
    assert!(bench.queue.hctx.waiters_of_flush().eq([0]));
    assert!(bench.queue.hctx.take_left_flush() && !bench.queue.hctx.take_left_flush());
    let turned = bench.turn();
    assert_eq!((bench.toy.running.len(), turned.nr_in_flight()), (1, 1));
    assert!(!bench.queue.hctx.take_left_flush());
    assert_eq!(bench.queue.hctx.waiters_of_flush().count(), 0);
    bench.finish();
    assert_eq!(bench.ends(), [(2, Ok(0))]);
    // The next flush may be left again.
    bench.issue(Op::Flush, NONE, 0, 0, 3);
    assert!(bench.toy.running.is_empty() && bench.queue.hctx.take_left_flush());
    bench.turn();
    bench.finish();
}

#[test]
fn flush_is_not_left_without_permission_or_if_it_holds_others() {
    for (flush_queueable, may_leave) in [(true, false), (false, true)] {
        let mut bench = bench(flush_queueable);
        bench.queue.hctx.leave_flush(may_leave);
        bench.issue(Op::Flush, NONE, 0, 0, 2);
        assert_eq!(bench.toy.running.len(), 1, "{flush_queueable}");
        assert!(!bench.queue.hctx.take_left_flush());
        bench.finish();
    }
}

#[test]
fn disks_share_the_state_of_a_file_and_not_that_of_the_device() {
    let backing = Backing::shared(1);
    let (one, other) = (DeviceState::on(&backing, 1), DeviceState::on(&backing, 1));
    assert!(backing.is(&one.backing()) && one.backing().is(&other.backing()));
    assert!(!backing.is(&DeviceState::new(1).backing()));
    let point = one.durability().writes_end();
    assert_eq!((other.durability().point(), backing.durability().point()), (point, point));
    let mut bench = Bench::new(limits(), Policy::default());
    bench.issue(Op::Read, NONE, 0, K4, 1);
    bench.complete(0, Err(BlockStatus::Offline));
    let device = &bench.queue.device;
    assert!(device.is_failed() && !device.is_given_up(), "no time limit has passed");
    device.revive();
    assert!(!device.is_failed());
}
