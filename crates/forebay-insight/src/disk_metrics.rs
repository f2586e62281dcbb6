//! Metrics of disks: those of `/proc/diskstats`, with the names of Prometheus's
//! node_exporter so that its dashboards work, and counters that only this layer has.
//!
//! As in Linux, zeroed ranges count as writes.

use std::fmt;

use forebay::{COUNTERS, CounterInfo, CounterUnit, DiskStats, Histogram, Op, OpStats, UnplugCause};

use crate::families::{Buckets, Families, Name, Value, bounds_ns};

const SECTOR_BYTES: u64 = 512;

/// A counter of a disk that is not in the layer's table of counters ([`COUNTERS`]).
struct Figure {
    name: Name,
    value: fn(&DiskStats) -> Value,
}

const fn figure(name: Name, value: fn(&DiskStats) -> Value) -> Figure {
    Figure { name, value }
}

const FIGURES: &[Figure] = &[
    figure(Name::of("forebay_disk_reads_completed", "Completed read requests."), |disk| {
        Value::Whole(op(disk, Op::Read).requests)
    }),
    figure(
        Name::of("forebay_disk_reads_merged", "Reads that were merged into another request."),
        |disk| Value::Whole(op(disk, Op::Read).merges),
    ),
    figure(Name::bytes("forebay_disk_read", "Bytes read."), |disk| {
        Value::Whole(op(disk, Op::Read).bytes)
    }),
    figure(Name::seconds("forebay_disk_read_time", "Total time of all read requests."), |disk| {
        Value::from_ns(op(disk, Op::Read).ticks_ns)
    }),
    figure(Name::of("forebay_disk_writes_completed", "Completed write requests."), |disk| {
        Value::Whole(writes(disk, |op| op.requests))
    }),
    figure(
        Name::of("forebay_disk_writes_merged", "Writes that were merged into another request."),
        |disk| Value::Whole(writes(disk, |op| op.merges)),
    ),
    figure(
        Name::bytes("forebay_disk_written", "Bytes written, including zeroed ranges."),
        |disk| Value::Whole(writes(disk, |op| op.bytes)),
    ),
    figure(Name::seconds("forebay_disk_write_time", "Total time of all write requests."), |disk| {
        Value::from_ns(writes(disk, |op| op.ticks_ns))
    }),
    figure(Name::seconds("forebay_disk_io_time_weighted", "Total time of all requests."), |disk| {
        Value::from_ns(ALL_OPS.iter().map(|at| op(disk, *at).ticks_ns).sum())
    }),
    figure(Name::of("forebay_disk_discards_completed", "Completed discard requests."), |disk| {
        Value::Whole(op(disk, Op::Discard).requests)
    }),
    figure(
        Name::of("forebay_disk_discards_merged", "Discards that were merged into another request."),
        |disk| Value::Whole(op(disk, Op::Discard).merges),
    ),
    figure(Name::of("forebay_disk_discarded_sectors", "Sectors of 512 bytes discarded."), |disk| {
        Value::Whole(op(disk, Op::Discard).bytes / SECTOR_BYTES)
    }),
    figure(
        Name::seconds("forebay_disk_discard_time", "Total time of all discard requests."),
        |disk| Value::from_ns(op(disk, Op::Discard).ticks_ns),
    ),
    figure(Name::of("forebay_disk_flush_requests", "Completed flush requests."), |disk| {
        Value::Whole(op(disk, Op::Flush).requests)
    }),
    figure(
        Name::seconds("forebay_disk_flush_requests_time", "Total time of all flush requests."),
        |disk| Value::from_ns(op(disk, Op::Flush).ticks_ns),
    ),
    figure(
        Name::of(
            "forebay_disk_write_zeroes_completed",
            "Completed write requests that zeroed a range.",
        ),
        |disk| Value::Whole(op(disk, Op::WriteZeroes).requests),
    ),
    figure(Name::bytes("forebay_disk_zeroed", "Bytes written by zeroing ranges."), |disk| {
        Value::Whole(op(disk, Op::WriteZeroes).bytes)
    }),
    figure(Name::of("forebay_disk_system_calls", "System calls made by the driver."), |disk| {
        Value::Whole(disk.nr_syscalls)
    }),
];

