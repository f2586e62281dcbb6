//! Runs as JSON (`--json`): fio's keys for each job of a job file, and the layer's own figures
//! under the key `forebay`. Scenarios and recorded loads have no jobs, so they have this key alone.
//!
//! The clock of the report is the virtual one, which begins in 1970, so a run with the same seed
//! prints the same bytes.

use forebay::IoError;
use forebay_fio::job::JobList;
use forebay_fio::report::{JobError, JobReport, Report, json};
use forebay_sim::{CloneFigures, JobDisk, Late, LateRequest, Reached, Summary};
use serde_json::{Map, Value, json};

use super::front::{self, Place};
use super::reached::events;
use super::rows::{Figure, Row};
use super::run::{LoadOf, Run};
use super::threads;
use super::variants::Variant;
use crate::fio_report::{self, Times, VERSION};
use crate::{counters, info};

/// Returns the report of runs with the same settings: fio's report of a single run, with one object
/// in the list `forebay`, or a list with an object for each run, with its jobs.
pub(super) fn of_runs(load: LoadOf<'_>, runs: &[Run<'_>]) -> String {
    if let ([run], LoadOf::Jobs(command)) = (runs, load) {
        let mut report = jobs(command, run.summary);
        report.forebay = vec![Value::Object(object(run))];
        return json::render(&report, false);
    }
    of_list(load, runs.iter(), runs.iter().map(with_load).collect())
}

/// Returns the report of several settings. The list `forebay` has an object for each: that of its
/// run, or, with several seeds, the ranges of the figures and the list of the runs.
pub(super) fn of_rows(load: LoadOf<'_>, rows: &[Row<'_>]) -> String {
    let object = |row: &Row<'_>| match &row.runs[..] {
        [run] => with_load(run),
        runs => {
            let mut object = Map::from_iter([("setting".to_owned(), setting(&runs[0]))]);
            object.extend(Figure::of(load).iter().map(|&figure| ranges(row, figure)));
            let runs = runs.iter().map(with_load).map(Value::Object).collect();
            object.insert("seeds".to_owned(), Value::Array(runs));
            object
        }
    };
    let mut objects: Vec<_> = rows.iter().map(object).collect();
    if load.recorded().is_some() {
        for (object, place) in objects.iter_mut().zip(front::places(rows)) {
            object.insert("on_front".to_owned(), (place != Place::Dominated).into());
        }
    }
    let runs = rows.iter().flat_map(|row| &row.runs);
    of_list(load, runs, objects)
}

/// Returns the range of a figure over the seeds. The keys are those of a single run.
fn ranges(row: &Row<'_>, figure: Figure) -> (String, Value) {
    let range = |factor: f64| {
        row.range(figure).map(|range| {
            let [median, min, max] =
                [range.median, range.min, range.max].map(|value| value * factor);
            json!({ "median": median, "min": min, "max": max })
        })
    };
    let of_p99 = || range(1e3).map(|range| json!({ "p99": range }));
    let (key, value) = match figure {
        Figure::Iops => ("iops", range(1.0)),
        Figure::P99 => ("latency_ns", of_p99()),
        Figure::Late => ("late_ns", of_p99()),
        Figure::Switches => ("switches_per_io", range(1.0)),
        Figure::Fairness => ("fairness", range(1.0)),
    };
    (key.to_owned(), value.into())
}

/// Returns a report with these objects in the list `forebay`, which have the jobs of the runs.
fn of_list<'a>(
    load: LoadOf<'_>,
    runs: impl Iterator<Item = &'a Run<'a>>,
    forebay: Vec<Map<String, Value>>,
) -> String {
    let forebay: Vec<_> = forebay.into_iter().map(Value::Object).collect();
    let Some(command) = load.jobs() else {
        return format!("{:#}\n", json!({ "version": VERSION, "forebay": forebay }));
    };
    let end_ms = runs.map(|run| times(run.summary).end_ms).max().unwrap_or(0);
    let times = Times { end_ms, elapsed_s: end_ms.div_ceil(1000) };
    let report = Report { forebay, ..fio_report::assemble(command, [].into_iter(), times) };
    let mut value = json::value(&report, false);
    if let Value::Object(map) = &mut value {
        // Each run has its own.
        map.retain(|key, _| key != "jobs" && key != "disk_util");
    }
    format!("{value:#}\n")
}

/// Returns the layer's figures of a run, with those of its jobs (by fio's keys), of its recorded
/// threads, or of its scenario.
fn with_load(run: &Run<'_>) -> Map<String, Value> {
    let mut object = object(run);
    match run.load {
        LoadOf::Scenario => object.extend(of_scenario(run.summary)),
        LoadOf::Recorded(load) => object.extend(threads::json(load, run)),
        LoadOf::Jobs(command) => {
            let mut report = json::value(&jobs(command, run.summary), false);
            for key in ["jobs", "disk_util"] {
                object.insert(key.to_owned(), report[key].take());
            }
        }
    }
    object
}

