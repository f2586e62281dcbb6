//! Requests at the control socket, one in each line.
//!
//! - `{"command": "exports"}`, or `"list"`, returns `{"exports": [EXPORT, ...]}`, and `"trace":
//!   TRACE` unless that is `null`.
//! - `{"command": "stats"}` returns the counters of all disks, owners and exports
//!   ([`forebay_insight::stats`]).
//! - `{"command": "limits", "export": NAME}` returns EXPORT.
//! - `{"command": "limits", "export": NAME, "set": {KEY: VALUE, ...}}` changes the limits with
//!   these keys, and returns EXPORT with the new ones. The keys are those of
//!   [`ExportLimits`](crate::ExportLimits). A value is a number, or a string such as `"10m"`;
//!   `null` restores the default. A rate of 0 ends the limit with its burst. All keys are applied,
//!   or none is.
//! - With `"client": NUMBER` beside `"set"`, it changes the limits of this client alone, until it
//!   disconnects. The keys have no `client_` then. Later changes for each client leave it as it is.
//! - `{"command": "policy", "export": NAME, "set": {KEY: VALUE, ...}}` changes settings of the disk
//!   ([`policy`](super::policy)), and returns `{"export": NAME, "policy": {KEY: TEXT, ...}}`.
//! - `{"command": "resize", "export": NAME}` reads the size of the disk again, which may have
//!   grown, and returns `{"exports": [EXPORT, ...]}`. Without `"export"`: all disks.
//! - `{"command": "add", "export": NAME, "spec": SPEC}` adds an export, and returns EXPORT. It may
//!   have `"description"`, `"read_only"`, `"limits": {KEY: VALUE, ...}` and `"priority"`. If the
//!   client has sent descriptors with the request, they are of the file in SPEC. A server that may
//!   not open files needs one for each of its threads and two more, each from an `open` of its own
//!   ([`open_fds`](forebay::DiskOptions::open_fds)). It closes those that it does not need.
//!   `"descriptors": NUMBER` makes it an error if fewer have arrived. With
//!   `"vhost_user_blk": {"num_queues": NUMBER, "queue_size": NUMBER, "block_size": NUMBER,
//!   "serial": TEXT}`, in which all fields have defaults, it is also a device for virtual machines.
//!   The first descriptor is then a unix socket that listens, and the server needs one more of the
//!   file for each queue.
//! - `{"command": "remove", "export": NAME, "force": BOOLEAN}` removes an export, when its clients
//!   have left, and returns `{"removed": NAME}`, with `"sockets": [PATH, ...]` if it has devices.
//!   With `force`, it ends the clients.
//! - `{"command": "drain", "force": BOOLEAN}` ends the server when its clients have left, and
//!   returns `{"draining": true}`. With `force`, it ends them.
//! - `{"command": "reload-certificates"}` returns `{"reloaded": DIRECTORY}`.
//! - `{"command": "log-level", "level": LEVEL}` returns `{"log_level": LEVEL}`.
//! - `{"command": "trace", "on": BOOLEAN}` begins a trace in the server's directory, or ends the
//!   one that runs, and returns `{"trace": TRACE}`. Without `"on"`, it changes nothing.
//! - `{"command": "record"}` begins a trace whose files the client writes. The client has sent one
//!   end of a pair of stream sockets with the request, and receives the files at the other end
//!   (`forebay_trace::stream`). Returns `{"trace": TRACE}`.
//!
//! The default export has the name `""`. NAME may also be the name that `forebay top` shows for it,
//! or the last part of its spec, if no export has that name; but not in `remove`.
//!
//! EXPORT is `{"export": NAME, "spec": SPEC, "size_bytes": NUMBER, "read_only": BOOLEAN, "limits":
//! {KEY: NUMBER, ...}, "stats": {...}, "nr_clients": NUMBER, "clients": [CLIENT, ...]}`, with the
//! limits that are set, and at most [`LISTED_CLIENTS_MAX`](crate::clients::LISTED_CLIENTS_MAX)
//! clients, the oldest first. It has `"vhost_user_blk": [PATH, ...]` with the sockets of its
//! devices, if there are any, and `"removing": true` while it is removed. CLIENT is `{"client":
//! NUMBER, "peer": TEXT, "stats": {...}}`, with the number of its connection, and with `"limits"`
//! if it has its own. Its stats are `null` while clients have no limits, or if the disk can have no
//! more owners. Those of the export include all clients. Times are nanoseconds. The depth in
//! `stats` is `null` without a limit. A request that fails returns `{"error": TEXT}`, with
//! `"added": true` or `"removed": NAME` if the change was made all the same. The connection is
//! closed if it had descriptors.
//!
//! TRACE is `null` if there was no trace and the server has no directory for one, and otherwise
//! `{"on": BOOLEAN}`. Once there was a trace, it also has `"directory": PATH` (`null`: a client
//! writes the files), and `"records": NUMBER` and `"lost": NUMBER`, or `"error": TEXT` if it has
//! ended early.

