//! Metrics of the owners of I/O: exports that have, or had, a limit, and their clients.

use std::fmt;

use forebay::{LIMIT_KEYS, OwnerStats};

use super::families::{Families, Name, Value};
use super::registry::CountedExport;
use crate::clients::{LISTED_CLIENTS_MAX, is_client};

/// A counter of an owner.
struct Figure {
    name: Name,
    value: fn(&OwnerStats) -> Value,
}

/// Declares the counters of owners as metrics, with the beginning of their names and what they
/// count.
macro_rules! figures {
    ($prefix:literal, $ios:literal) => {
        [
            Figure {
                name: Name::of(concat!($prefix, "_ios"), concat!($ios, " started.")),
                value: |stats| Value::Whole(stats.ios),
            },
            Figure {
                name: Name::bytes(
                    concat!($prefix, "_io"),
                    concat!("Bytes of the ", $ios, " started."),
                ),
                value: |stats| Value::Whole(stats.bytes),
            },
            Figure {
                name: Name::of(
                    concat!($prefix, "_limit_waits"),
                    concat!($ios, " that a limit held back, or the latency goal of another owner."),
                ),
                value: |stats| Value::Whole(stats.limit_waits),
            },
            Figure {
                name: Name::seconds(
                    concat!($prefix, "_limit_wait"),
                    concat!("Total time that these held back ", $ios, "."),
                ),
                value: |stats| Value::from_ns(stats.limit_wait_ns),
            },
            Figure {
                name: Name::of(
                    concat!($prefix, "_tag_waits"),
                    concat!($ios, " that waited for a tag."),
                ),
                value: |stats| Value::Whole(stats.tag_waits),
            },
            Figure {
                name: Name::seconds(
                    concat!($prefix, "_tag_wait"),
                    concat!("Total time that ", $ios, " waited for a tag."),
                ),
                value: |stats| Value::from_ns(stats.tag_wait_ns),
            },
            Figure {
                name: Name::of(
                    concat!($prefix, "_scheduler_waits"),
                    concat!($ios, " that waited in the I/O scheduler."),
                ),
                value: |stats| Value::Whole(stats.scheduler_waits),
            },
            Figure {
                name: Name::seconds(
                    concat!($prefix, "_scheduler_wait"),
                    concat!("Total time that ", $ios, " waited in the I/O scheduler."),
                ),
                value: |stats| Value::from_ns(stats.scheduler_wait_ns),
            },
            Figure {
                name: Name::of(
                    concat!($prefix, "_missed_windows"),
                    concat!("Windows of ", $ios, " that missed the latency goal."),
                ),
                value: |stats| Value::Whole(stats.missed_windows),
            },
        ]
    };
}

const FIGURES: [Figure; 9] = figures!("forebay_owner", "I/Os");

const CLIENT_FIGURES: [Figure; 9] = figures!("forebay_connection", "I/Os of an open connection");

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
            let value = limit.number(&limits)?;
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
        let (listed, _) = export.tenant.clients(LISTED_CLIENTS_MAX);
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
