//! The published experiments in real time: threads on disks of the driver `model`.
//!
//! - [`cell`]: measurement of one cell; [`job`]: one of its threads;
//! - [`progress`]: the progress line.

mod cell;
mod job;
mod progress;

use std::time::Duration;

use super::published::{self, Tags};
use super::rows::{Bound, Outcome, Part, Row, add_switch_ratios, metric};
use super::virtual_time::{self, RUN_JOBS, RUN_TAGS, WAKES, by_metric};
use super::{notes, virtual_time::device};
use crate::bench::stop::Stop;
use crate::failure::Failure;
use crate::output;
pub(in crate::lab) use cell::sleep;
use cell::{Cell, Measured};
use forebay_sim::lab::{RunQueue, WakePolicy, jain};
use job::Work;
pub(super) use progress::Progress;

/// Numbers of jobs without `--full`: the lowest and the highest in the tables.
const FEW_JOBS: [u32; 2] = [1, 72];

/// Converts a measurement to rows.
type ToRows = dyn Fn(&Measured) -> Vec<Row>;

/// A cell to run, and the conversion of its result.
struct Planned {
    cell: Cell,
    name: String,
    rows: Box<ToRows>,
}

/// Runs `tags` on all devices, or on one.
pub(super) fn tags(
    is_full: bool,
    device: Option<&str>,
    seconds: Option<u64>,
) -> Result<Outcome, Failure> {
    let small = published::SMALL.iter().filter(|_| is_full);
    let tables = published::TAGS.iter().chain(small);
    let tables = tables.filter(|table| device.is_none_or(|name| name == table.device));
    let planned = tables.map(|table| tags_of(table, is_full)).collect();
    run_all(planned, seconds)
}

fn tags_of(table: &'static Tags, is_full: bool) -> Vec<Planned> {
    let jobs = table.rows.iter().map(|(jobs, _)| *jobs);
    let jobs: Vec<u32> = jobs.filter(|jobs| is_full || FEW_JOBS.contains(jobs)).collect();
    let cells = WAKES.iter().flat_map(|&wake| jobs.iter().map(move |&jobs| (wake, jobs)));
    let planned = cells.map(|(wake, nr_jobs)| Planned {
        cell: cell_of(table, wake, nr_jobs),
        name: format!(
            "{} {}, wake={}, jobs={nr_jobs}",
            table.experiment,
            table.device,
            wake.name()
        ),
        rows: Box::new(move |measured| rows_of(table, wake, nr_jobs, measured)),
    });
    planned.collect()
}

fn cell_of(table: &Tags, wake: WakePolicy, nr_jobs: u32) -> Cell {
    let preset = device(table.device);
    let request_bytes = u64::from(preset.max_sectors) * 512;
    // If threads wait for tags, they get them request by request; see `virtual_time`.
    let parts = match wake {
        WakePolicy::Fair => 1,
        _ => table.block_bytes.div_ceil(request_bytes) as u32,
    };
    let depth = (table.depth / nr_jobs).max(1);
    let (name, nr_tags, nr_bios) = (table.device, table.nr_tags, depth * parts);
    let wake = wake.name();
    let seconds = |of_hdd, of_others| {
        Duration::from_secs(if table.device == "hdd" { of_hdd } else { of_others })
    };
    Cell {
        spec: format!(
            "model:{name}?data=off&nr_hw_queues=1&queue_depth={nr_tags}&nr_bios={nr_bios}\
             &wake={wake}&scheduler=none"
        ),
        nr_jobs,
        work: Work {
            depth,
            block_bytes: table.block_bytes,
            parts,
            nr_places: preset.capacity_bytes / table.block_bytes,
        },
        warm_up: seconds(10, 1),
        run: seconds(25, 4),
    }
}

