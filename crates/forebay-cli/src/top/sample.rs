//! Rates between two answers. This is the object of `--json`, and all that the other outputs show.

use super::answer::{Answer, Disk, Export, Owner, Times};
use serde::Serialize;
use std::collections::BTreeMap;

/// The activity of a process over one interval.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    /// The length of the interval.
    pub(super) seconds: f64,
    pub(super) process: ProcessSample,
    pub(super) disks: Vec<DiskSample>,
    pub(super) exports: Vec<ExportSample>,
    pub(super) owners: Vec<OwnerSample>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ProcessSample {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) uptime_seconds: u64,
    /// Processors in use: 1 is all of one.
    pub(super) cpus: f64,
}

/// The activity of a disk. Rates are per second.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DiskSample {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) spec: String,
    pub(super) driver: String,
    pub(super) scheduler: String,
    pub(super) size_bytes: Option<u64>,
    pub(super) failed: bool,
    /// Requests at the device at the end of the interval.
    pub(super) in_flight: u64,
    /// I/Os that ended, of all kinds.
    pub(super) iops: f64,
    pub(super) reads: f64,
    pub(super) writes: f64,
    pub(super) discards: f64,
    pub(super) read_bytes: f64,
    pub(super) written_bytes: f64,
    /// Requests that completed at the device.
    pub(super) requests: f64,
    /// Share of the I/Os that merged into another request.
    pub(super) merged: f64,
    /// Share of the time with a request at the device.
    pub(super) utilization: f64,
    pub(super) system_calls: f64,
    pub(super) splits: f64,
    pub(super) requeues: f64,
    pub(super) retries: f64,
    pub(super) timeouts: f64,
    pub(super) stages: Vec<StageSample>,
    pub(super) waits: Vec<WaitSample>,
    pub(super) flushes: BTreeMap<&'static str, f64>,
    pub(super) merges: BTreeMap<String, f64>,
    pub(super) unplugs: BTreeMap<String, f64>,
    /// Owners of the disk; more than are listed if there are very many.
    pub(super) nr_owners: usize,
}

/// The times of a stage.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StageSample {
    pub(super) stage: String,
    pub(super) per_second: f64,
    pub(super) mean_ns: f64,
    /// At most an eighth above the exact value; for stages of exports and owners, at most twice
    /// that value.
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
}

