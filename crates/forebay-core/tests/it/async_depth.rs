//! Tests of the tags that requests other than reads may have beside a scheduler (Q9).

use crate::common::{Bench, limits};
use forebay_core::{BioFlags, BlockStatus, MqDeadlineParams, Op, Policy, SchedulerPolicy};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

/// Eight tags, of which six are for writes, and one request at the device.
fn policy() -> Policy {
    let policy = Policy::default().queue_depth(8).scheduler(SchedulerPolicy::MqDeadline);
    policy.nr_requests(Some(8)).device_depth(Some(1))
}

impl Bench {
    /// Issues a read or a write of each of these pages, in a plug of its own. They do not merge.
    fn queue_pages(&mut self, op: Op, pages: impl IntoIterator<Item = u64>) {
        pages.into_iter().for_each(|page| self.issue(op, NONE, 2 * page * K4, K4, page));
    }

    /// Completes one request after another until none is left, and returns the pages in the order
    /// in which the device got them.
    fn drain(&mut self) -> Vec<u64> {
        while !self.toy.running.is_empty() {
            self.toy.complete_oldest();
            self.turn();
        }
        self.toy.seen.iter().map(|seen| seen.start / K4 / 2).collect()
    }
}

#[test]
fn read_finds_a_tag_beside_more_writes_than_tags() {
    let batches = MqDeadlineParams::default().fifo_batch(4);
    let mut bench = Bench::new(limits(), policy().mq_deadline(batches));
    bench.queue_pages(Op::Write, 10..30);
    assert_eq!(bench.queue.hctx.nr_free_tags(), 2);
    bench.queue_pages(Op::Read, [1]);
    assert_eq!(bench.queue.hctx.nr_free_tags(), 1);
    let issued = bench.drain();
    // The read goes after one batch of writes.
    let place = issued.iter().position(|page| *page == 1).expect("it was issued");
    assert!(place <= 5, "{issued:?}");
    let writes: Vec<u64> = issued.into_iter().filter(|page| *page != 1).collect();
    assert_eq!(writes, Vec::from_iter(10..30), "in the order of arrival");
    bench.finish();
    let stats = bench.queue.stats();
    assert_eq!(stats.tag_waits, 14, "each write that waited counts, once");
}

#[test]
fn reads_may_have_every_tag() {
    let mut bench = Bench::new(limits(), policy());
    bench.queue_pages(Op::Read, 0..10);
    assert_eq!(bench.queue.hctx.nr_free_tags(), 0);
    bench.drain();
    bench.finish();
}

#[test]
fn nowait_write_is_refused_where_it_would_wait_for_other_writes() {
    let mut bench = Bench::new(limits(), policy());
    bench.queue_pages(Op::Write, 10..16);
    bench.issue(Op::Write, BioFlags::NOWAIT, 0, K4, 100);
    bench.issue(Op::Read, BioFlags::NOWAIT, 90 * K4, K4, 101);
    assert_eq!(bench.ends(), [(100, Err(BlockStatus::Again))]);
    assert_eq!(bench.queue.hctx.nr_free_tags(), 1, "the read has a tag");
    bench.drain();
    bench.finish();
}

#[test]
fn writes_that_wait_end_when_the_device_is_gone() {
    let mut bench = Bench::new(limits(), policy());
    bench.queue_pages(Op::Write, 10..30);
    let offline = Err(BlockStatus::Offline);
    bench.complete(0, offline);
    assert!(bench.ends().iter().map(|end| end.1).eq([offline; 20]));
}

#[test]
fn other_limit_applies_to_the_next_request() {
    let mut bench = Bench::new(limits(), policy());
    bench.queue_pages(Op::Write, 10..30);
    bench.queue.hctx.set_nr_requests(4);
    bench.turn();
    bench.toy.complete_oldest();
    bench.turn();
    bench.toy.complete_oldest();
    bench.turn();
    bench.toy.complete_oldest();
    bench.turn();
    // Three of the six writes are left, and as many as may have tags now.
    assert_eq!(bench.queue.hctx.nr_busy_tags(), 3);
    bench.toy.complete_oldest();
    bench.turn();
    assert_eq!(bench.queue.hctx.nr_busy_tags(), 3);
    bench.drain();
    bench.finish();
}

#[test]
fn split_write_leaves_tags_for_reads() {
    let mut bench = Bench::new(limits().max_sectors(8), policy());
    bench.issue(Op::Write, NONE, 0, 20 * K4, 7);
    assert_eq!(bench.queue.hctx.nr_free_tags(), 2);
    bench.queue_pages(Op::Read, [50]);
    bench.drain();
    bench.finish();
    let ends = bench.ends();
    assert_eq!(ends, [(50, Ok(K4)), (7, Ok(20 * K4))]);
    assert!(bench.toy.seen.iter().filter(|seen| seen.op == Op::Write).count() == 20);
}