fn rows_of(table: &Tags, wake: WakePolicy, nr_jobs: u32, measured: &Measured) -> Vec<Row> {
    let policy = wake.name();
    let (iops, switches) = table.of(nr_jobs, policy);
    let row = |metric, value, published: Option<f64>, bound: Option<Bound>| Row {
        experiment: table.experiment,
        part: Part::Real,
        device: table.device,
        x: nr_jobs,
        metric,
        policy,
        value,
        published,
        bound: bound.filter(|_| published.is_some()),
        note: String::new(),
    };
    let us = |ns: u64| ns as f64 / 1e3;
    // The two counters are not read at the same moment.
    let nr_others = measured.nr_sleeps.saturating_sub(measured.nr_tag_sleeps);
    let [of_tags, of_others] = [measured.nr_tag_sleeps, nr_others].map(|nr| measured.per_s(2 * nr));
    let least_share = measured.least_share();
    let mut rows = vec![
        row(metric::IOPS, measured.iops(), iops, Some(Bound::Share(table.bound))),
        row(metric::SWITCHES, of_tags + of_others, switches, None),
        row(metric::TAG_SWITCHES, of_tags, None, None),
        row(metric::COMPLETION_SWITCHES, of_others, None, None),
        // The library has no worker that runs the queue.
        row(metric::RUN_SWITCHES, 0.0, None, None),
        row(metric::VAIN_WAKES, measured.per_s(measured.nr_vain_wakes), None, None),
        row(metric::WAIT_P99, us(measured.waits.percentile(990_000)), None, None),
        row(metric::WAIT_MAX, us(measured.waits.max()), None, None),
        row(metric::JAIN, jain(&measured.ios_of_jobs), None, None),
        row(metric::LEAST_SHARE, least_share, None, None),
    ];
    notes::add(&mut rows, table, &measured.ios_of_jobs, least_share);
    notes::add_of_real_time(&mut rows);
    rows
}

impl Measured {
    fn per_s(&self, nr: u64) -> f64 {
        nr as f64 / self.run.as_secs_f64()
    }

    fn iops(&self) -> f64 {
        self.nr_ios / self.run.as_secs_f64()
    }

    fn least_share(&self) -> f64 {
        let sum: u64 = self.ios_of_jobs.iter().sum();
        let least = self.ios_of_jobs.iter().min().copied().unwrap_or(0);
        least as f64 * self.ios_of_jobs.len() as f64 / sum.max(1) as f64
    }
}

/// Number of pairs of `run` for each depth, with alternating sides, because a machine's speed
/// changes from minute to minute.
const PAIRS: usize = 5;

/// Runs `run`: measured, and in virtual time with the cost of queueing work that is already
/// pending.
pub(super) fn run(seconds: Option<u64>) -> Result<Outcome, Failure> {
    let planned = published::RUN.iter().flat_map(|&(depth, _)| {
        let sides = RunQueue::ALL.iter().cycle().take(2 * PAIRS);
        sides.map(move |run_queue| Planned {
            cell: run_cell(depth, run_queue.name()),
            name: format!("run virtio-ram, run_queue={}, depth={depth}", run_queue.name()),
            rows: Box::new(move |measured| run_rows(depth, run_queue.name(), measured)),
        })
    });
    let outcome = run_all(vec![planned.collect()], seconds)?;
    let mut rows = Vec::new();
    for metric in [metric::IOPS, metric::REDUNDANT, metric::GAIN] {
        for (depth, _) in published::RUN {
            rows.extend(medians(&outcome.rows, depth, metric));
        }
    }
    rows.extend(virtual_time::run_modelled());
    Ok(Outcome { rows, ..outcome })
}