use super::MAX_DESCRIPTORS;
use serde_json::{Map, Value};
use std::os::fd::OwnedFd;

/// The names of all commands.
const COMMANDS: [&str; 12] = [
    "exports",
    "stats",
    "limits",
    "policy",
    "resize",
    "add",
    "remove",
    "drain",
    "reload-certificates",
    "log-level",
    "trace",
    "record",
];

/// The field with the device of an export to be added.
const DEVICE: &str = "vhost_user_blk";

/// A new value for each key, or `None` for its default.
pub(super) type Set = Vec<(String, Option<String>)>;

/// A request.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    Exports,
    Stats,
    Limits { export: String, client: Option<u64>, set: Set },
    Policy { export: String, set: Set },
    Resize { export: Option<String> },
    Add(Add),
    Remove { export: String, force: bool },
    Drain { force: bool },
    ReloadCertificates,
    LogLevel { level: Option<String> },
    Trace { on: Option<bool> },
    Record,
}

/// An export to be added.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Add {
    pub(super) export: String,
    pub(super) spec: String,
    pub(super) description: String,
    pub(super) read_only: bool,
    pub(super) limits: Set,
    pub(super) priority: Option<String>,
    pub(super) device: Option<AddDevice>,
    /// The number of descriptors of the request. `None`: all that have arrived.
    pub(super) nr_descriptors: Option<u64>,
}

/// The device of an export to be added.
#[derive(Debug, Default, PartialEq)]
pub(super) struct AddDevice {
    pub(super) num_queues: Option<u64>,
    pub(super) queue_size: Option<u64>,
    pub(super) block_size: Option<u64>,
    pub(super) serial: Option<String>,
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
        let fields = &mut fields;
        let command = text(fields, "command")?;
        let request = match command.as_str() {
            // The name of `forebay ctl` is a synonym.
            "exports" | "list" => Request::Exports,
            "stats" => Request::Stats,
            "limits" => Request::Limits {
                export: text(fields, "export")?,
                set: set(fields, "set")?,
                client: number(fields, "client", "the number of a connection")?,
            },
            "policy" => {
                Request::Policy { export: text(fields, "export")?, set: set(fields, "set")? }
            }
            "resize" => Request::Resize { export: optional_text(fields, "export")? },
            "add" => Request::Add(Add {
                export: text(fields, "export")?,
                spec: text(fields, "spec")?,
                description: optional_text(fields, "description")?.unwrap_or_default(),
                read_only: switch(fields, "read_only")?,
                limits: set(fields, "limits")?,
                priority: optional_text(fields, "priority")?,
                device: device(fields)?,
                nr_descriptors: number(fields, "descriptors", "the number of descriptors")?,
            }),
            "remove" => {
                Request::Remove { export: text(fields, "export")?, force: switch(fields, "force")? }
            }
            "drain" => Request::Drain { force: switch(fields, "force")? },
            "reload-certificates" => Request::ReloadCertificates,
            "log-level" => Request::LogLevel { level: optional_text(fields, "level")? },
            "trace" => Request::Trace { on: optional_switch(fields, "on")? },
            "record" => Request::Record,
            _ => {
                let expected = COMMANDS.map(|name| format!("{name:?}")).join(", ");
                return Err(format!("command {command:?}: expected one of {expected}"));
            }
        };
        match fields.keys().next() {
            Some(key) => Err(format!("{command:?} has no field {key:?}")),
            None => Ok(request),
        }
    }

    /// Takes the descriptors of the request out of those that the client has sent. Others stay for
    /// later requests, because the kernel may deliver descriptors with an earlier line.
    ///
    /// # Errors
    /// Returns the reason if there are not as many as the request has.
    pub(super) fn take_descriptors(
        &self,
        received: &mut Vec<OwnedFd>,
    ) -> Result<Vec<OwnedFd>, String> {
        let nr = match self {
            Request::Add(Add { nr_descriptors: Some(nr), .. }) => *nr,
            Request::Add(_) | Request::Record => return Ok(std::mem::take(received)),
            _ => return Ok(Vec::new()),
        };
        let has = received.len();
        match usize::try_from(nr).ok().filter(|nr| *nr <= has) {
            Some(nr) => Ok(received.drain(..nr).collect()),
            None => Err(format!(
                "descriptors: {nr}: only {has} arrived: send at most {MAX_DESCRIPTORS}, and raise \
                 the server's limit of open files (ulimit -n, LimitNOFILE=)"
            )),
        }
    }

    /// Returns whether a thread of its own must run the request: it waits for disks, files or
    /// clients.
    pub(super) fn takes_long(&self) -> bool {
        match self {
            Request::Exports
            | Request::Stats
            | Request::Limits { .. }
            | Request::Drain { .. }
            | Request::LogLevel { .. } => false,
            Request::Policy { set, .. } => !set.is_empty(),
            Request::Trace { on } => on.is_some(),
            Request::Resize { .. }
            | Request::Add(_)
            | Request::Remove { .. }
            | Request::Record
            | Request::ReloadCertificates => true,
        }
    }
}

