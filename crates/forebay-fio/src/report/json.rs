//! The JSON report: fio's keys, in their order, with fio's types.
//!
//! The keys are those of fio 3.33 (`--output-format=json`), so that scripts that read fio's results
//! read these. One key is added: `forebay`, a list with one object per device.

use serde_json::{Map, Value, json};

use super::{DiskUtil, JobReport, Report, cpu_percents, date, share_of_group, steady, target};
use crate::generator::Direction;
use crate::histogram::Histogram;
use crate::measures::{Measures, Unified};
use crate::stats::distribution::{BAND_LABELS, BAND_LABELS_MS, BATCH_LABELS, LEVEL_LABELS};
use crate::stats::moments::Moments;
use crate::stats::{DirectionStats, JobStats, Latency};

/// fio's value for a time left that is not known.
const ETA_UNKNOWN: i32 = i32::MAX;

/// Returns the report as one JSON value, with histograms of latencies if `bins` is set.
pub fn value(report: &Report, bins: bool) -> Value {
    let mut top = Map::new();
    let mut put = |key: &str, value: Value| drop(top.insert(key.to_owned(), value));
    put("fio version", report.version.as_str().into());
    put("timestamp", (report.timestamp_ms / 1000).into());
    put("timestamp_ms", report.timestamp_ms.into());
    put("time", date::ctime(report.timestamp_ms / 1000).into());
    if !report.global_options.is_empty() {
        put("global options", options(&report.global_options));
    }
    put("jobs", report.jobs.iter().map(|job| job_value(report, job, bins)).collect());
    put("disk_util", report.disk_util.iter().map(disk_value).collect());
    put("forebay", report.forebay.clone().into());
    Value::Object(top)
}

/// Returns the report as indented JSON text, with a line feed at the end.
pub fn render(report: &Report, bins: bool) -> String {
    // `{:#}` of a JSON value is its indented form, and cannot fail.
    format!("{:#}\n", value(report, bins))
}

fn job_value(report: &Report, job: &JobReport, bins: bool) -> Value {
    let (stats, shown) = (&job.stats, Shown { measures: &job.measures, bins });
    let (user, system) = cpu_percents(stats);
    let (ns, us, ms) = stats.bands.percents(stats.total_ios());
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
    put("jobname", job.name.as_str().into());
    put("groupid", job.group_id.into());
    put("error", job.shown_error().map_or(0, |error| error.errno).into());
    put("eta", ETA_UNKNOWN.into());
    put("elapsed", job.elapsed_s.into());
    put("job options", options(&job.options));
    for direction in Direction::ALL {
        let share = share_of_group(report, job, direction);
        if let Some(word) = job.word(direction) {
            put(word, shown.direction(&stats.directions[direction.index()], share));
        }
    }
    if job.measures.unified != Unified::Mixed {
        put("sync", shown.sync(&stats.sync));
    }
    if let Some(mixed) = &job.mixed {
        put("mixed", shown.direction(mixed, 0.0));
    }
    put("job_runtime", stats.job_runtime_ms.into());
    put("usr_cpu", user.into());
    put("sys_cpu", system.into());
    put("ctx", stats.usage.context_switches().into());
    put("majf", stats.usage.major_faults.into());
    put("minf", stats.usage.minor_faults.into());
    for (key, value) in depth_values(stats) {
        put(key, value);
    }
    put("latency_ns", classes(&BAND_LABELS, &ns));
    put("latency_us", classes(&BAND_LABELS, &us));
    put("latency_ms", classes(&BAND_LABELS_MS, &ms));
    if let Some(errors) = &job.errors {
        put("total_err", errors.total().into());
        put("first_error", errors.first_errno().into());
    }
    for (key, value) in target::values(&job.target, job.iodepth) {
        put(key, value);
    }
    if let Some(window) = &job.steady {
        put("steadystate", steady::value(window));
    }
    if let Some(text) = &job.measures.description {
        put("desc", text.as_str().into());
    }
    Value::Object(object)
}

fn depth_values(stats: &JobStats) -> [(&'static str, Value); 3] {
    let batches = |depths: &crate::stats::distribution::Depths| {
        classes(&BATCH_LABELS, &depths.percents(depths.total()))
    };
    [
        ("iodepth_level", classes(&LEVEL_LABELS, &stats.levels.percents(stats.issued_ios()))),
        ("iodepth_submit", batches(&stats.submits)),
        ("iodepth_complete", batches(&stats.completes)),
    ]
}

/// The figures of a job to report.
#[derive(Clone, Copy)]
struct Shown<'a> {
    measures: &'a Measures,
    bins: bool,
}