/// I/Os that had to wait for one cause.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WaitSample {
    pub(super) cause: &'static str,
    pub(super) per_second: f64,
    pub(super) mean_ns: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ExportSample {
    pub(super) name: String,
    pub(super) clients: u64,
    pub(super) in_flight: u64,
    pub(super) requests: f64,
    pub(super) errors: f64,
    pub(super) read_bytes: f64,
    pub(super) written_bytes: f64,
    pub(super) stages: Vec<StageSample>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct OwnerSample {
    pub(super) disk: String,
    pub(super) name: String,
    pub(super) parent: Option<String>,
    pub(super) weight: u32,
    pub(super) iops: f64,
    pub(super) bytes: f64,
    /// Requests that have left the queue of the owner and have not ended, at the end of the
    /// interval. `None` if the process does not count them.
    pub(super) in_flight: Option<u64>,
    pub(super) stages: Vec<StageSample>,
    pub(super) waits: Vec<WaitSample>,
    pub(super) missed_windows: f64,
    /// Most I/Os in flight, because another owner misses its latency goal.
    pub(super) depth: Option<u64>,
}

/// The stages of a request in their order: of a disk, and of an export; and those of an owner, of
/// which the first includes the other.
const DISK_STAGES: [&str; 4] = ["plug", "tag", "queue", "driver"];
const EXPORT_STAGES: [&str; 2] = ["receive", "disk"];
const OWNER_STAGES: [&str; 2] = ["total", "driver"];

/// Flush counters, by their name in the output.
const FLUSHES: [(&str, &str); 5] = [
    ("asked", "flushes_asked"),
    ("issued", "flushes_issued"),
    ("joined", "flushes_joined"),
    ("elided", "flushes_elided"),
    ("refused", "flushes_refused"),
];

/// Operations of a disk. Zeroed ranges count as writes, as in `/proc/diskstats`.
const READS: &[&str] = &["read"];
const WRITES: &[&str] = &["write", "write_zeroes"];
const ALL_OPS: &[&str] = &["read", "write", "flush", "discard", "write_zeroes"];

impl Sample {
    /// Returns the activity between two answers of one process.
    pub(super) fn between(before: &Answer, after: &Answer) -> Sample {
        let seconds = after.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
        let cpu_ns = after.process.cpu_ns.saturating_sub(before.process.cpu_ns);
        let of_disk = |disk: &Disk| before.disks.iter().find(|it| it.number == disk.number);
        let of_export = |of: &Export| before.exports.iter().find(|it| it.name == of.name);
        let owners = after.disks.iter().flat_map(|disk| {
            let others = of_disk(disk).map_or(&[][..], |disk| &disk.owners);
            disk.owners.iter().map(move |owner| {
                let same = |it: &&Owner| it.name == owner.name && it.parent == owner.parent;
                owner_sample(&disk.name, others.iter().find(same), owner, seconds)
            })
        });
        Sample {
            seconds,
            process: ProcessSample {
                pid: after.process.pid,
                name: after.process.name.clone(),
                version: after.process.version.clone(),
                uptime_seconds: after.process.uptime_ns / 1_000_000_000,
                cpus: cpu_ns as f64 / 1e9 / seconds,
            },
            disks: after.disks.iter().map(|it| disk_sample(of_disk(it), it, seconds)).collect(),
            exports: after
                .exports
                .iter()
                .map(|it| export_sample(of_export(it), it, seconds))
                .collect(),
            owners: owners.collect(),
        }
    }
}

/// Returns the activity of a disk. One that was not there before has been opened since, with
/// counters of 0.
fn disk_sample(before: Option<&Disk>, after: &Disk, seconds: f64) -> DiskSample {
    let value = |of: &Disk, name: &str| of.counters.get(name).copied().unwrap_or_default();
    let rise = |name: &str| {
        value(after, name).saturating_sub(before.map_or(0, |before| value(before, name)))
    };
    let rate = |name: &str| rise(name) as f64 / seconds;
    let ops = |ops: &[&str], what: &str| ops.iter().map(|op| rate(&format!("{op}_{what}"))).sum();
    let prefixed = |prefix: &str| {
        let names = after.counters.keys().filter_map(|name| name.strip_prefix(prefix));
        names.map(|name| (name.to_owned(), rate(&format!("{prefix}{name}")))).collect()
    };
    let iops: f64 = ops(ALL_OPS, "bios");
    let merges: BTreeMap<String, f64> = prefixed("merges_");
    let merged = share(merges.values().sum(), iops);
    let scheduler = |name: &str| {
        let sum = |of: &Disk| {
            of.owners.iter().map(|owner| counter(owner, name)).fold(0, u64::saturating_add)
        };
        sum(after).saturating_sub(before.map_or(0, sum))
    };
    DiskSample {
        number: after.number,
        name: after.name.clone(),
        spec: after.spec.clone(),
        driver: after.driver.clone(),
        scheduler: after.scheduler.clone(),
        size_bytes: after.size_bytes,
        failed: after.failed,
        in_flight: after.in_flight,
        iops,
        reads: ops(READS, "bios"),
        writes: ops(WRITES, "bios"),
        discards: ops(&["discard"], "bios"),
        read_bytes: ops(READS, "bytes"),
        written_bytes: ops(WRITES, "bytes"),
        requests: ops(ALL_OPS, "requests"),
        merged,
        utilization: rate("busy_ns") / 1e9 / f64::from(after.nr_hw_queues.max(1)),
        system_calls: rate("nr_syscalls"),
        splits: rate("splits"),
        requeues: rate("requeues"),
        retries: rate("retries"),
        timeouts: rate("timeouts"),
        stages: stages(&DISK_STAGES, before.map(|it| &it.stages), &after.stages, seconds),
        waits: vec![
            wait("tag", rise("tag_waits"), rise("tag_wait_ns"), seconds),
            wait("limit", rise("limit_waits"), rise("limit_wait_ns"), seconds),
            wait(
                "scheduler",
                scheduler("scheduler_waits"),
                scheduler("scheduler_wait_ns"),
                seconds,
            ),
        ],
        flushes: FLUSHES.map(|(name, counter)| (name, rate(counter))).into(),
        merges,
        unplugs: prefixed("unplugs_"),
        nr_owners: after.nr_owners,
    }
}

fn export_sample(before: Option<&Export>, after: &Export, seconds: f64) -> ExportSample {
    let rate =
        |of: fn(&Export) -> u64| of(after).saturating_sub(before.map_or(0, of)) as f64 / seconds;
    ExportSample {
        name: after.name.clone(),
        clients: after.clients,
        in_flight: after.in_flight,
        requests: rate(|export| export.requests),
        errors: rate(|export| export.errors),
        read_bytes: rate(|export| export.read_bytes),
        written_bytes: rate(|export| export.written_bytes),
        stages: stages(&EXPORT_STAGES, before.map(|it| &it.stages), &after.stages, seconds),
    }
}

fn owner_sample(disk: &str, before: Option<&Owner>, after: &Owner, seconds: f64) -> OwnerSample {
    let rise = |name: &str| {
        counter(after, name).saturating_sub(before.map_or(0, |before| counter(before, name)))
    };
    let rate = |name: &str| rise(name) as f64 / seconds;
    let waits = [
        ("limit", "limit_waits", "limit_wait_ns"),
        ("tag", "tag_waits", "tag_wait_ns"),
        ("scheduler", "scheduler_waits", "scheduler_wait_ns"),
    ];
    OwnerSample {
        disk: disk.to_owned(),
        name: after.name.clone(),
        parent: after.parent.clone(),
        weight: after.weight,
        iops: rate("ios"),
        bytes: rate("bytes"),
        in_flight: after.in_flight,
        stages: stages(&OWNER_STAGES, before.map(|it| &it.stages), &after.stages, seconds),
        waits: waits.map(|(cause, nr, ns)| wait(cause, rise(nr), rise(ns), seconds)).into(),
        missed_windows: rate("missed_windows"),
        depth: after.counters.get("depth").copied().flatten(),
    }
}

fn counter(owner: &Owner, name: &str) -> u64 {
    owner.counters.get(name).copied().flatten().unwrap_or_default()
}

fn wait(cause: &'static str, nr: u64, ns: u64, seconds: f64) -> WaitSample {
    WaitSample { cause, per_second: nr as f64 / seconds, mean_ns: share(ns as f64, nr as f64) }
}

type Stages = BTreeMap<String, Times>;

fn stages(
    names: &[&str],
    before: Option<&Stages>,
    after: &Stages,
    seconds: f64,
) -> Vec<StageSample> {
    let empty = Times::default();
    let of = |stages: Option<&Stages>, name: &str| {
        stages.and_then(|stages| stages.get(name)).unwrap_or(&empty).clone()
    };
    names
        .iter()
        .map(|name| stage(name, &of(before, name), &of(Some(after), name), seconds))
        .collect()
}

fn stage(name: &str, before: &Times, after: &Times, seconds: f64) -> StageSample {
    let count = after.count.saturating_sub(before.count);
    let earlier: BTreeMap<u64, u64> = before.buckets.iter().copied().collect();
    let buckets: Vec<(u64, u64)> = after
        .buckets
        .iter()
        .map(|(bound, count)| {
            (*bound, count.saturating_sub(earlier.get(bound).copied().unwrap_or_default()))
        })
        .collect();
    let sum_ns = after.sum_ns.saturating_sub(before.sum_ns);
    StageSample {
        stage: name.to_owned(),
        per_second: count as f64 / seconds,
        mean_ns: share(sum_ns as f64, count as f64),
        p50_ns: percentile(&buckets, 50),
        p99_ns: percentile(&buckets, 99),
    }
}

/// Returns the bound of the bucket that contains this percentile; 0 without values.
fn percentile(buckets: &[(u64, u64)], percent: u64) -> u64 {
    // Counts come from another process, and may be anything.
    let total: u128 = buckets.iter().map(|(_, count)| u128::from(*count)).sum();
    let rank = (total * u128::from(percent)).div_ceil(100);
    let mut seen = 0;
    let found = buckets.iter().find(|(_, count)| {
        seen += u128::from(*count);
        seen >= rank.max(1)
    });
    found.map_or(0, |(bound, _)| *bound)
}

/// Returns the quotient; 0 if there is nothing to divide by.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::after;
    use super::*;

    fn answer(seconds: u64) -> Answer {
        Answer::parse(after(seconds)).expect("an answer")
    }

    #[test]
    fn rates_are_differences_over_the_time_of_the_process() {
        let sample = Sample::between(&answer(10), &answer(14));
        assert_eq!((sample.seconds, sample.process.cpus), (4.0, 0.18));
        let disk = &sample.disks[1];
        assert_eq!((disk.reads, disk.writes, disk.iops), (9000.0, 3000.0, 12_040.0));
        assert_eq!((disk.read_bytes, disk.written_bytes), (36_864_000.0, 12_288_000.0));
        assert_eq!((disk.requests, disk.utilization), (8010.0, 0.64));
        assert!((disk.merged - 4000.0 / 12_040.0).abs() < 1e-9);
        assert_eq!((disk.flushes["asked"], disk.flushes["issued"]), (40.0, 10.0));
        assert_eq!(disk.unplugs["section"], 800.0);
        let driver = &disk.stages[3];
        assert_eq!((driver.per_second, driver.mean_ns), (8000.0, 84_000.0));
        assert_eq!((driver.p50_ns, driver.p99_ns), (84_000, 672_000));
        let tag = &disk.waits[0];
        assert_eq!((tag.cause, tag.per_second, tag.mean_ns), ("tag", 120.0, 45_000.0));
        let owner = &sample.owners[1];
        assert_eq!((owner.parent.as_deref(), owner.depth), (Some("export:a.img"), Some(4)));
        assert_eq!((owner.iops, owner.missed_windows), (500.0, 2.0));
        assert_eq!(owner.waits[2].mean_ns, 300_000.0);
        let [total, driver] = &owner.stages[..] else { panic!("{:?}", owner.stages) };
        assert_eq!((owner.in_flight, total.per_second, driver.mean_ns), (Some(3), 490.0, 90_000.0));
        assert_eq!(
            (total.stage.as_str(), total.mean_ns, total.p99_ns),
            ("total", 6.1e6, 48_800_000)
        );
        assert_eq!((sample.exports[0].clients, sample.exports[0].errors), (3, 1.0));
    }

    #[test]
    fn disk_that_was_opened_meanwhile_starts_at_zero_and_idle_ones_have_no_latency() {
        let (mut before, after) = (answer(1), answer(2));
        before.disks.truncate(1);
        let sample = Sample::between(&before, &after);
        assert_eq!(sample.disks[1].reads, 18_000.0, "two seconds' worth in one");
        let idle = Sample::between(&after, &after);
        let stage = &idle.disks[0].stages[3];
        assert_eq!((stage.mean_ns, stage.p99_ns, idle.disks[0].iops), (0.0, 0, 0.0));
        assert_eq!(idle.disks[0].waits[0].mean_ns, 0.0);
    }

    #[test]
    fn counters_that_fell_give_no_rate() {
        let sample = Sample::between(&answer(9), &answer(3));
        assert_eq!((sample.disks[0].iops, sample.disks[0].stages[0].per_second), (0.0, 0.0));
    }
}
