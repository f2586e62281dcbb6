//! The answer of a process to `{"command": "stats"}`, as JSON.
//!
//! ```json
//! {"protocol": 1, "now_ns": 123,
//!  "process": {"pid": 7, "name": "db", "version": "0.1.0", "cpu_ns": 5, "uptime_ns": 9},
//!  "disks": [DISK, ...], "exports": [EXPORT, ...]}
//! ```
//!
//! DISK has `number`, `name`, `spec`, `driver`, `size_bytes`, `read_only`, `scheduler`,
//! `nr_requests`, `nr_hw_queues`, `failed`, `in_flight`, `counters` with the names of
//! [`forebay::disk_counters`], `stages`, `owners` and `nr_owners`. `stages` has `plug`, `tag`,
//! `queue` and `driver`, each with `count`, `sum_ns`, `max_ns`, and `buckets`: the filled ones, as
//! pairs of the largest value in nanoseconds and the count.
//!
//! An owner has `name`, `parent`, `weight`, `counters` with the names of
//! [`forebay::OWNER_COUNTERS`], `in_flight`, and `stages` with `total` and `driver`. At most
//! [`OWNERS_MAX`] are listed.
//!
//! `in_flight` and `stages` of an owner are those of requests that start within [`WATCH_DURATION`]
//! after an answer that lists the owner ([`forebay::OwnerActivity`]). They are counted only then,
//! because counting makes I/O more expensive. A reader that asks less often misses some requests.
//!
//! EXPORT is of `forebay serve` only: `name`, `disk` with the number of its disk, `clients`,
//! `in_flight`, `requests`, `errors`, `read_bytes`, `written_bytes`, `received_bytes`,
//! `sent_bytes`, and `stages` with `receive` and `disk`.
//!
//! Counters only rise, so a reader subtracts two answers. `now_ns` is of the clock of
//! [`forebay::now_ns`], and lies between the counters of one answer. `protocol` rises when the
//! meaning of a field changes. A reader must ignore fields that it does not need.

use crate::label::last_part;
use forebay::{DiskMeter, Histogram, OWNER_COUNTERS, OwnerMeter, now_ns};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// The version of the protocol.
pub const PROTOCOL: u64 = 1;

/// Most owners of a disk that an answer lists.
pub const OWNERS_MAX: usize = 256;

/// How long the owners of an answer are watched.
pub const WATCH_DURATION: Duration = Duration::from_secs(10);

/// The description of this process.
#[doc(hidden)]
#[derive(Debug)]
pub struct Process {
    name: String,
    started_ns: u64,
}

impl Process {
    /// Describes this process, whose uptime counts from now on.
    pub fn here() -> Process {
        let program = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&program).file_name().unwrap_or(&program);
        Process { name: name.to_string_lossy().into_owned(), started_ns: now_ns() }
    }

    fn describe(&self, now_ns: u64) -> Value {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        json!({
            "pid": std::process::id(),
            "name": self.name,
            "version": env!("CARGO_PKG_VERSION"),
            "cpu_ns": cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            "uptime_ns": now_ns.saturating_sub(self.started_ns),
        })
    }
}

/// Returns the answer of a process with these disks and exports.
#[doc(hidden)]
pub fn answer(process: &Process, disks: Vec<Value>, exports: Vec<Value>) -> Value {
    let now_ns = now_ns();
    json!({
        "protocol": PROTOCOL,
        "now_ns": now_ns,
        "process": process.describe(now_ns),
        "disks": disks,
        "exports": exports,
    })
}

/// Returns the descriptions of disks, with [`names`].
pub(crate) fn disks(meters: &[DiskMeter]) -> Vec<Value> {
    names(meters).iter().zip(meters).map(|(name, meter)| disk(name, meter)).collect()
}

/// Returns a short name for each disk. No two are the same.
pub(crate) fn names(meters: &[DiskMeter]) -> Vec<String> {
    let short = |meter: &DiskMeter| last_part(&meter.info().spec).to_owned();
    let all: Vec<String> = meters.iter().map(short).collect();
    let is_shared = |name: &String| all.iter().filter(|other| *other == name).count() > 1;
    let name = |(name, meter): (&String, &DiskMeter)| match is_shared(name) {
        true => format!("{name}#{}", meter.number()),
        false => name.clone(),
    };
    all.iter().zip(meters).map(name).collect()
}

/// Returns the description of a disk, whose owners are watched from now on.
#[doc(hidden)]
pub fn disk(name: &str, meter: &DiskMeter) -> Value {
    let (info, stats) = (meter.info(), meter.stats());
    let stages = &stats.queue.stages;
    let counters: Map<String, Value> =
        stats.counters().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let owners = meter.owners();
    json!({
        "number": meter.number(),
        "name": name,
        "spec": info.spec,
        "driver": info.driver,
        "size_bytes": meter.capacity_bytes(),
        "read_only": info.limits.read_only,
        "scheduler": meter.scheduling().scheduler.name(),
        "nr_requests": info.policy.nr_requests,
        "nr_hw_queues": info.policy.nr_hw_queues,
        "failed": meter.is_failed(),
        "in_flight": stats.in_flight,
        "counters": counters,
        "stages": {
            "plug": histogram(&stages.plug),
            "tag": histogram(&stages.tag),
            "queue": histogram(&stages.queue),
            "driver": histogram(&stages.driver),
        },
        "nr_owners": owners.len(),
        "owners": owners.iter().take(OWNERS_MAX).map(owner).collect::<Vec<_>>(),
    })
}

/// Returns the description of an owner, and watches it.
fn owner(owner: &OwnerMeter) -> Value {
    owner.watch(WATCH_DURATION);
    let (stats, activity) = (owner.stats(), owner.activity());
    let counters = OWNER_COUNTERS.iter();
    let counters: Map<String, Value> =
        counters.map(|counter| (counter.name.to_owned(), counter.of(&stats).into())).collect();
    json!({
        "name": owner.name(),
        "parent": owner.parent(),
        "weight": owner.weight(),
        "counters": counters,
        "in_flight": activity.in_flight,
        "stages": {
            "total": histogram(&activity.total),
            "driver": histogram(&activity.driver),
        },
    })
}

fn histogram(times: &Histogram) -> Value {
    let buckets: Vec<_> = times.buckets().map(|(bound, count)| json!([bound, count])).collect();
    json!({
        "count": times.count(), "sum_ns": times.sum(), "max_ns": times.max(), "buckets": buckets,
    })
}
