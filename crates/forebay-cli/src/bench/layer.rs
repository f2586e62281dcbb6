//! What the layer itself says after a run: its counters, where the time went, and its settings.

use forebay::{Histogram, MergeKind, Op, StageStats, UnplugCause};
use forebay_fio::report::DiskUtil;
use forebay_fio::report::number::{Base, short};
use serde_json::{Map, Value, json};

use super::outcome::{Layer, Outcome};
use super::plan::disk_name;
use crate::info;

/// Adds the figures of a job's disk to the line of its device in fio's disk statistics.
pub(super) fn add_disk_util(disks: &mut Vec<DiskUtil>, outcome: &Outcome) {
    let Layer { info, stats, elapsed_ns } = &outcome.layer;
    let name = disk_name(&info.spec);
    let at = disks.iter().position(|disk| disk.name == name).unwrap_or_else(|| {
        disks.push(DiskUtil { name, ..DiskUtil::default() });
        disks.len() - 1
    });
    let (disk, queue) = (&mut disks[at], &stats.queue);
    let (read, write) = (queue.op(Op::Read), queue.op(Op::Write));
    let all_ticks_ns: u64 = Op::ALL.iter().map(|&op| queue.op(op).ticks_ns).sum();
    disk.read_ios += read.requests;
    disk.write_ios += write.requests;
    disk.read_merges += read.merges;
    disk.write_merges += write.merges;
    disk.read_ticks_ms += read.ticks_ns / 1_000_000;
    disk.write_ticks_ms += write.ticks_ns / 1_000_000;
    disk.in_queue_ms += all_ticks_ns / 1_000_000;
    // Each clone has its own view of the device; the busiest is the nearest to the truth.
    let busy = queue.busy_ns as f64 * 100.0 / (*elapsed_ns).max(1) as f64;
    disk.util_percent = disk.util_percent.max(busy.min(100.0));
}

/// The object under the key `forebay`.
pub(super) fn json_of(outcome: &Outcome) -> Value {
    let Layer { info, stats, .. } = &outcome.layer;
    let queue = &stats.queue;
    let by_op = |count: fn(&forebay::OpStats) -> u64| {
        let counts = Op::ALL.iter().map(|&op| (op.name().to_owned(), count(queue.op(op)).into()));
        Value::Object(counts.collect())
    };
    let merges = MergeKind::ALL.map(|kind| (kind.name().to_owned(), queue.merges(kind).into()));
    let unplugs =
        UnplugCause::ALL.map(|cause| (cause.name().to_owned(), queue.unplugs(cause).into()));
    let stages = stages(&queue.stages).map(|(name, stage)| (name.to_owned(), stage_value(stage)));
    json!({
        "jobname": outcome.report.name,
        "clone": outcome.clone,
        "spec": info.spec,
        "driver": info.driver,
        "bios": by_op(|op| op.bios),
        "requests": by_op(|op| op.requests),
        "issued": queue.issued,
        "commits": queue.commits,
        "system_calls": stats.nr_syscalls,
        "splits": queue.splits,
        "requeues": queue.requeues,
        "retries": queue.retries,
        "merges": Map::from_iter(merges),
        "unplugs": Map::from_iter(unplugs),
        "latency_ns": Map::from_iter(stages),
        "policy": info::policy_of(info),
    })
}

/// The same for people.
pub(super) fn lines_of(outcome: &Outcome) -> Vec<String> {
    let Layer { info, stats, .. } = &outcome.layer;
    let queue = &stats.queue;
    let bios: u64 = Op::ALL.iter().map(|&op| queue.op(op).bios).sum();
    let requests: u64 = Op::ALL.iter().map(|&op| queue.op(op).requests).sum();
    let merges = MergeKind::ALL.map(|kind| format!("{}={}", kind.name(), queue.merges(kind)));
    let unplugs =
        UnplugCause::ALL.map(|cause| format!("{}={}", cause.name(), queue.unplugs(cause)));
    let mut lines = vec![
        String::new(),
        format!("Layer ({}, {}.{}):", disk_name(&info.spec), outcome.report.name, outcome.clone),
        format!(
            "  bios={bios}, requests={requests}, issued={}, commits={}, system calls={}",
            queue.issued, queue.commits, stats.nr_syscalls
        ),
        format!("  merges       : {}", merges.join(", ")),
        format!("  unplugs      : {}", unplugs.join(", ")),
    ];
    for (name, stage) in stages(&queue.stages) {
        if stage.count() > 0 {
            lines.push(stage_line(name, stage));
        }
    }
    if let Value::Object(policy) = info::policy_of(info) {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let pairs: Vec<_> = policy.iter().map(|(key, v)| format!("{key}={}", plain(v))).collect();
        lines.push(format!("  settings     : {}", pairs.join(", ")));
    }
    lines
}

fn stages(stages: &StageStats) -> [(&'static str, &Histogram); 4] {
    [
        ("plug", &stages.plug),
        ("tag", &stages.tag),
        ("queue", &stages.queue),
        ("driver", &stages.driver),
    ]
}

fn stage_value(stage: &Histogram) -> Value {
    json!({
        "n": stage.count(),
        "mean": stage.mean(),
        "p50": stage.percentile(500_000),
        "p99": stage.percentile(990_000),
        "max": stage.max(),
    })
}

fn stage_line(name: &str, stage: &Histogram) -> String {
    let ns = |ns: u64| short(ns, 6, Base::Decimal, "");
    format!(
        "  {name:<6} (nsec): n={}, avg={}, p50={}, p99={}, max={}",
        stage.count(),
        ns(stage.mean()),
        ns(stage.percentile(500_000)),
        ns(stage.percentile(990_000)),
        ns(stage.max())
    )
}