const ALL_OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

fn op(disk: &DiskStats, op: Op) -> &OpStats {
    disk.queue.op(op)
}

fn writes(disk: &DiskStats, field: fn(&OpStats) -> u64) -> u64 {
    field(op(disk, Op::Write)) + field(op(disk, Op::WriteZeroes))
}

/// Returns the family of a counter in the layer's table.
fn name(counter: &CounterInfo) -> Name {
    match counter.unit {
        CounterUnit::Nanoseconds => Name::seconds(counter.metric, counter.help),
        _ => Name::of(counter.metric, counter.help),
    }
}

/// Returns the value of a counter in the unit of its family.
fn value(counter: &CounterInfo, disk: &DiskStats) -> Value {
    let value = counter.of(&disk.queue);
    match counter.unit {
        CounterUnit::Nanoseconds => Value::from_ns(value),
        _ => Value::Whole(value),
    }
}

/// A disk, as shown in metrics.
#[derive(Debug)]
pub struct DiskRow<'a> {
    /// Label `device`.
    pub device: &'a str,
    /// Its counters.
    pub stats: DiskStats,
    /// I/O in flight.
    pub io_now: u64,
    /// Its size; 0 for a file that grows.
    pub size_bytes: u64,
}

/// Writes the metrics of all disks. `io_now_help` is the meaning of their I/O in flight.
///
/// # Errors
/// Fails if the encoder does.
pub fn encode(
    families: &mut Families<'_>,
    disks: &[DiskRow<'_>],
    io_now_help: &'static str,
) -> fmt::Result {
    for figure in FIGURES {
        let samples =
            disks.iter().map(|disk| ([("device", disk.device)], (figure.value)(&disk.stats)));
        families.counter(&figure.name, samples)?;
    }
    for counter in COUNTERS {
        let samples =
            disks.iter().map(|disk| ([("device", disk.device)], value(counter, &disk.stats)));
        families.counter(&name(counter), samples)?;
    }
    let now = disks.iter().map(|disk| ([("device", disk.device)], Value::Whole(disk.io_now)));
    families.gauge(&Name::of("forebay_disk_io_now", io_now_help), now)?;
    let size = disks.iter().map(|disk| ([("device", disk.device)], Value::Whole(disk.size_bytes)));
    families.gauge(&Name::bytes("forebay_disk_size", "Size of the disk."), size)?;

    let unplugs = disks.iter().flat_map(|DiskRow { device, stats, .. }| {
        UnplugCause::ALL.map(|cause| {
            let labels = [("device", *device), ("cause", cause.name())];
            (labels, Value::Whole(stats.queue.unplugs(cause)))
        })
    });
    families.counter(
        &Name::of("forebay_disk_unplugs", "Batches released from a plug, by cause."),
        unplugs,
    )?;
    let stages = disks.iter().flat_map(|DiskRow { device, stats, .. }| {
        let stages = &stats.queue.stages;
        let all = [
            ("plug", &stages.plug),
            ("tag", &stages.tag),
            ("queue", &stages.queue),
            ("driver", &stages.driver),
        ];
        all.map(|(stage, times)| ([("device", *device), ("stage", stage)], buckets(times)))
    });
    families.histogram(
        &Name::seconds(
            "forebay_disk_stage",
            "Time of I/Os by stage: in a plug, waiting for a tag, in the queue, at the driver.",
        ),
        stages,
    )
}

/// Converts a histogram. The layer counts a value that equals a bound in the bucket above it, which
/// is off by a nanosecond.
fn buckets(times: &Histogram) -> Buckets {
    let mut below = 0;
    let mut bounds: Vec<_> = bounds_ns()
        .map(|bound| {
            let before = std::mem::replace(&mut below, times.count_below(bound));
            (Some(bound), below - before)
        })
        .collect();
    bounds.push((None, times.count() - below));
    Buckets::new(times.sum(), bounds.into_iter())
}