/// Returns what only a scenario has: its events, and the blocks at risk at its crash points.
fn of_scenario(summary: &Summary) -> [(String, Value); 2] {
    let mut reached = Reached::default();
    reached.add(summary);
    let events = events(&reached).map(|(name, nr)| (name.replace([' ', '-'], "_"), nr.into()));
    let points = summary.tally.crash_points.iter().map(|point| {
        json!({ "at_ns": point.at_ns, "written": point.nr_written, "at_risk": point.nr_unsure })
    });
    [
        ("events".to_owned(), Value::Object(events.collect())),
        ("crash_points".to_owned(), points.collect::<Vec<_>>().into()),
    ]
}

/// Returns the setting in which a run differs from the base; null for the base.
fn setting(run: &Run<'_>) -> Value {
    run.variant.name.as_deref().into()
}

/// Returns fio's report of the jobs.
fn jobs(command: &JobList, summary: &Summary) -> Report {
    let mut clones: Vec<&CloneFigures> = summary.tally.clones.iter().collect();
    clones.sort_by_key(|clone| (clone.job, clone.clone));
    let clones = clones.into_iter().map(|clone| (clone.job, job(command, clone)));
    let disk_util = vec![counters::disk_util("sim", &summary.stats, summary.now_ns)];
    Report { disk_util, ..fio_report::assemble(command, clones, times(summary)) }
}

fn job(command: &JobList, clone: &CloneFigures) -> JobReport {
    let job = &command.jobs[clone.job];
    let error = clone.first_error.map(IoError::Ended);
    JobReport {
        name: job.name.clone(),
        jobs: 1,
        error: error.map(|error| JobError { errno: error.errno(), message: error.to_string() }),
        iodepth: job.iodepth,
        measures: job.measures.clone(),
        stats: clone.stats.clone(),
        ..JobReport::default()
    }
}

fn times(summary: &Summary) -> Times {
    let end_ms = summary.now_ns.div_ceil(1_000_000);
    Times { end_ms, elapsed_s: end_ms.div_ceil(1000) }
}

/// Returns the layer's figures. Speeds are null if the device models no times, and the fairness is
/// null if jobs do not run for a fixed time.
fn object(run: &Run<'_>) -> Map<String, Value> {
    let Run { variant: Variant { device, disk, .. }, summary, .. } = run;
    let (latency, flush) = (run.latencies(), &summary.tally.flush_latency);
    let timed = |value: Value| if run.has_times() { value } else { Value::Null };
    let flush = json!({
        "n": flush.count(),
        "mean": flush.mean(),
        "p50": flush.percentile(500_000),
        "p99": flush.percentile(990_000),
        "max": flush.max(),
    });
    let failures = summary.tally.failures().map(|(it, nr)| (it.name().to_owned(), nr.into()));
    let faults = summary.faults.iter().map(|(rule, nr)| json!({ "rule": rule, "injected": nr }));
    let figures = json!({
        "setting": setting(run),
        "seed": summary.seed,
        "device": device,
        "notes": run.notes(),
        "virtual_time_ns": summary.now_ns,
        "iops": Figure::Iops.value(run),
        "bytes_per_s": timed((summary.mb_per_s() * 1e6).into()),
        "latency_ns": timed(latency.json()),
        "flush_latency_ns": timed(flush),
        "voluntary_switches": summary.nr_sleeps,
        "switches_per_io": Figure::Switches.value(run),
        "fairness": Figure::Fairness.value(run),
        "failed_bios": Map::from_iter(failures),
        "faults": faults.collect::<Vec<_>>(),
        "late_requests": late_requests(&summary.late),
        "device_gone": summary.is_device_gone,
        "runs": summary.stats.runs_made + summary.skipped_runs,
        "skipped_runs": summary.skipped_runs,
        "policy": policy_of(disk),
        "checked": {
            "steps": summary.nr_steps,
            "bios": summary.nr_bios,
            "blocks_read": summary.nr_blocks_read,
            "crash_points": summary.nr_crash_points,
            "durable_writes": summary.nr_promises,
        },
        "trace_hash": format!("{:016x}", summary.hash),
    });
    let mut object = counters::of_queue(&summary.stats);
    if let Value::Object(figures) = figures {
        object = figures.into_iter().chain(object).collect();
    }
    object
}

/// Returns the requests over their time limit, by the layer's reaction, and the first of them.
fn late_requests(late: &Late) -> Value {
    let first = late.first.iter().map(|&LateRequest { op, start, len, stage, .. }| {
        json!({ "op": op.name(), "start": start, "len": len, "stage": stage.name() })
    });
    json!({
        "cancelled": late.nr_cancelled,
        "awaited": late.nr_awaited,
        "given_up": late.nr_given_up,
        "first": first.collect::<Vec<_>>(),
    })
}

/// Returns the settings of the layer.
fn policy_of(disk: &JobDisk) -> Map<String, Value> {
    let mut settings = info::settings_of(&disk.policy, disk.largest_request());
    settings.insert("wake".to_owned(), disk.wake().name().into());
    settings
}
