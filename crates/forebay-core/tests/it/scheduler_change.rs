//! Changes of the scheduler of a context in use (Q8).

use crate::common::{Bench, limits};
use forebay_core::{
    BioFlags, BlockStatus, Gates, MergeKind, MqDeadlineParams, Op, Policy, SchedulerChange,
    SchedulerPolicy,
};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;
const LIMIT_NS: u64 = 1000;

fn policy() -> Policy {
    Policy::default().queue_depth(8).io_timeout_ns(LIMIT_NS).io_timeout_grace_ns(LIMIT_NS)
}

fn mq_deadline(device_depth: u32) -> Policy {
    policy().scheduler(SchedulerPolicy::MqDeadline).device_depth(Some(device_depth))
}

impl Bench {
    /// Changes to the scheduler of a policy. Returns how many tags may be in use afterwards.
    fn change_to(&mut self, policy: Policy) -> u32 {
        let change = SchedulerChange::new(&policy, &limits(), policy.queue_depth);
        let nr_requests = change.nr_requests();
        let now = self.now();
        drop(self.queue.hctx.set_scheduler(change, now));
        assert_eq!(self.queue.hctx.scheduling(), policy.scheduling());
        nr_requests
    }

    /// Reads pages, each from a plug of its own.
    fn read_pages(&mut self, pages: impl IntoIterator<Item = u64>) {
        pages.into_iter().for_each(|page| self.issue(Op::Read, NONE, page * K4, K4, page));
    }
}

#[test]
fn each_scheduler_orders_the_requests_that_come_after_the_change() {
    let mut bench = Bench::new(limits(), policy());
    bench.read_pages([50, 10, 30]);
    assert_eq!(bench.first_pages(), [50, 10, 30]);
    bench.finish();
    for nth in 0..3 {
        assert_eq!(bench.change_to(mq_deadline(1).nr_requests(Some(2))), 2);
        bench.read_pages([50, 30, 10]);
        assert_eq!(bench.first_pages(), [50], "change {nth}");
        assert!(!bench.queue.hctx.is_drained());
        bench.finish();
        assert_eq!(bench.first_pages(), [30, 10], "change {nth}: two have tags");
        assert_eq!(bench.change_to(policy().scheduler(SchedulerPolicy::None)), 8);
        bench.read_pages([50, 30, 10]);
        assert_eq!(bench.first_pages(), [50, 30, 10], "change {nth}");
        bench.finish();
    }
    assert!(bench.ends().iter().all(|end| end.1 == Ok(K4)));
    assert_eq!(bench.queue.hctx.nr_free_tags(), 8);
}

#[test]
fn counters_go_on_and_the_settings_of_a_scheduler_can_change() {
    let mut bench = Bench::new(limits(), mq_deadline(1).nr_requests(Some(8)));
    for round in 1..4_u32 {
        bench.read_pages([100, 0, 1, 2]);
        bench.finish();
        let merges = bench.queue.stats().merges(MergeKind::Back);
        assert_eq!(merges, 2 * u64::from(round));
        bench.change_to(mq_deadline(1).nr_requests(Some(8 - round)));
        assert_eq!(bench.queue.hctx.nr_free_tags(), 8 - round);
    }
    bench.change_to(mq_deadline(3).nr_requests(Some(8)));
    bench.read_pages([100, 10, 20, 30]);
    assert_eq!(bench.toy.running.len(), 3);
    bench.finish();
}

#[test]
fn requests_that_wait_outside_enter_the_new_scheduler() {
    let mut bench = Bench::new(limits(), policy());
    bench.queue.gates = Gates { enter: false, ..Gates::OPEN };
    bench.read_pages([50, 30, 10]);
    bench.issue(Op::Read, BioFlags::NOWAIT, 70 * K4, K4, 70);
    assert_eq!(bench.ends(), [(70, Err(BlockStatus::Again))]);
    assert!(bench.queue.hctx.is_drained());
    bench.change_to(mq_deadline(1).nr_requests(Some(8)));
    bench.turn();
    assert_eq!(bench.first_pages(), []);
    bench.queue.gates = Gates::OPEN;
    bench.turn();
    bench.finish();
    assert_eq!(bench.first_pages(), [10, 30, 50]);
    assert_eq!(bench.ends().len(), 3);
}

#[test]
fn request_that_was_given_up_keeps_its_room_under_the_next_scheduler() {
    for before in [policy(), mq_deadline(4)] {
        let mut bench = Bench::new(limits(), before);
        bench.issue(Op::Read, BioFlags::OWNED, 0, K4, 1);
        bench.turn_after(LIMIT_NS);
        bench.turn_after(LIMIT_NS);
        assert_eq!(bench.ends(), [(1, Err(BlockStatus::Timeout))]);
        bench.queue.device.revive();
        bench.change_to(mq_deadline(2));
        bench.change_to(policy());
        bench.change_to(mq_deadline(2));
        bench.read_pages([50, 30, 40]);
        assert_eq!(bench.first_pages(), [0, 50], "it has one of two places at the device");
        // The device completes it after all.
        bench.complete(0, Ok(K4));
        assert_eq!(bench.first_pages(), [30]);
        bench.finish();
        assert_eq!(bench.ends().len(), 3);
    }
}

#[test]
fn request_without_a_time_gets_that_of_its_turn() {
    let mut bench = Bench::new(limits(), policy().io_timeout_ns(0).io_timeout_grace_ns(1));
    bench.turn_at(1_000_000_000_000);
    let params = MqDeadlineParams::default().fifo_batch(1);
    bench.change_to(mq_deadline(1).nr_requests(Some(8)).mq_deadline(params));
    for bio in [5, 90, 20].map(|page| bench.bio(Op::Read, page * K4, K4, page)) {
        bench.queue.queue_bio(bio, 0, 0).expect("a good bio");
        bench.queue.turn(&mut bench.toy, 0, &mut bench.ended);
    }
    bench.finish();
    assert_eq!(bench.first_pages(), [5, 20, 90], "none has expired");
}

#[test]
#[should_panic(expected = "the scheduler changes in a drained context")]
fn scheduler_of_a_context_with_requests_does_not_change() {
    let mut bench = Bench::new(limits(), policy());
    bench.read_pages([50]);
    bench.change_to(mq_deadline(1));
}
