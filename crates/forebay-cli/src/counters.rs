//! The counters of a disk's queue in JSON reports, for `bench` and `sim`.

use forebay::{MergeKind, Op, OpStats, QueueStats, UnplugCause};
use forebay_fio::report::DiskUtil;
use serde_json::{Map, Value, json};

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
    let counters = json!({
        "bios": by_op(|op| op.bios),
        "requests": by_op(|op| op.requests),
        "issued": queue.issued,
        "commits": queue.commits,
        "turns": queue.turns,
        "empty_turns": queue.empty_turns,
        "tag_waits": queue.tag_waits,
        "tag_wait_ns": queue.tag_wait_ns,
        "tag_wakeups": queue.tag_wakeups,
        "vain_wakeups": queue.vain_wakeups,
        "splits": queue.splits,
        "requeues": queue.requeues,
        "retries": queue.retries,
        "overtaken": queue.overtaken,
        "timeouts": queue.timeouts,
        "early_ends": queue.early_ends,
        "flushes_asked": queue.flushes_asked,
        "flushes_issued": queue.flushes_issued,
        "flushes_joined": queue.flushes_joined,
        "flushes_elided": queue.flushes_elided,
        "flushes_refused": queue.flushes_refused,
        "merges": Map::from_iter(merges),
        "unplugs": Map::from_iter(unplugs),
    });
    match counters {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
