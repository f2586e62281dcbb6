//! Times of the records of a trace.

use crate::common::{Bench, limits};
use forebay_core::{Bio, BioFlags, Op, Policy, TraceEvent, TraceRecord, TraceWriter};

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
        (64, Op::Read, BioFlags::NONE),
        // Split, and with messages about flushes before and after the data.
        (8, Op::Read, BioFlags::NONE),
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
