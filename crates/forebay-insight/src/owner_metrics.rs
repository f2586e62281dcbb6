//! Metrics of the owners of I/O, and of connections that have an owner.

use std::fmt;

use forebay::{LIMIT_KEYS, Limits, OwnerStats};

use crate::families::{Families, Name, Value};

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

const CONNECTION_FIGURES: [Figure; 9] =
    figures!("forebay_connection", "I/Os of an open connection");

/// An owner, as shown in metrics.
#[derive(Debug)]
pub struct OwnerRow {
    /// Label `device`.
    pub device: String,
    /// Label `owner`.
    pub owner: String,
    /// Its limits.
    pub limits: Limits,
    /// Its counters.
    pub stats: OwnerStats,
}

/// Writes the metrics of owners, unless there are none.
///
/// # Errors
/// Fails if the encoder does.
pub fn encode(families: &mut Families<'_>, owners: &[OwnerRow]) -> fmt::Result {
    if owners.is_empty() {
        return Ok(());
    }
    for Figure { name, value } in &FIGURES {
        let samples = owners.iter().map(|row| (labels(row), value(&row.stats)));
        families.counter(name, samples)?;
    }
    let limits = owners.iter().flat_map(|row| {
        LIMIT_KEYS.iter().filter_map(move |limit| {
            let value = limit.number(&row.limits)?;
            let [device, owner] = labels(row);
            Some(([device, owner, ("limit", limit.key)], Value::Whole(value)))
        })
    });
    families.gauge(
        &Name::of(
            "forebay_owner_limit",
            "Limits in force: I/Os and bytes per second, bursts, latency goals in microseconds.",
        ),
        limits,
    )?;
    let depths =
        owners.iter().filter_map(|row| Some((labels(row), Value::Whole(row.stats.depth?.into()))));
    families.gauge(
        &Name::of("forebay_owner_depth", "Most I/Os in flight, for latency goals of other owners."),
        depths,
    )
}

fn labels(row: &OwnerRow) -> [(&'static str, &str); 2] {
    [("device", row.device.as_str()), ("owner", row.owner.as_str())]
}

/// A connection that has an owner, as shown in metrics: its labels and its counters.
pub type ConnectionRow = ([(&'static str, String); 2], OwnerStats);

/// Writes the metrics of connections with an owner, unless there are none.
///
/// # Errors
/// Fails if the encoder does.
pub fn encode_connections(families: &mut Families<'_>, rows: &[ConnectionRow]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    for Figure { name, value } in &CONNECTION_FIGURES {
        families.counter(name, rows.iter().map(|(labels, stats)| (&labels[..], value(stats))))?;
    }
    let depths = rows
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
