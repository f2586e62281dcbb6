//! Tests of the counters of a queue and of its latencies.

use crate::common::{Bench, limits};
use forebay_core::{Bio, QueuedBio, Segment};
use forebay_core::{
    BioFlags, Gates, Histogram, MergeKind, Op, PlugCounters, Policy, QueueStats, RunCounters,
    SoftwareQueue, UnplugCause,
};
use std::sync::Arc;

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

fn spans(histogram: &Histogram) -> (u64, u64, u64) {
    (histogram.count(), histogram.sum(), histogram.max())
}

#[test]
fn time_of_a_bio_is_counted_in_each_stage() {
    let mut bench = Bench::new(limits(), Policy::default().queue_depth(1));
    // At 10, 20, and then unplugged at 30 and issued at 40.
    bench.plug_each(Op::Write, 0..2);
    bench.unplug();
    // Waits for the tag from 50 on.
    bench.issue(Op::Read, NONE, 1 << 20, K4, 2);
    bench.turn_after(100);
    // The write ends at 180 and the read is issued. It ends at 190.
    bench.finish();
    let stats = bench.queue.stats();
    let (write, read) = (stats.op(Op::Write), stats.op(Op::Read));
    assert_eq!((write.bios, write.requests, write.bytes, write.merges), (2, 1, 2 * K4, 1));
    assert_eq!((read.bios, read.requests, read.bytes, read.merges), (1, 1, K4, 0));
    assert_eq!((write.ticks_ns, read.ticks_ns), (140, 10));
    assert_eq!((stats.issued, stats.busy_ns), (2, 150));
    assert_eq!((stats.tag_waits, stats.tag_wait_ns), (1, 130));
    let stages = &stats.stages;
    assert_eq!(spans(&stages.plug), (3, 20 + 10, 20));
    assert_eq!(spans(&stages.tag), (2, 10 + 130, 130));
    assert_eq!(spans(&stages.queue), (2, 0, 0));
    assert_eq!(spans(&stages.driver), (2, 140 + 10, 140));
    assert_eq!(stats.merges(MergeKind::Back), 1);
    assert_eq!(stats.unplugs(UnplugCause::Outermost), 1);
}

#[test]
fn switch_turns_latencies_off_and_leaves_counters_on() {
    let mut bench = Bench::new(limits(), Policy::default().queue_depth(1).iostats(false));
    bench.issue(Op::Read, NONE, 0, K4, 1);
    bench.issue(Op::Read, NONE, 1 << 20, K4, 2);
    bench.finish();
    let stats = bench.queue.stats();
    let stages = &stats.stages;
    for stage in [&stages.plug, &stages.tag, &stages.queue, &stages.driver] {
        assert_eq!(spans(stage), (0, 0, 0));
    }
    assert_eq!((stats.op(Op::Read).bios, stats.issued, stats.tag_waits), (2, 2, 1));
}

#[test]
fn parts_of_a_split_bio_are_counted() {
    let limits = limits().max_sectors(8).volatile_cache(true);
    let mut bench = Bench::new(limits, Policy::default());
    bench.issue(Op::Write, BioFlags::FUA, 0, 3 * K4, 1);
    bench.turn_after(100);
    bench.finish();
    let stats = bench.queue.stats();
    let write = stats.op(Op::Write);
    assert_eq!((write.bios, write.bytes, stats.splits), (1, 3 * K4, 2), "the rest is no split");
    assert_eq!((stats.op(Op::Flush).requests, stats.flushes_issued), (1, 1));
    assert_eq!(stats.op(Op::Flush).ticks_ns, 10);
}

#[test]
fn counters_of_queues_add_up() {
    let counters = Arc::new(PlugCounters::default());
    let mut queue = SoftwareQueue::new(limits(), Policy::default(), Arc::clone(&counters));
    for page in [0, 1, 2, 9, 8] {
        let mut queued = QueuedBio::new(0, 0);
        queued.fill(Bio::data(Op::Write, page * K4, Segment { addr: 4096, len: K4 as u32 }));
        queue.queue_bio(queued, 1, 0).expect("a good bio");
    }
    queue.unplug(UnplugCause::Explicit, 1, 0);
    let sum = PlugCounters::default();
    sum.take_over(&counters);
    sum.take_over(&counters);
    let mut stats = QueueStats::default();
    stats.add_plugs(&sum);
    stats.add_plugs(&counters);
    assert_eq!((stats.merges(MergeKind::Back), stats.merges(MergeKind::Front)), (6, 3));
    assert_eq!((stats.unplugs(UnplugCause::Explicit), stats.op(Op::Write).merges), (3, 9));
    assert_eq!((stats.op(Op::Read).merges, stats.unplugs(UnplugCause::Wait)), (0, 0));
}