fn text(fields: &mut Map<String, Value>, key: &str) -> Result<String, String> {
    optional_text(fields, key)?.ok_or_else(|| format!("the field {key:?} is missing"))
}

fn optional_text(fields: &mut Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match fields.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{key}: {other}: expected a string")),
    }
}

fn switch(fields: &mut Map<String, Value>, key: &str) -> Result<bool, String> {
    Ok(optional_switch(fields, key)?.unwrap_or(false))
}

fn optional_switch(fields: &mut Map<String, Value>, key: &str) -> Result<Option<bool>, String> {
    match fields.remove(key) {
        None => Ok(None),
        Some(Value::Bool(is_on)) => Ok(Some(is_on)),
        Some(other) => Err(format!("{key}: {other}: expected true or false")),
    }
}

fn number(
    fields: &mut Map<String, Value>,
    key: &str,
    expected: &str,
) -> Result<Option<u64>, String> {
    let Some(value) = fields.remove(key) else { return Ok(None) };
    let number = value.as_u64();
    let expected = || format!("{key}: {value}: expected {expected}");
    Ok(Some(number.ok_or_else(expected)?))
}

/// Returns the device of an export to be added.
fn device(fields: &mut Map<String, Value>) -> Result<Option<AddDevice>, String> {
    let mut fields = match fields.remove(DEVICE) {
        None => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(format!("{DEVICE}: {other}: expected an object")),
    };
    let fields = &mut fields;
    let device = AddDevice {
        num_queues: number(fields, "num_queues", "a number")?,
        queue_size: number(fields, "queue_size", "a number")?,
        block_size: number(fields, "block_size", "a number of bytes")?,
        serial: optional_text(fields, "serial")?,
    };
    match fields.keys().next() {
        Some(key) => Err(format!("{DEVICE} has no field {key:?}")),
        None => Ok(Some(device)),
    }
}

/// Returns the value that each key gets.
fn set(fields: &mut Map<String, Value>, key: &str) -> Result<Set, String> {
    let change = |(key, value): (String, Value)| match value {
        Value::Null => (key, None),
        Value::String(text) => (key, Some(text)),
        other => (key, Some(other.to_string())),
    };
    match fields.remove(key) {
        None => Ok(Vec::new()),
        Some(Value::Object(set)) => Ok(set.into_iter().map(change).collect()),
        Some(other) => Err(format!("{key}: {other}: expected an object")),
    }
}