/// Returns the rows of one depth and metric: medians of the measured values, or of the ratios of
/// pairs.
fn medians(measured: &[Row], depth: u32, metric: &'static str) -> Vec<Row> {
    let of = |metric, policy| -> Vec<f64> {
        let rows = measured.iter().filter(|row| (row.x, row.metric) == (depth, metric));
        rows.filter(|row| row.policy == policy).map(|row| row.value).collect()
    };
    if metric == metric::GAIN {
        let pairs = of(metric::IOPS, "always").into_iter().zip(of(metric::IOPS, "dedupe"));
        let gains: Vec<_> = pairs.map(|(always, dedupe)| (dedupe / always - 1.0) * 100.0).collect();
        let note = notes::measured_gains(&gains);
        let row = |gain| Row { note, ..run_row(depth, "dedupe", metric, gain) };
        return median(gains).map(row).into_iter().collect();
    }
    let sides = RunQueue::ALL.map(RunQueue::name);
    let row = |policy| Some(run_row(depth, policy, metric, median(of(metric, policy))?));
    sides.into_iter().filter_map(row).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn run_cell(depth: u32, run_queue: &str) -> Cell {
    let depth = depth / RUN_JOBS;
    Cell {
        spec: format!(
            "model:virtio-ram?data=off&nr_hw_queues=1&queue_depth={RUN_TAGS}&run_queue={run_queue}"
        ),
        nr_jobs: RUN_JOBS,
        work: Work {
            depth,
            block_bytes: 4096,
            parts: 1,
            nr_places: device("virtio-ram").capacity_bytes / 4096,
        },
        warm_up: Duration::from_millis(200),
        run: Duration::from_secs(1),
    }
}

fn run_rows(depth: u32, policy: &'static str, measured: &Measured) -> Vec<Row> {
    let redundant = measured.nr_redundant_runs as f64 / measured.nr_ios.max(1.0);
    vec![
        run_row(depth, policy, metric::IOPS, measured.iops()),
        run_row(depth, policy, metric::REDUNDANT, redundant),
    ]
}

fn run_row(depth: u32, policy: &'static str, metric: &'static str, value: f64) -> Row {
    Row {
        experiment: "run",
        part: Part::RealMeasured,
        device: "virtio-ram",
        x: depth,
        metric,
        policy,
        value,
        published: None,
        bound: None,
        note: notes::MEASURED.to_owned(),
    }
}

/// Runs lists of cells, one after another; the rows of each list are grouped. After a signal,
/// returns the results so far. `seconds` overrides the planned duration of each cell.
fn run_all(mut lists: Vec<Vec<Planned>>, seconds: Option<u64>) -> Result<Outcome, Failure> {
    if let Some(seconds) = seconds {
        lists.iter_mut().flatten().for_each(|it| it.cell.run = Duration::from_secs(seconds));
    }
    let stop = Stop::on_signals()?;
    let took = |planned: &Planned| planned.cell.warm_up + planned.cell.run;
    let all = || lists.iter().flatten();
    let mut progress = Progress::new(all().count(), all().map(took).sum());
    output::stderr(&progress.announcement());
    let (mut rows, mut nr_missing) = (Vec::new(), 0);
    for list in &lists {
        let mut of_list = Vec::new();
        for planned in list {
            if stop.is_set() {
                nr_missing += 1;
                continue;
            }
            progress.begin(planned.name.clone(), took(planned));
            let measured = cell::measure(&planned.cell, &stop, &mut || progress.tick());
            progress.clear();
            progress.end();
            match measured? {
                Some(measured) => of_list.extend((planned.rows)(&measured)),
                None => nr_missing += 1,
            }
        }
        add_switch_ratios(&mut of_list);
        rows.extend(by_metric(of_list));
    }
    Ok(Outcome { rows, nr_missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_the_median_of_the_pairs_and_not_the_ratio_of_medians() {
        let iops = |policy, values: [f64; 3]| {
            values.map(|value| run_row(64, policy, metric::IOPS, value)).into_iter()
        };
        // The machine was slow in the third pair.
        let measured: Vec<_> = iops("always", [100.0, 200.0, 10.0])
            .chain(iops("dedupe", [110.0, 200.0, 12.0]))
            .collect();
        let gains = medians(&measured, 64, metric::GAIN);
        assert_eq!(gains.len(), 1);
        assert!((gains[0].value - 10.0).abs() < 1e-9, "{}", gains[0].value);
        // With such differences, a median alone says little, so the note lists the pairs.
        assert!(gains[0].note.ends_with("the pairs: +10.0, +0.0, +20.0 %"), "{}", gains[0].note);
        let values: Vec<_> =
            medians(&measured, 64, metric::IOPS).iter().map(|row| row.value).collect();
        assert_eq!(values, [100.0, 110.0]);
        assert!(medians(&[], 64, metric::IOPS).is_empty(), "nothing was measured before a signal");
    }
}
