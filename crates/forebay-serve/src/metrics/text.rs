//! Exposition of all metrics as one text, and of the disks as lines of `/proc/diskstats`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

use super::kinds::{ConnectionRefusal, HandshakeFailure};
use super::owners;
use super::process::Process;
use super::registry::{Counters, RingSnapshot, Snapshot};
use super::traffic::TrafficSum;
use forebay_front::{RequestKind, Stage};
use forebay_insight::CONTENT_TYPE as OPENMETRICS;
use forebay_insight::disk_metrics::{self, DiskRow};
use forebay_insight::diskstats_of;
use forebay_insight::families::{Families, Name, Value};

/// Content type of the text.
pub(super) const CONTENT_TYPE: &str = OPENMETRICS;

/// Encoder of both texts.
#[derive(Debug)]
pub(super) struct Exposition {
    registry: Registry,
    counters: Arc<Counters>,
}

impl Exposition {
    pub(super) fn new(counters: Arc<Counters>, process: Process) -> Exposition {
        let mut registry = Registry::default();
        let all = All { counters: Arc::clone(&counters), process: Mutex::new(process) };
        registry.register_collector(Box::new(all));
        Exposition { registry, counters }
    }

    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Returns the disks of all exports as lines of `/proc/diskstats`.
    pub(super) fn diskstats(&self) -> String {
        let exports = self.counters.snapshot().counted;
        diskstats_of(exports.iter().map(|export| (&*export.name, export.disk.meter())))
    }
}

#[derive(Debug)]
struct All {
    counters: Arc<Counters>,
    process: Mutex<Process>,
}

impl Collector for All {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        let snapshot = self.counters.snapshot();
        families.info(
            &Name::of("forebay_build", "Version of the server."),
            &[("version", env!("CARGO_PKG_VERSION"))],
        )?;
        server(&mut families, &self.counters, &snapshot)?;
        exports(&mut families, &snapshot)?;
        connections(&mut families, &snapshot)?;
        rings(&mut families, &snapshot)?;
        disks(&mut families, &snapshot)?;
        owners::encode(&mut families, &snapshot.counted)?;
        self.process.lock().unwrap_or_else(PoisonError::into_inner).encode(&mut families)
    }
}

fn server(families: &mut Families<'_>, counters: &Counters, snapshot: &Snapshot) -> fmt::Result {
    let counters = counters.server();
    families.one_counter(
        &Name::of("forebay_connections_accepted", "Accepted connections."),
        Value::Whole(snapshot.accepted),
    )?;
    families.counter(
        &Name::of("forebay_connections_refused", "Connections refused, by reason."),
        ConnectionRefusal::ALL
            .map(|(why, word)| ([("reason", word)], Value::Whole(counters.refused(why)))),
    )?;
    let failures = HandshakeFailure::ALL
        .map(|(why, word)| ([("reason", word)], Value::Whole(counters.handshake_failures(why))));
    families.counter(
        &Name::of("forebay_handshake_failures", "Failed handshakes, by reason."),
        failures,
    )?;
    families.one_counter(
        &Name::of("forebay_accept_errors", "Errors of accept(2)."),
        Value::Whole(counters.accept_errors.get()),
    )?;
    families.one_counter(
        &Name::of("forebay_panics", "Panics of the server that ended a connection."),
        Value::Whole(counters.panics.get()),
    )?;
    families.one_counter(
        &Name::seconds("forebay_poll", "Time that threads spent polling for work."),
        Value::from_ns(snapshot.polls.polled_ns),
    )?;
    families.counter(
        &Name::of(
            "forebay_polls",
            "Waits that polled, by their end: work was found, or the thread slept.",
        ),
        [("found", snapshot.polls.nr_found), ("slept", snapshot.polls.nr_missed)]
            .map(|(end, nr)| ([("end", end)], Value::Whole(nr))),
    )?;
    let negotiating = snapshot.connections.iter().filter(|open| open.export.is_none()).count();
    families.one_gauge(
        &Name::of(
            "forebay_connections_negotiating",
            "Open connections that have not chosen an export.",
        ),
        Value::Whole(negotiating as u64),
    )
}

fn disks(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let exports = snapshot.counted.iter().zip(&snapshot.exports);
    let rows: Vec<_> = exports
        .map(|(export, counted)| DiskRow {
            device: &export.name,
            stats: export.disk.stats(),
            io_now: counted.traffic.in_flight(),
            size_bytes: export.disk.capacity_bytes().unwrap_or_default(),
        })
        .collect();
    disk_metrics::encode(families, &rows, "Client requests not answered yet.")
}

/// A counter that exports and connections both have.
type TrafficFigure = (Name, fn(&TrafficSum) -> u64);

const EXPORT_FIGURES: [TrafficFigure; 5] = [
    (Name::of("forebay_export_errors", "Requests answered with an error."), |sum| sum.errors),
    (Name::bytes("forebay_export_read", "Data read by clients."), |sum| sum.read_bytes),
    (Name::bytes("forebay_export_written", "Data written by clients."), |sum| sum.written_bytes),
    (
        Name::bytes("forebay_export_received", "Bytes received from clients, including headers."),
        |sum| sum.received_bytes,
    ),
    (Name::bytes("forebay_export_sent", "Bytes sent to clients, including headers."), |sum| {
        sum.sent_bytes
    }),
];

