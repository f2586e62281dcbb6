//! Requests at the control socket, and the description of an export in replies.
//!
//! - `{"command": "exports"}` returns `{"exports": [EXPORT, ...]}`.
//! - `{"command": "limits", "export": NAME}` returns EXPORT.
//! - `{"command": "limits", "export": NAME, "set": {KEY: VALUE, ...}}` changes the limits with
//!   these keys, and returns EXPORT with the new ones. The keys are those of
//!   [`ExportLimits`](crate::ExportLimits). A value is a number, or a string such as `"10m"`;
//!   `null` restores the default. A rate of 0 ends the limit with its burst. All keys are applied,
//!   or none is.
//! - With `"client": NUMBER` beside `"set"`, it changes the limits of this client alone, until it
//!   disconnects. The keys have no `client_` then. Later changes for each client leave it as it is.
//!
//! EXPORT is `{"export": NAME, "limits": {KEY: NUMBER, ...}, "stats": {...}, "nr_clients": NUMBER,
//! "clients": [CLIENT, ...]}`, with the limits that are set, and at most [`LISTED_CLIENTS_MAX`]
//! clients, the oldest first. CLIENT is `{"client": NUMBER, "peer": TEXT, "stats": {...}}`, with
//! the number of its connection, and with `"limits"` if it has its own. Its stats are `null` while
//! clients have no limits, or if the disk can have no more owners. Those of the export include all
//! clients. Times are nanoseconds. The depth in `stats` is `null` without a limit. A request that
//! fails returns `{"error": TEXT}`, and changes nothing.

use crate::clients::{ClientStats, LISTED_CLIENTS_MAX};
use crate::export::Export;
use crate::tenant::Tenant;
use forebay::{OWNER_COUNTERS, OwnerStats};
use serde_json::{Map, Value, json};

/// A request.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    Exports,
    Limits { export: String, changes: Changes },
}

/// Changes of limits of an export, or of one of its clients.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    client: Option<u64>,
    /// A new value for each key, or `None` for its default.
    set: Vec<(String, Option<String>)>,
}
impl Request {
    /// Parses a line.
    pub(super) fn parse(line: &[u8]) -> Result<Request, String> {
        let value: Value =
            serde_json::from_slice(line).map_err(|error| format!("not a line of JSON: {error}"))?;
        let Value::Object(mut fields) = value else {
            return Err(
                "not a JSON object: expected, for example, {\"command\": \"exports\"}".to_owned()
            );
        };
        let command = text(&mut fields, "command")?;
        let request = match command.as_str() {
            "exports" => Request::Exports,
            "limits" => {
                let export = text(&mut fields, "export")?;
                let set = match fields.remove("set") {
                    None => Vec::new(),
                    Some(Value::Object(set)) => set.into_iter().map(change).collect(),
                    Some(other) => return Err(format!("set: {other}: expected an object")),
                };
                let client = match fields.remove("client") {
                    None => None,
                    Some(client) => Some(client.as_u64().ok_or_else(|| {
                        format!("client: {client}: expected the number of a connection")
                    })?),
                };
                Request::Limits { export, changes: Changes { client, set } }
            }
            _ => return Err(format!("command {command:?}: expected \"exports\" or \"limits\"")),
        };
        match fields.keys().next() {
            Some(key) => Err(format!("{command:?} has no field {key:?}")),
            None => Ok(request),
        }
    }
}

fn text(fields: &mut Map<String, Value>, key: &str) -> Result<String, String> {
    match fields.remove(key) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("{key}: {other}: expected a string")),
        None => Err(format!("the field {key:?} is missing")),
    }
}

/// Returns the value that a key gets.
fn change((key, value): (String, Value)) -> (String, Option<String>) {
    match value {
        Value::Null => (key, None),
        Value::String(text) => (key, Some(text)),
        other => (key, Some(other.to_string())),
    }
}

impl Changes {
    /// Changes the limits of an export.
    pub(super) fn apply(self, tenant: &Tenant) -> Result<(), String> {
        match self.client {
            Some(id) => tenant.change_client(id, &self.set),
            None if self.set.is_empty() => Ok(()),
            None => tenant.change_limits(&self.set).map_err(|error| error.to_string()),
        }
    }
}

/// Returns the description of an export.
pub(super) fn describe(export: &Export) -> Value {
    let tenant = &export.tenant;
    let (clients, nr_clients) = tenant.clients(LISTED_CLIENTS_MAX);
    let clients: Vec<_> = clients.iter().map(describe_client).collect();
    json!({
        "export": export.name,
        "limits": object(tenant.limits().set_keys()),
        "stats": describe_stats(&tenant.stats()),
        "nr_clients": nr_clients,
        "clients": clients,
    })
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
