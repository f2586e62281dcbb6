//! Metrics of the owners of I/O: exports that have, or had, a limit.

use std::fmt;

use forebay::{LIMIT_KEYS, OwnerStats};

use super::families::{Families, Name, Value};
use super::registry::CountedExport;

/// A counter of an owner.
struct Figure {
    name: Name,
    value: fn(&OwnerStats) -> Value,
}

const FIGURES: [Figure; 7] = [
    Figure {
        name: Name::of("forebay_owner_ios", "I/Os started."),
        value: |stats| Value::Whole(stats.ios),
    },
    Figure {
        name: Name::bytes("forebay_owner_io", "Bytes of the I/Os started."),
        value: |stats| Value::Whole(stats.bytes),
    },
    Figure {
        name: Name::of("forebay_owner_limit_waits", "I/Os that a limit held back."),
        value: |stats| Value::Whole(stats.limit_waits),
    },
    Figure {
        name: Name::seconds("forebay_owner_limit_wait", "Total time that limits held I/Os back."),
        value: |stats| Value::from_ns(stats.limit_wait_ns),
    },
    Figure {
        name: Name::of("forebay_owner_tag_waits", "I/Os that waited for a tag."),
        value: |stats| Value::Whole(stats.tag_waits),
    },
    Figure {
        name: Name::seconds("forebay_owner_tag_wait", "Total time that I/Os waited for a tag."),
        value: |stats| Value::from_ns(stats.tag_wait_ns),
    },
    Figure {
        name: Name::of("forebay_owner_missed_windows", "Windows that missed the latency goal."),
        value: |stats| Value::Whole(stats.missed_windows),
    },
];

/// Writes the metrics of all owners of all disks. Disks without owners have none.
pub(super) fn encode(families: &mut Families<'_>, exports: &[CountedExport]) -> fmt::Result {
    let of_export = |export: &CountedExport| {
        let device = export.name.clone();
        export.disk.owners().into_iter().map(move |owner| (device.clone(), owner))
    };
    let owners: Vec<_> = exports.iter().flat_map(of_export).collect();
    if owners.is_empty() {
        return Ok(());
    }
    let stats: Vec<_> = owners.iter().map(|(_, owner)| owner.stats()).collect();
    for Figure { name, value } in &FIGURES {
        let samples = owners.iter().zip(&stats).map(|((device, owner), stats)| {
            ([("device", device.as_str()), ("owner", owner.name())], value(stats))
        });
        families.counter(name, samples)?;
    }
    let limits = owners.iter().flat_map(|(device, owner)| {
        let limits = owner.limits();
        LIMIT_KEYS.iter().filter_map(move |limit| {
            let value = limit.get(&limits)?.parse().ok()?;
            let labels =
                [("device", device.as_str()), ("owner", owner.name()), ("limit", limit.key)];
            Some((labels, Value::Whole(value)))
        })
    });
    families.gauge(
        &Name::of(
            "forebay_owner_limit",
            "Limits in force: I/Os and bytes per second, bursts, latency goals in microseconds.",
        ),
        limits,
    )?;
    let depths = owners.iter().zip(&stats).filter_map(|((device, owner), stats)| {
        let labels = [("device", device.as_str()), ("owner", owner.name())];
        Some((labels, Value::Whole(stats.depth?.into())))
    });
    families.gauge(
        &Name::of("forebay_owner_depth", "Most I/Os in flight, for latency goals of other owners."),
        depths,
    )
}