#[test]
fn runs_of_a_context_are_counted() {
    let counters = RunCounters::default();
    counters.count_run();
    counters.count_run();
    assert_eq!((counters.nr_runs(), counters.nr_timeouts()), ((0, 0, 2), 0));
    let mut stats = QueueStats::default();
    stats.add_runs(&counters);
    assert_eq!(stats.runs_made, 2);
}

#[test]
fn histograms_add_up() {
    let of = |values: &[u64]| {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    };
    let mut sum = of(&[1, 100]);
    sum.add(&of(&[7, 1000, 7]));
    assert_eq!(spans(&sum), (5, 1115, 1000));
    assert_eq!((sum.mean(), sum.count_below(8), sum.count_below(1)), (223, 3, 0));
    assert_eq!((sum.percentile(200_000), sum.percentile(200_001)), (1, 7));
    sum.add(&of(&[2]));
    assert_eq!(sum.max(), 1000, "the largest of both");
    sum.record(u64::MAX);
    assert_eq!((sum.sum(), sum.max()), (u64::MAX, u64::MAX), "the sum does not wrap");
}

#[test]
fn device_is_busy_from_the_first_request_to_the_last_completion() {
    let mut bench = Bench::new(limits(), Policy::default());
    bench.issue(Op::Read, NONE, 0, K4, 1);
    bench.turn_after(90);
    bench.issue(Op::Read, NONE, 1 << 20, K4, 2);
    bench.turn_after(190);
    // Three turns of 10 ns, each with the time before it.
    bench.complete(0, Ok(K4));
    assert_eq!(bench.queue.stats().busy_ns, 0);
    bench.complete(0, Ok(K4));
    assert_eq!(bench.queue.stats().busy_ns, 100 + 20 + 200 + 20);
}

#[test]
fn turns_that_neither_issue_nor_end_anything_are_empty() {
    let mut bench = Bench::new(limits(), Policy::default().queue_depth(1));
    let empty = |bench: &Bench| bench.queue.stats().empty_turns;
    bench.plug_each(Op::Read, [0, 10]);
    bench.unplug();
    assert_eq!((bench.toy.running.len(), empty(&bench)), (1, 0), "it has issued one of two");
    bench.issue(Op::Read, NONE, 1 << 20, K4, 2);
    assert_eq!(empty(&bench), 1, "no tag was free");
    bench.turn();
    assert_eq!(empty(&bench), 2);
    bench.finish();
    assert_eq!(empty(&bench), 2);
    // By the full rules, which find no tag for the new request either.
    bench.issue(Op::Read, NONE, 0, K4, 3);
    bench.queue.gates = Gates { reap: false, ..Gates::OPEN };
    bench.issue(Op::Read, NONE, 0, K4, 4);
    assert_eq!(empty(&bench), 3);
    bench.queue.gates = Gates::OPEN;
    bench.finish();
}

#[test]
fn write_is_one_request_however_many_flushes_it_needs() {
    for flags in [BioFlags::PREFLUSH, BioFlags::FUA, BioFlags::FUA.union(BioFlags::PREFLUSH)] {
        let mut bench = Bench::new(limits().volatile_cache(true), Policy::default());
        bench.issue(Op::Write, flags.union(BioFlags::FSYNC), 0, K4, 1);
        bench.finish();
        let stats = bench.queue.stats();
        let nr_flushes = u64::from(flags.contains(BioFlags::FUA))
            + u64::from(flags.contains(BioFlags::PREFLUSH));
        assert_eq!(
            (stats.op(Op::Write).requests, stats.flushes_issued),
            (1, nr_flushes),
            "{flags:?}"
        );
    }
}
