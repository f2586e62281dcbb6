//! The published experiments in virtual time: their loads, and the rows computed from them.

use forebay_sim::lab::{
    Costs, Measured, RunCosts, RunLoad, RunQueue, TagLoad, TagNeed, WakePolicy, Worker,
    measure_runs, measure_tags,
};
use forebay_sim::machines::{self, Preset};

use super::notes;
use super::published::{self, Tags};
use super::rows::{Bound, Part, Row, add_switch_ratios, metric};

/// The policies of `tags`: before, after, and the two of this project.
pub(super) const WAKES: [WakePolicy; 4] =
    [WakePolicy::Batch, WakePolicy::Stash, WakePolicy::Single, WakePolicy::Fair];

/// More jobs than in the published tables, with one read each.
const MANY_JOBS: u32 = 1024;

/// Numbers of jobs in the tables of small reads without `--full`.
const SOME_JOBS: [u32; 5] = [1, 16, 64, 128, 1024];

/// Number of jobs of `run`.
pub(super) const RUN_JOBS: u32 = 8;

/// Number of requests that the device of `run` takes at once. It is not published. With up to 64
/// reads in flight the change made no difference, so up to that depth no read waited.
pub(super) const RUN_TAGS: u32 = 64;

/// Every run draws the same random numbers.
pub(super) const SEED: u64 = 1;

/// Returns the seed of `tags` on a device. On `ssd-sas` it decides whether jobs starve in one cell
/// (`stash`, 48 jobs): they do in most of eight seeds, and do not with seed 1 (`bench/LAB.md`).
pub(super) fn tag_seed(device: &str) -> u64 {
    if device == "ssd-sas" { 2 } else { SEED }
}

/// Runs `tags` on all devices, or on one.
pub(super) fn tags(is_full: bool, device: Option<&str>) -> Vec<Row> {
    tables(device).flat_map(|table| of_table(table, is_full)).collect()
}

/// Returns the tables of all devices, or of one.
fn tables(device: Option<&str>) -> impl Iterator<Item = &'static Tags> {
    let all = published::TAGS.iter().chain([&published::ROTATION]).chain(&published::SMALL);
    all.filter(move |table| device.is_none_or(|name| name == table.device))
}

/// Returns whether `device` has cells that only `--full` simulates: tables of small reads.
pub(super) fn has_more_cells(device: &str) -> bool {
    published::SMALL.iter().any(|table| table.device == device)
}

fn of_table(table: &Tags, is_full: bool) -> Vec<Row> {
    let is_small = table.block_bytes == 4096;
    let mut jobs: Vec<u32> = table.rows.iter().map(|(jobs, _)| *jobs).collect();
    if is_small && !is_full {
        jobs.retain(|jobs| SOME_JOBS.contains(jobs));
    }
    if !is_small {
        jobs.push(MANY_JOBS);
    }
    let cells = WAKES.iter().flat_map(|&wake| jobs.iter().map(move |&jobs| (wake, jobs)));
    let mut rows = cells.flat_map(|(wake, nr_jobs)| of_cell(table, nr_jobs, wake)).collect();
    add_switch_ratios(&mut rows);
    by_metric(rows)
}

/// Returns the rows of one cell.
pub(super) fn of_cell(table: &Tags, nr_jobs: u32, wake: WakePolicy) -> Vec<Row> {
    let load = load(table, nr_jobs, wake);
    rows_of(table, &load, &measure_tags(&load))
}

/// Returns the load of a cell.
pub(super) fn load(table: &Tags, nr_jobs: u32, wake: WakePolicy) -> TagLoad {
    const S: u64 = 1_000_000_000;
    let device = device(table.device);
    let is_small = table.block_bytes == 4096;
    // Requests leave the elevator for the device's own queue. A SAS disk takes all 256.
    let worker = match table.device {
        "hdd" => Worker::Behind { device_depth: 32 },
        "ssd-sas" => Worker::Behind { device_depth: 256 },
        _ => Worker::Absent,
    };
    // Tens of thousands of reads in each cell; with many jobs, dozens for each job.
    let (warm_up_ns, run_ns) = match table.device {
        "hdd" if nr_jobs == MANY_JOBS => (60 * S, 600 * S),
        "hdd" => (60 * S, 300 * S),
        "ssd-sas" if !is_small => (4 * S, 40 * S),
        "nvme" if !is_small => (2 * S, 16 * S),
        "ssd-sas" => (S / 10, S / 2),
        _ => (S / 20, S / 5),
    };
    TagLoad {
        device,
        constants: table.constants,
        nr_jobs,
        depth: table.depth,
        block_bytes: table.block_bytes,
        nr_tags: table.nr_tags,
        wake,
        tag_need: TagNeed::Auto,
        is_mixed: false,
        costs: Costs::default(),
        worker,
        warm_up_ns,
        run_ns,
        seed: tag_seed(table.device),
    }
}

/// Returns the model with this name.
pub(super) fn device(name: &str) -> &'static Preset {
    machines::named(name).expect("the tables name devices that there are")
}

