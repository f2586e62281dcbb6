//! The figures of one value of a sweep.

use forebay_fio::stats::JobStats;
use serde_json::{Value, json};

use crate::bench::outcome::Outcomes;

/// The percentiles of the completion latency.
const PERCENTS: [f64; 3] = [50.0, 99.0, 99.9];

/// The figures of one value, over all jobs and directions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    /// The value.
    pub(super) value: String,
    /// I/Os per second.
    pub(super) iops: f64,
    /// Bytes per second.
    pub(super) bytes_per_s: f64,
    /// The latencies; `None` if none was measured.
    pub(super) latency: Option<Latency>,
    /// CPU time of the job threads for each I/O, ns.
    pub(super) cpu_ns: f64,
}

/// Completion latencies, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Latency {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
}

impl Point {
    /// Returns the figures of a run with this value.
    pub(super) fn of(value: &str, outcomes: &Outcomes) -> Self {
        let mut stats = JobStats::default();
        outcomes.clones.iter().for_each(|outcome| stats.merge(&outcome.report.stats));
        let mixed = stats.mixed();
        let latency = match mixed.clat.histogram.percentiles(&PERCENTS)[..] {
            [p50, p99, p999] => Some(Latency {
                mean: mixed.clat.moments.mean(),
                p50: p50 as f64,
                p99: p99 as f64,
                p999: p999 as f64,
            }),
            _ => None,
        };
        let cpu_us = (stats.usage.user_us + stats.usage.system_us) as f64;
        Self {
            value: value.to_owned(),
            iops: mixed.ios_per_second(),
            bytes_per_s: mixed.bytes_per_second() as f64,
            latency,
            cpu_ns: cpu_us * 1000.0 / mixed.total_ios.max(1) as f64,
        }
    }
}

/// Returns the figures for programs.
pub(super) fn json(key: &str, points: &[Point]) -> String {
    let tenth = |value: f64| (value * 10.0).round() / 10.0;
    let of_point = |point: &Point| {
        let latency = point.latency.map(|it| {
            json!({
                "mean": tenth(it.mean), "p50": it.p50, "p99": it.p99, "p999": it.p999,
            })
        });
        json!({
            "value": point.value,
            "iops": tenth(point.iops),
            "bw_bytes": point.bytes_per_s,
            "clat_ns": latency,
            "cpu_ns_per_io": tenth(point.cpu_ns),
        })
    };
    let points: Vec<Value> = points.iter().map(of_point).collect();
    format!("{:#}\n", json!({ "sweep": key, "points": points }))
}
