//! Metrics of the exports' disks: those of `/proc/diskstats`, with the names of Prometheus's
//! node_exporter so that its dashboards work, and counters that only this layer has.
//!
//! As in Linux, zeroed ranges count as writes.

use std::fmt;

use forebay::{DiskStats, Histogram, Op, OpStats, UnplugCause};

use super::counter::bounds_ns;
use super::families::{Buckets, Families, Name, Value};
use super::registry::{CountedExport, Snapshot};

const SECTOR_BYTES: u64 = 512;

/// A counter of a disk.
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
    figure(
        Name::seconds("forebay_disk_io_time", "Time with at least one request at the driver."),
        |disk| Value::from_ns(disk.queue.busy_ns),
    ),
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
    figure(Name::of("forebay_disk_splits", "Requests split off larger ones."), |disk| {
        Value::Whole(disk.queue.splits)
    }),
    figure(Name::of("forebay_disk_commands", "Commands passed to the driver."), |disk| {
        Value::Whole(disk.queue.issued)
    }),
    figure(Name::of("forebay_disk_commits", "Batches of commands passed to the driver."), |disk| {
        Value::Whole(disk.queue.commits)
    }),
    figure(Name::of("forebay_disk_system_calls", "System calls made by the driver."), |disk| {
        Value::Whole(disk.nr_syscalls)
    }),
    figure(
        Name::of("forebay_disk_requeues", "Requests requeued because the driver was busy."),
        |disk| Value::Whole(disk.queue.requeues),
    ),
    figure(
        Name::of(
            "forebay_disk_retries",
            "Merged requests that failed and were retried I/O by I/O.",
        ),
        |disk| Value::Whole(disk.queue.retries),
    ),
    figure(
        Name::of(
            "forebay_disk_timeouts",
            "Requests that were at the device for longer than io_timeout_ms.",
        ),
        |disk| Value::Whole(disk.queue.timeouts),
    ),
    figure(
        Name::of(
            "forebay_disk_early_ends",
            "I/Os that ended with a timeout while the device still had their request.",
        ),
        |disk| Value::Whole(disk.queue.early_ends),
    ),
    figure(Name::of("forebay_disk_tag_waits", "I/Os that waited for a tag."), |disk| {
        Value::Whole(disk.queue.tag_waits)
    }),
    figure(
        Name::seconds("forebay_disk_tag_wait", "Total time that I/Os waited for a tag."),
        |disk| Value::from_ns(disk.queue.tag_wait_ns),
    ),
    figure(
        Name::of("forebay_disk_flushes_asked", "Flushes requested, alone or with a write."),
        |disk| Value::Whole(disk.queue.flushes_asked),
    ),
    figure(
        Name::of(
            "forebay_disk_flushes_joined",
            "Requested flushes that shared the flush of another.",
        ),
        |disk| Value::Whole(disk.queue.flushes_joined),
    ),
    figure(
        Name::of("forebay_disk_flushes_elided", "Requested flushes that had nothing to flush."),
        |disk| Value::Whole(disk.queue.flushes_elided),
    ),
];

const ALL_OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

fn op(disk: &DiskStats, op: Op) -> &OpStats {
    disk.queue.op(op)
}

fn writes(disk: &DiskStats, field: fn(&OpStats) -> u64) -> u64 {
    field(op(disk, Op::Write)) + field(op(disk, Op::WriteZeroes))
}

/// Writes the metrics of all disks.
pub(super) fn encode(
    families: &mut Families<'_>,
    exports: &[CountedExport],
    snapshot: &Snapshot,
) -> fmt::Result {
    let disks: Vec<_> =
        exports.iter().map(|export| (export.name.as_str(), export.disk.stats())).collect();
    for figure in FIGURES {
        let samples = disks.iter().map(|(name, disk)| ([("device", *name)], (figure.value)(disk)));
        families.counter(&figure.name, samples)?;
    }
    let now = exports.iter().zip(&snapshot.exports).map(|(export, counted)| {
        ([("device", export.name.as_str())], Value::Whole(counted.traffic.in_flight()))
    });
    families.gauge(&Name::of("forebay_disk_io_now", "Client requests not answered yet."), now)?;
    let size = exports.iter().map(|export| {
        let bytes = export.disk.capacity_bytes().unwrap_or_default();
        ([("device", export.name.as_str())], Value::Whole(bytes))
    });
    families.gauge(&Name::bytes("forebay_disk_size", "Size of the disk."), size)?;

    let unplugs = disks.iter().flat_map(|(name, disk)| {
        UnplugCause::ALL.map(|cause| {
            let labels = [("device", *name), ("cause", cause.name())];
            (labels, Value::Whole(disk.queue.unplugs(cause)))
        })
    });
    families.counter(
        &Name::of("forebay_disk_unplugs", "Batches released from a plug, by cause."),
        unplugs,
    )?;
    let stages = disks.iter().flat_map(|(name, disk)| {
        let stages = &disk.queue.stages;
        let all = [
            ("plug", &stages.plug),
            ("tag", &stages.tag),
            ("queue", &stages.queue),
            ("driver", &stages.driver),
        ];
        all.map(|(stage, times)| ([("device", *name), ("stage", stage)], buckets(times)))
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