fn rows_of(table: &Tags, load: &TagLoad, measured: &Measured) -> Vec<Row> {
    let policy = load.wake.name();
    let (iops, switches) = table.of(load.nr_jobs, policy);
    let row = |metric, value, published: Option<f64>, bound: Option<Bound>| Row {
        experiment: table.experiment,
        part: Part::Virtual,
        device: table.device,
        x: load.nr_jobs,
        metric,
        policy,
        value,
        published,
        bound: bound.filter(|_| published.is_some()),
        note: String::new(),
    };
    let us = |ns: u64| ns as f64 / 1e3;
    let waits = &measured.tag_waits;
    let bound = Some(Bound::Share(table.bound));
    let mut rows = vec![
        row(metric::IOPS, measured.iops(), iops, bound),
        row(metric::SWITCHES, measured.switches_per_s(), switches, None),
        row(metric::TAG_SWITCHES, measured.tag_switches_per_s(), None, None),
        row(metric::COMPLETION_SWITCHES, measured.completion_switches_per_s(), None, None),
        row(metric::RUN_SWITCHES, measured.run_queue_switches_per_s(), None, None),
        row(metric::VAIN_WAKES, measured.vain_wakes_per_s(), None, None),
        row(metric::WAIT_P99, us(waits.percentile(990_000)), None, None),
        row(metric::WAIT_MAX, us(waits.max()), None, None),
        row(metric::FAIR_SHARE, fair_wait_us(load, measured), None, None),
        row(metric::JAIN, measured.jain(), None, None),
        row(metric::LEAST_SHARE, measured.least_share(), None, None),
    ];
    notes::add(&mut rows, table, &measured.ios_of_jobs, measured.least_share());
    rows
}

/// Returns the wait if all waited equally long: for one read of each thread if threads wait, for
/// all reads in flight if reads wait.
pub(super) fn fair_wait_us(load: &TagLoad, measured: &Measured) -> f64 {
    let each = match load.wake {
        WakePolicy::Fair => (load.depth / load.nr_jobs).max(1),
        _ => 1,
    };
    f64::from(each * load.nr_jobs) / measured.iops() * 1e6
}

/// Groups the rows by metric, in the order in which metrics and rows first occur.
pub(super) fn by_metric(rows: Vec<Row>) -> Vec<Row> {
    let mut order: Vec<&str> = Vec::new();
    for row in &rows {
        if !order.contains(&row.metric) {
            order.push(row.metric);
        }
    }
    let mut rows = rows;
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

/// Runs `run`: without injected costs, and with the cost of queueing work that is already pending.
pub(super) fn run() -> Vec<Row> {
    let without = RunCosts::default().without_queueing();
    let as_it_is = of_costs(without, notes::AS_IT_IS, Part::VirtualAsItIs);
    as_it_is.into_iter().chain(run_modelled()).collect()
}

/// Returns the rows of `run` with the cost of queueing work that is already pending.
pub(super) fn run_modelled() -> Vec<Row> {
    of_costs(RunCosts::default(), notes::MODELLED, Part::VirtualModelled)
}

fn of_costs(costs: RunCosts, note: &str, part: Part) -> Vec<Row> {
    let is_modelled = part == Part::VirtualModelled;
    let mut rows = Vec::new();
    for (depth, published) in published::RUN {
        let row = |metric, policy, value, published, bound| Row {
            experiment: "run",
            part,
            device: "virtio-ram",
            x: depth,
            metric,
            policy,
            value,
            published,
            bound,
            note: note.to_owned(),
        };
        let mut iops = Vec::new();
        for (run_queue, published) in RunQueue::ALL.into_iter().zip(published) {
            let (measured, counts) = measure_runs(&run_load(depth, run_queue, costs));
            let nr_ios = measured.iops() * 0.6;
            let published = Some(published).filter(|_| is_modelled);
            let name = run_queue.name();
            iops.push(measured.iops());
            rows.push(row(metric::IOPS, name, measured.iops(), published, None));
            let redundant = counts.nr_redundant as f64 / nr_ios;
            rows.push(row(metric::REDUNDANT, name, redundant, None, None));
        }
        let gain = (iops[1] / iops[0] - 1.0) * 100.0;
        let bound = Some(Bound::Points(published::RUN_BOUND_POINTS)).filter(|_| is_modelled);
        let published = Some(published[2]).filter(|_| is_modelled);
        rows.push(row(metric::GAIN, RunQueue::Dedupe.name(), gain, published, bound));
    }
    by_metric(rows)
}

fn run_load(depth: u32, run_queue: RunQueue, costs: RunCosts) -> RunLoad {
    RunLoad {
        device: device("virtio-ram"),
        nr_jobs: RUN_JOBS,
        depth,
        nr_tags: RUN_TAGS,
        run_queue,
        costs,
        warm_up_ns: 100_000_000,
        run_ns: 500_000_000,
        seed: SEED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_limits_the_tables() {
        assert_eq!(tables(None).count(), published::TAGS.len() + 1 + published::SMALL.len());
        for (device, nr) in [("hdd", 2), ("ssd-sas", 4), ("nvme", 4)] {
            assert!(tables(Some(device)).all(|table| table.device == device));
            assert_eq!(tables(Some(device)).count(), nr);
        }
    }
}
