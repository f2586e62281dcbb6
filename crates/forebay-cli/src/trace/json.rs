//! The report of a trace as JSON.

use super::summary::Summary;
use super::text::operation;
use forebay_trace::report::{STAGES, Times, Traced};
use serde_json::{Map, Value, json};

/// Returns the reports of all disks as one value. Times are in nanoseconds.
pub(super) fn render(summaries: &[Summary]) -> String {
    let disks: Vec<Value> = summaries.iter().map(disk).collect();
    format!("{:#}\n", json!({ "disks": disks }))
}

fn disk(summary: &Summary) -> Value {
    let counts = &summary.counts;
    let stages: Map<String, Value> = STAGES
        .iter()
        .enumerate()
        .map(|(stage, name)| ((*name).to_owned(), times(&summary.stages[stage])))
        .collect();
    let slowest_mean: Map<String, Value> = STAGES
        .iter()
        .zip(summary.slowest_mean_ns)
        .map(|(name, mean_ns)| ((*name).to_owned(), json!(mean_ns)))
        .collect();
    json!({
        "disk": summary.disk,
        "files": summary.nr_files,
        "span_ns": summary.span_ns,
        "queued": counts.queued,
        "merged": counts.merged,
        "merge_ratio": summary.merge_ratio(),
        "issued": counts.issued,
        "completed": counts.completed,
        "flushes": counts.flushes,
        "flushes_elided": counts.flushes_elided,
        "splits": counts.splits,
        "unplugs": counts.unplugs,
        "waits": counts.sleeps,
        "limit_waits": counts.limited,
        "requeues": counts.requeues,
        "errors": counts.errors,
        "bytes": counts.bytes,
        "unfinished": summary.nr_open,
        "left_out": summary.nr_left_out,
        "missing_records": summary.nr_missing,
        "total_ns": times(&summary.total),
        "flush_ns": times(&summary.flushes),
        "stages_ns": stages,
        "slowest_percent": {
            "ios": summary.nr_slowest,
            "from_ns": summary.slowest_from_ns,
            "mean_ns": slowest_mean,
        },
        "slowest": summary.slowest.iter().map(|bio| slow(summary, bio)).collect::<Vec<_>>(),
    })
}

fn times(times: &Times) -> Value {
    json!({
        "n": times.len(),
        "mean": times.mean_ns(),
        "p50": times.percentile_ns(50.0),
        "p99": times.percentile_ns(99.0),
        "p99.9": times.percentile_ns(99.9),
        "max": times.percentile_ns(100.0),
    })
}

fn slow(summary: &Summary, bio: &Traced) -> Value {
    let stages: Map<String, Value> = STAGES
        .iter()
        .zip(bio.stages_ns)
        .map(|(name, time_ns)| ((*name).to_owned(), time_ns.into()))
        .collect();
    json!({
        "at_ns": bio.queued_ns - summary.first_ns,
        "operation": operation(bio.categories),
        "offset": bio.offset(),
        "bytes": bio.bytes,
        "thread": bio.pid,
        "total_ns": bio.total_ns(),
        "stages_ns": stages,
        "merged": bio.is_merged,
        "waited": bio.has_slept,
        "requeued": bio.was_requeued,
        "error": -i32::from(bio.error),
    })
}
