//! Metrics of the owners of I/O: exports that have, or had, a limit, and their clients.

use std::fmt;

use forebay::{LIMIT_KEYS, OwnerStats};

use super::families::{Families, Name, Value};
use super::registry::CountedExport;
use crate::clients::is_client;

/// Most clients of an export that are shown, the oldest first.
const CLIENTS_MAX: usize = 100;

/// A counter of an owner.
struct Figure {
    name: Name,
    value: fn(&OwnerStats) -> Value,
}

const FIGURES: [Figure; 9] = [
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
        name: Name::of("forebay_owner_scheduler_waits", "I/Os that waited in the I/O scheduler."),
        value: |stats| Value::Whole(stats.scheduler_waits),
    },
    Figure {
        name: Name::seconds(
            "forebay_owner_scheduler_wait",
            "Total time that I/Os waited in the I/O scheduler.",
        ),
        value: |stats| Value::from_ns(stats.scheduler_wait_ns),
    },
    Figure {
        name: Name::of("forebay_owner_missed_windows", "Windows that missed the latency goal."),
        value: |stats| Value::Whole(stats.missed_windows),
    },
];

const CLIENT_FIGURES: [Figure; 9] = [
    Figure {
        name: Name::of("forebay_connection_ios", "I/Os of an open connection started."),
        value: |stats| Value::Whole(stats.ios),
    },
    Figure {
        name: Name::bytes("forebay_connection_io", "Bytes of the I/Os started."),
        value: |stats| Value::Whole(stats.bytes),
    },
    Figure {
        name: Name::of(
            "forebay_connection_limit_waits",
            "I/Os of an open connection that a limit held back.",
        ),
        value: |stats| Value::Whole(stats.limit_waits),
    },
    Figure {
        name: Name::seconds(
            "forebay_connection_limit_wait",
            "Total time that limits held I/Os of an open connection back.",
        ),
        value: |stats| Value::from_ns(stats.limit_wait_ns),
    },
    Figure {
        name: Name::of(
            "forebay_connection_tag_waits",
            "I/Os of an open connection that waited for a tag.",
        ),
        value: |stats| Value::Whole(stats.tag_waits),
    },
    Figure {
        name: Name::seconds(
            "forebay_connection_tag_wait",
            "Total time that I/Os of an open connection waited for a tag.",
        ),
        value: |stats| Value::from_ns(stats.tag_wait_ns),
    },
    Figure {
        name: Name::of(
            "forebay_connection_scheduler_waits",
            "I/Os of an open connection that waited in the I/O scheduler.",
        ),
        value: |stats| Value::Whole(stats.scheduler_waits),
    },
    Figure {
        name: Name::seconds(
            "forebay_connection_scheduler_wait",
            "Total time that I/Os of an open connection waited in the I/O scheduler.",
        ),
        value: |stats| Value::from_ns(stats.scheduler_wait_ns),
    },
    Figure {
        name: Name::of(
            "forebay_connection_missed_windows",
            "Windows in which an open connection missed its latency goal.",
        ),
        value: |stats| Value::Whole(stats.missed_windows),
    },
];

/// Writes the metrics of all owners of all disks. Disks without owners have none. Owners of clients
/// are part of that of their export, and shown by connection.
pub(super) fn encode(families: &mut Families<'_>, exports: &[CountedExport]) -> fmt::Result {
    let of_export = |export: &CountedExport| {
        let device = export.name.clone();
        let owners = export.disk.owners().into_iter().filter(|owner| !is_client(owner));
        owners.map(move |owner| (device.clone(), owner))
    };
    let owners: Vec<_> = exports.iter().flat_map(of_export).collect();
    if owners.is_empty() {
        return Ok(());
    }
    let stats_of = |owner| {
        let mut tenants = exports.iter().map(|export| &export.tenant);
        let tenant = tenants.find(|tenant| tenant.owner() == Some(owner));
        tenant.map_or_else(|| owner.stats(), |tenant| tenant.stats())
    };
    let stats: Vec<_> = owners.iter().map(|(_, owner)| stats_of(owner)).collect();
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
    )?;
    encode_clients(families, exports)
}

/// Writes the metrics of connected clients with an owner.
fn encode_clients(families: &mut Families<'_>, exports: &[CountedExport]) -> fmt::Result {
    let mut clients = Vec::new();
    for export in exports {
        let (listed, _) = export.tenant.clients(CLIENTS_MAX);
        clients.extend(listed.into_iter().filter_map(|client| {
            let labels = [("connection", client.id.to_string()), ("device", export.name.clone())];
            Some((labels, client.stats?))
        }));
    }
    if clients.is_empty() {
        return Ok(());
    }
    for Figure { name, value } in &CLIENT_FIGURES {
        families
            .counter(name, clients.iter().map(|(labels, stats)| (&labels[..], value(stats))))?;
    }
    let depths = clients
        .iter()
        .filter_map(|(labels, stats)| Some((&labels[..], Value::Whole(stats.depth?.into()))));
    families.gauge(
        &Name::of(
            "forebay_connection_depth",
            "Most I/Os of an open connection in flight, for latency goals of others.",
        ),
        depths,
    )
}
