//! The counters of a disk's queue in JSON reports, for `bench` and `sim`.

use forebay::{COUNTERS, MergeKind, Op, OpStats, QueueStats, UnplugCause};
use forebay_fio::report::DiskUtil;
use serde_json::{Map, Value};

/// Returns the line of a disk in fio's disk statistics. Its jobs ran for `elapsed_ns`.
pub(crate) fn disk_util(name: &str, queue: &QueueStats, elapsed_ns: u64) -> DiskUtil {
    let (read, write) = (queue.op(Op::Read), queue.op(Op::Write));
    let all_ticks_ns: u64 = Op::ALL.iter().map(|&op| queue.op(op).ticks_ns).sum();
    DiskUtil {
        name: name.to_owned(),
        read_ios: read.requests,
        write_ios: write.requests,
        read_merges: read.merges,
        write_merges: write.merges,
        read_ticks_ms: read.ticks_ns / 1_000_000,
        write_ticks_ms: write.ticks_ns / 1_000_000,
        in_queue_ms: all_ticks_ns / 1_000_000,
        // The times of several hardware contexts are added, though they overlap.
        util_percent: (queue.busy_ns as f64 * 100.0 / elapsed_ns.max(1) as f64).min(100.0),
    }
}

/// Returns the counters, by name.
pub(crate) fn of_queue(queue: &QueueStats) -> Map<String, Value> {
    let by_op = |count: fn(&OpStats) -> u64| {
        let counts = Op::ALL.map(|op| (op.name().to_owned(), count(queue.op(op)).into()));
        Value::Object(counts.into_iter().collect())
    };
    let merges = MergeKind::ALL.map(|kind| (kind.name().to_owned(), queue.merges(kind).into()));
    let unplugs =
        UnplugCause::ALL.map(|cause| (cause.name().to_owned(), queue.unplugs(cause).into()));
    let mut counters = Map::new();
    counters.insert("bios".to_owned(), by_op(|op| op.bios));
    counters.insert("requests".to_owned(), by_op(|op| op.requests));
    for counter in COUNTERS {
        counters.insert(counter.name.to_owned(), counter.of(queue).into());
    }
    counters.insert("merges".to_owned(), Value::Object(merges.into_iter().collect()));
    counters.insert("unplugs".to_owned(), Value::Object(unplugs.into_iter().collect()));
    counters
}
