//! Split reads beside small ones, with few tags: the gain of gathering tags (`tag_need`).
//!
//! No figures were published for this load. The reads of 1 MiB are those of `tags`. Small reads
//! between them take single tags, so a large read often finds fewer free tags than it has parts.

use forebay_sim::lab::{Costs, Measured, TagLoad, TagNeed, WakePolicy, Worker, measure_tags};

use super::rows::{Part, Row, metric};
use super::virtual_time::{by_metric, device, tag_seed};

/// The name of the experiment.
pub(super) const NAME: &str = "tags-mixed";

/// The devices of `tags`.
const DEVICES: [&str; 3] = ["hdd", "ssd-sas", "nvme"];

/// The policies: a split bio takes each freed tag, or gathers tags.
const NEEDS: [TagNeed; 2] = [TagNeed::One, TagNeed::Parts];

/// Numbers of tags.
const TAGS: [u32; 5] = [6, 8, 16, 32, 64];

/// Number of jobs, of which every second one reads 4 KiB.
const NR_JOBS: u32 = 24;

/// Reads in flight for each tag. Half of the reads in flight have four parts.
const READS_PER_TAG: u32 = 4;

/// Runs the experiment on all devices, or on one.
pub(super) fn rows(only: Option<&str>) -> Vec<Row> {
    let devices = DEVICES.into_iter().filter(|name| only.is_none_or(|only| only == *name));
    devices.flat_map(|name| by_metric(of_device(name))).collect()
}

fn of_device(name: &'static str) -> Vec<Row> {
    let cells = NEEDS.iter().flat_map(|&need| TAGS.map(|nr_tags| (need, nr_tags)));
    cells.flat_map(|(need, nr_tags)| of_cell(name, need, nr_tags)).collect()
}

fn of_cell(name: &'static str, need: TagNeed, nr_tags: u32) -> Vec<Row> {
    let measured = measure_tags(&load(name, need, nr_tags));
    let row = |metric, value| Row {
        experiment: NAME,
        part: Part::Virtual,
        device: name,
        x: nr_tags,
        metric,
        policy: need.name(),
        value,
        published: None,
        bound: None,
        note: String::new(),
    };
    let us = |ns: u64| ns as f64 / 1e3;
    let [large, small] = &measured.latencies;
    vec![
        row(metric::IOPS, measured.iops()),
        row(metric::MIB_PER_S, mib_per_s(&measured)),
        row(metric::SWITCHES, measured.switches_per_s()),
        row(metric::LARGE_MEAN, us(large.mean())),
        row(metric::LARGE_P99, us(large.percentile(990_000))),
        row(metric::SMALL_MEAN, us(small.mean())),
        row(metric::SMALL_P99, us(small.percentile(990_000))),
        row(metric::WAIT_MAX, us(measured.tag_waits.max())),
        row(metric::LEAST_SHARE, measured.least_share()),
    ]
}

/// Returns the throughput of large and small reads together, in MiB per second.
fn mib_per_s(measured: &Measured) -> f64 {
    let [large, small] = measured.latencies.each_ref().map(|latency| latency.count() as f64);
    (large + small / 256.0) * 1e9 / measured.run_ns as f64
}

/// Returns the load of a cell.
pub(super) fn load(name: &str, tag_need: TagNeed, nr_tags: u32) -> TagLoad {
    const S: u64 = 1_000_000_000;
    let (warm_up_ns, run_ns) = match name {
        "hdd" => (60 * S, 600 * S),
        "ssd-sas" => (4 * S, 40 * S),
        _ => (2 * S, 16 * S),
    };
    TagLoad {
        device: device(name),
        constants: &[],
        nr_jobs: NR_JOBS,
        depth: (READS_PER_TAG * nr_tags).max(NR_JOBS),
        block_bytes: 1 << 20,
        nr_tags,
        wake: WakePolicy::Fair,
        tag_need,
        is_mixed: true,
        costs: Costs::default(),
        worker: Worker::Absent,
        warm_up_ns,
        run_ns,
        seed: tag_seed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iops(name: &str, need: TagNeed, nr_tags: u32) -> f64 {
        let load = load(name, need, nr_tags);
        measure_tags(&TagLoad { run_ns: load.run_ns / 6, ..load }).iops()
    }

    /// Returns the gain of gathering, relative to taking each tag by itself.
    fn gain(name: &str, nr_tags: u32) -> f64 {
        iops(name, TagNeed::Parts, nr_tags) / iops(name, TagNeed::One, nr_tags) - 1.0
    }

    #[test]
    fn gathering_gains_on_a_rotational_disk_and_costs_on_flash() {
        let (hdd, nvme) = (gain("hdd", 8), gain("nvme", 8));
        assert!(hdd > 0.005, "{hdd}");
        assert!(nvme < -0.005, "{nvme}");
    }

    #[test]
    fn gathering_changes_nothing_with_many_tags() {
        for name in DEVICES {
            let gain = gain(name, 64);
            assert!(gain.abs() < 0.005, "{name}: {gain}");
        }
    }

    #[test]
    fn default_gathers_only_on_the_rotational_disk() {
        for name in DEVICES {
            let by_default = iops(name, TagNeed::Auto, 8);
            let need = if name == "hdd" { TagNeed::Parts } else { TagNeed::One };
            assert_eq!(by_default, iops(name, need, 8), "{name}");
        }
    }
}
