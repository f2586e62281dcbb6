//! Times of the records of a trace, and the records of bios that end without a command.

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Op, Policy, QueueLimits, TraceEvent, TraceRecord, TraceWriter,
};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

/// Queues a bio at 100 ns, runs turns that have read the clock at 50 ns until it ends, and returns
/// the records of the queue and of the context.
fn records_of_early_turns(max_sectors: u32, op: Op, flags: BioFlags) -> [Vec<TraceRecord>; 2] {
    let limits = limits().volatile_cache(true).max_sectors(max_sectors);
    let mut bench = Bench::new(limits, Policy::default());
    let (of_queue, mut from_queue) = TraceWriter::for_queue(64);
    let (of_context, mut from_context) = TraceWriter::for_context(64);
    bench.queue.ctx.set_trace(Some(of_queue));
    bench.queue.hctx.set_trace(Some(of_context));
    let bio = Bio { flags, ..bench.bio(op, 0, 8192, 1) };
    assert!(bench.queue.queue_traced_bio(bio, 100));
    while bench.ended.is_empty() {
        let Bench { queue, toy, ended, .. } = &mut bench;
        queue.turn(toy, 50, ended);
        while !toy.running.is_empty() {
            toy.complete_oldest();
        }
    }
    [&mut from_queue, &mut from_context].map(|ring| std::iter::from_fn(|| ring.pop()).collect())
}

#[test]
fn turn_that_began_before_a_bio_was_queued_records_later_times_than_its_q() {
    for (max_sectors, op, flags) in [
        (64, Op::Read, NONE),
        // Split, and with messages about flushes before and after the data.
        (8, Op::Read, NONE),
        (64, Op::Write, BioFlags::PREFLUSH.union(BioFlags::FUA)),
    ] {
        let [of_queue, of_context] = records_of_early_turns(max_sectors, op, flags);
        let queued: Vec<_> = of_queue.iter().map(|it| (it.event, it.time_ns)).collect();
        assert_eq!(queued, [(TraceEvent::Queue, 100)]);
        let of_bio = |it: &&TraceRecord| it.op == op;
        assert!(of_context.iter().filter(of_bio).count() >= 3, "{of_context:?}");
        assert!(of_context.iter().filter(of_bio).all(|it| it.time_ns > 100), "{of_context:?}");
    }
}

/// Returns the C records of a bench with two tags: start, length, and failure.
fn completions(
    limits: QueueLimits,
    work: impl FnOnce(&mut Bench),
) -> Vec<(u64, u64, Option<BlockStatus>)> {
    let mut bench = Bench::new(limits, Policy::default().queue_depth(2));
    let (writer, mut reader) = TraceWriter::for_context(64);
    bench.queue.hctx.set_trace(Some(writer));
    work(&mut bench);
    assert_eq!(bench.queue.nr_bios(), 0);
    std::iter::from_fn(|| reader.pop())
        .filter(|it| it.event == TraceEvent::Complete)
        .map(|it| (it.start, it.len, it.status))
        .collect()
}

#[test]
fn rest_that_is_never_issued_has_a_completion_in_the_trace() {
    let io = Some(BlockStatus::Io);
    // The rest of a write that a later one may have overtaken.
    let all = completions(limits().exact_counts(false), |bench| {
        bench.issue(Op::Write, NONE, 0, 4 * K4, 1);
        bench.issue(Op::Write, NONE, 2 * K4, K4, 2);
        bench.complete(1, Ok(K4));
        bench.complete(0, Ok(K4));
    });
    assert_eq!(all, [(2 * K4, K4, None), (0, K4, None), (K4, 3 * K4, io)]);
    // A write of which the driver cannot write more.
    let all = completions(limits(), |bench| {
        bench.issue(Op::Write, NONE, 0, K4, 1);
        bench.complete(0, Ok(0));
    });
    assert_eq!(all, [(0, 0, None), (0, K4, io)]);
    // The rest of a split bio on a device that is gone.
    let all = completions(limits().max_sectors(8), |bench| {
        bench.issue(Op::Read, NONE, 0, 4 * K4, 1);
        bench.complete(0, Err(BlockStatus::Offline));
        bench.complete(0, Err(BlockStatus::Offline));
    });
    let gone = Some(BlockStatus::Offline);
    let never_issued = [(2 * K4, K4, gone), (3 * K4, K4, gone)];
    assert_eq!(all, [&[(0, K4, gone)], &never_issued[..], &[(K4, K4, gone)]].concat());
}