fn exports(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let exports = || {
        let names = snapshot.counted.iter().map(|export| export.name.as_str());
        names.zip(&snapshot.exports)
    };
    families.gauge(
        &Name::of("forebay_connections", "Open connections."),
        exports().map(|(name, export)| ([("device", name)], Value::Whole(export.connections))),
    )?;
    let requests = exports().flat_map(|(name, export)| {
        RequestKind::ALL.map(|(kind, op)| {
            ([("device", name), ("op", op)], Value::Whole(export.traffic.requests(kind)))
        })
    });
    families.counter(
        &Name::of("forebay_export_requests", "Requests of clients, by command."),
        requests,
    )?;
    for (name, figure) in &EXPORT_FIGURES {
        let samples = exports()
            .map(|(device, export)| ([("device", device)], Value::Whole(figure(&export.traffic))));
        families.counter(name, samples)?;
    }
    let stages = exports().flat_map(|(name, export)| {
        Stage::ALL.map(|(stage, word)| {
            ([("device", name), ("stage", word)], (&export.stages[stage as usize]).into())
        })
    });
    families.histogram(
        &Name::seconds(
            "forebay_request_stage",
            "Time of requests by stage: received to submitted, at the disk.",
        ),
        stages,
    )
}

const CONNECTION_FIGURES: [TrafficFigure; 4] = [
    (Name::of("forebay_connection_requests", "Requests of an open connection."), |sum| {
        sum.all_requests()
    }),
    (
        Name::of(
            "forebay_connection_errors",
            "Requests of an open connection answered with an error.",
        ),
        |sum| sum.errors,
    ),
    (Name::bytes("forebay_connection_received", "Bytes received on an open connection."), |sum| {
        sum.received_bytes
    }),
    (Name::bytes("forebay_connection_sent", "Bytes sent on an open connection."), |sum| {
        sum.sent_bytes
    }),
];

/// Writes the metrics of open connections, whose number is limited: labels of all connections ever
/// accepted would grow without a limit.
fn connections(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let open: Vec<_> = snapshot
        .connections
        .iter()
        .filter_map(|open| {
            let device = snapshot.counted[open.export?].name.as_str();
            Some(([("connection", open.id.to_string()), ("device", device.to_owned())], open))
        })
        .collect();
    for (name, figure) in &CONNECTION_FIGURES {
        let samples =
            open.iter().map(|(labels, open)| (&labels[..], Value::Whole(figure(&open.traffic))));
        families.counter(name, samples)?;
    }
    families.gauge(
        &Name::of(
            "forebay_connection_in_flight",
            "Requests of an open connection not answered yet.",
        ),
        open.iter().map(|(labels, open)| (&labels[..], Value::Whole(open.traffic.in_flight()))),
    )
}

/// A counter of a ring.
type RingFigure = (Name, fn(&RingSnapshot) -> u64);

const RING_FIGURES: [RingFigure; 10] = [
    (Name::of("forebay_ring_requests", "Requests of a ring."), |ring| ring.traffic.all_requests()),
    (Name::of("forebay_ring_errors", "Requests of a ring answered with an error."), |ring| {
        ring.traffic.errors
    }),
    (Name::bytes("forebay_ring_read", "Data read through a ring."), |ring| ring.traffic.read_bytes),
    (Name::bytes("forebay_ring_written", "Data written through a ring."), |ring| {
        ring.traffic.written_bytes
    }),
    (Name::of("forebay_ring_kicks", "Notifications (kicks) from the driver of a ring."), |ring| {
        ring.events.kicks
    }),
    (
        Name::of("forebay_ring_notifications", "Notifications sent to the driver of a ring."),
        |ring| ring.events.notifications,
    ),
    (
        Name::of(
            "forebay_ring_notifications_suppressed",
            "Rounds with completed requests for which the driver wanted no notification.",
        ),
        |ring| ring.events.suppressed,
    ),
    (
        Name::of(
            "forebay_ring_bounced_requests",
            "Requests of a ring whose data are copied: the disk does not accept their memory.",
        ),
        |ring| ring.events.bounced,
    ),
    (
        Name::bytes("forebay_ring_bounced", "Data of a ring that are copied for that reason."),
        |ring| ring.events.bounced_bytes,
    ),
    (
        Name::of(
            "forebay_ring_registered_requests",
            "Requests to the disk in the memory that a ring has registered with io_uring.",
        ),
        |ring| ring.events.registered,
    ),
];

/// Writes the metrics of the rings of vhost-user-blk devices.
fn rings(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    if snapshot.rings.is_empty() {
        return Ok(());
    }
    for (name, figure) in &RING_FIGURES {
        let samples = snapshot.rings.iter().map(|ring| {
            let device = snapshot.counted[ring.export].name.clone();
            ([("device", device), ("ring", ring.number.to_string())], Value::Whole(figure(ring)))
        });
        families.counter(name, samples)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
