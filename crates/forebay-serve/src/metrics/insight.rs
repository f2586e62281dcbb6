//! Counters of the server as JSON, for `forebay top`.

use super::counter::TimesSum;
use super::registry::{CountedExport, Counters, ExportSnapshot};
use forebay::DiskMeter;
use forebay_front::{RequestKind, Stage};
use forebay_insight::stats::{Process, answer, disk};
use serde_json::{Map, Value, json};

impl Counters {
    /// Returns the counters of all exports, and of their disks and owners.
    pub(crate) fn describe(&self, process: &Process) -> Value {
        let snapshot = self.snapshot();
        let exports = || {
            let meters = snapshot.counted.iter().map(|export| export.disk.meter());
            snapshot.counted.iter().zip(&snapshot.exports).zip(meters)
        };
        let disks = exports().map(|((export, _), meter)| disk(&export.name, &meter)).collect();
        answer(process, disks, exports().map(export).collect())
    }
}

fn export(((export, counted), meter): ((&CountedExport, &ExportSnapshot), DiskMeter)) -> Value {
    let traffic = &counted.traffic;
    let by_kind: Map<String, Value> = RequestKind::ALL
        .map(|(kind, name)| (name.to_owned(), traffic.requests(kind).into()))
        .into_iter()
        .collect();
    let stages: Map<String, Value> = Stage::ALL
        .map(|(stage, name)| (name.to_owned(), times(&counted.stages[stage as usize])))
        .into_iter()
        .collect();
    json!({
        "name": export.name,
        "disk": meter.number(),
        "clients": counted.connections,
        "in_flight": traffic.in_flight(),
        "requests": traffic.all_requests(),
        "requests_by_kind": by_kind,
        "errors": traffic.errors,
        "read_bytes": traffic.read_bytes,
        "written_bytes": traffic.written_bytes,
        "received_bytes": traffic.received_bytes,
        "sent_bytes": traffic.sent_bytes,
        "stages": stages,
    })
}

fn times(times: &TimesSum) -> Value {
    let filled = || times.buckets().filter(|(_, count)| *count > 0);
    let buckets: Vec<_> =
        filled().map(|(bound, count)| json!([bound.unwrap_or(u64::MAX), count])).collect();
    let count: u64 = filled().map(|(_, count)| count).sum();
    json!({ "count": count, "sum_ns": times.sum_ns(), "buckets": buckets })
}