impl Shown<'_> {
    fn direction(&self, stats: &DirectionStats, share_of_group: f64) -> Value {
        let rate = stats.bytes_per_second();
        let measures = self.measures;
        let mut value = json!({
            "io_bytes": stats.io_bytes,
            "io_kbytes": stats.io_bytes / 1024,
            "bw_bytes": rate,
            "bw": rate / 1024,
            "iops": stats.ios_per_second(),
            "runtime": stats.runtime_ms,
            "total_ios": stats.issued_ios(),
            "short_ios": stats.short_ios,
            "drop_ios": stats.drop_ios,
            "slat_ns": self.latency(&stats.slat, &stats.slat_histogram, measures.slat_percentiles),
            "clat_ns":
                self.latency(&stats.clat.moments, &stats.clat.histogram, measures.shows_clat()),
            "lat_ns": self.latency(&stats.lat, &stats.lat_histogram, measures.lat_percentiles),
            "prios": self.priorities(stats),
            "bw_min": stats.bw.min(),
            "bw_max": stats.bw.max(),
            "bw_agg": share_of_group,
            "bw_mean": stats.bw.mean(),
            "bw_dev": stats.bw.stddev(),
            "bw_samples": stats.bw.count(),
            "iops_min": stats.iops.min(),
            "iops_max": stats.iops.max(),
            "iops_mean": stats.iops.mean(),
            "iops_stddev": stats.iops.stddev(),
            "iops_samples": stats.iops.count(),
        });
        if stats.priorities.several().next().is_none()
            && let Some(object) = value.as_object_mut()
        {
            object.shift_remove("prios");
        }
        value
    }

    /// Returns the latencies by priority.
    fn priorities(&self, stats: &DirectionStats) -> Value {
        let key = format!("{}_ns", self.measures.latency_by_priority());
        let has_percentiles = self.measures.shows_priorities();
        let entry = |(class, level, latency): (u16, u16, &Latency)| {
            let of_one = self.latency(&latency.moments, &latency.histogram, has_percentiles);
            json!({ "prioclass": class, "prio": level, &key: of_one })
        };
        stats.priorities.several().map(entry).collect()
    }

    fn sync(&self, sync: &Latency) -> Value {
        json!({
            "total_ios": sync.moments.count(),
            "lat_ns": self.latency(&sync.moments, &sync.histogram, true),
        })
    }

    /// Moments, and percentiles if they are wanted and there is anything to take them from.
    fn latency(&self, moments: &Moments, histogram: &Histogram, percentiles: bool) -> Value {
        let mut value = json!({
            "min": moments.min(),
            "max": moments.max(),
            "mean": moments.mean(),
            "stddev": moments.stddev(),
            "N": moments.count(),
        });
        if percentiles && moments.count() > 0 {
            let percents = self.measures.percents();
            let keyed = percents.iter().zip(histogram.percentiles(percents));
            let keyed = keyed.map(|(percent, ns)| (format!("{percent:.6}"), ns.into()));
            value["percentile"] = Value::Object(keyed.collect());
            if self.bins {
                let bins = histogram.iter().map(|(ns, count)| (ns.to_string(), count.into()));
                value["bins"] = Value::Object(bins.collect());
            }
        }
        value
    }
}

fn classes(labels: &[&str], percents: &[f64]) -> Value {
    let keyed = labels.iter().zip(percents);
    Value::Object(keyed.map(|(label, &percent)| ((*label).to_owned(), percent.into())).collect())
}

fn options(options: &[(String, String)]) -> Value {
    let keyed = options.iter();
    Value::Object(keyed.map(|(name, text)| (name.clone(), text.as_str().into())).collect())
}

fn disk_value(disk: &DiskUtil) -> Value {
    json!({
        "name": disk.name,
        "read_ios": disk.read_ios,
        "write_ios": disk.write_ios,
        "read_merges": disk.read_merges,
        "write_merges": disk.write_merges,
        "read_ticks": disk.read_ticks_ms,
        "write_ticks": disk.write_ticks_ms,
        "in_queue": disk.in_queue_ms,
        "util": disk.util_percent,
    })
}
