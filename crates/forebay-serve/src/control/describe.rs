//! Descriptions of exports, their clients and the trace in replies.

use crate::clients::{ClientStats, LISTED_CLIENTS_MAX};
use crate::export::Export;
use crate::managed::Managed;
use crate::traces::{Last, Place, TraceState};
use forebay::{OWNER_COUNTERS, OwnerStats, TraceStats};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Returns the descriptions of all exports.
pub(super) fn describe_all(server: &Managed) -> Value {
    let offered = server.shared.exports.offered();
    let is_offered = |export: &Arc<Export>| offered.iter().any(|(_, it)| Arc::ptr_eq(it, export));
    let one = |export: &Arc<Export>| {
        let mut text = describe(server, export);
        if !is_offered(export) {
            text["removing"] = true.into();
        }
        text
    };
    server.shared.exports.all().iter().map(one).collect()
}

/// Returns the description of an export.
pub(super) fn describe(server: &Managed, export: &Arc<Export>) -> Value {
    let tenant = &export.tenant;
    let (clients, nr_clients) = tenant.clients(LISTED_CLIENTS_MAX);
    let clients: Vec<_> = clients.iter().map(describe_client).collect();
    let mut text = json!({
        "export": export.name,
        "spec": export.spec,
        "size_bytes": server.size_of(export),
        "read_only": export.can.read_only,
        "limits": object(tenant.limits().set_keys()),
        "stats": describe_stats(&tenant.stats()),
        "nr_clients": nr_clients,
        "clients": clients,
    });
    let sockets = server.device_sockets(export);
    if !sockets.is_empty() {
        text["vhost_user_blk"] = sockets.into();
    }
    text
}

/// Returns the state of the trace.
pub(super) fn describe_trace(server: &Managed) -> Value {
    let directory = |place: &Place| match place {
        Place::Directory(dir) => Value::from(dir.display().to_string()),
        Place::Client => Value::Null,
    };
    let (on, place, outcome) = match server.shared.traces.describe() {
        None => return Value::Null,
        Some(TraceState::Off) => return json!({ "on": false }),
        Some(TraceState::On(place, stats)) => (true, place, Ok(stats)),
        Some(TraceState::Ended(Last { place, outcome })) => (false, place, outcome),
    };
    let directory = directory(&place);
    match outcome {
        Ok(TraceStats { records, lost, .. }) => {
            json!({ "on": on, "directory": directory, "records": records, "lost": lost })
        }
        Err(error) => json!({ "on": on, "directory": directory, "error": error }),
    }
}

fn describe_client(client: &ClientStats) -> Value {
    let stats = client.stats.as_ref().map(describe_stats);
    let mut text = json!({ "client": client.id, "peer": client.peer.to_string(), "stats": stats });
    if let Some(own) = &client.own {
        text["limits"] = object(own.set_keys()).into();
    }
    text
}

fn object(keys: Vec<(String, u64)>) -> Map<String, Value> {
    keys.into_iter().map(|(key, number)| (key, number.into())).collect()
}

fn describe_stats(stats: &OwnerStats) -> Value {
    let counters = OWNER_COUNTERS.iter();
    counters.map(|counter| (counter.name.to_owned(), json!(counter.of(stats)))).collect()
}
