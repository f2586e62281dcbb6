//! Requests at the control socket, and the description of an export in replies.
//!
//! - `{"command": "exports"}` returns `{"exports": [EXPORT, ...]}`.
//! - `{"command": "limits", "export": NAME}` returns EXPORT.
//! - `{"command": "limits", "export": NAME, "set": {KEY: VALUE, ...}}` changes the limits with
//!   these keys, and returns EXPORT with the new ones. The keys are those of
//!   [`forebay::LIMIT_KEYS`]. A value is a number, or a string such as `"10m"`; `null` restores the
//!   default. A rate of 0 ends the limit with its burst. All keys are applied, or none is.
//!
//! EXPORT is `{"export": NAME, "limits": {KEY: NUMBER, ...}, "stats": {...}}`, with the limits that
//! are set. Times are nanoseconds. The depth in `stats` is `null` without a limit. A request that
//! fails returns `{"error": TEXT}`, and changes nothing.

use crate::export::Export;
use crate::tenant::Tenant;
use forebay::{LIMIT_KEYS, LimitKey, Limits};
use serde_json::{Map, Value, json};

/// A request.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    Exports,
    Limits { export: String, changes: Changes },
}

/// Changes of limits: a new value for each key, or `None` for its default.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes(Vec<(String, Option<String>)>);

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
                let changes = match fields.remove("set") {
                    None => Changes::default(),
                    Some(Value::Object(set)) => Changes::parse(&set)?,
                    Some(other) => return Err(format!("set: {other}: expected an object")),
                };
                Request::Limits { export, changes }
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

impl Changes {
    fn parse(set: &Map<String, Value>) -> Result<Changes, String> {
        let change = |(key, value): (&String, &Value)| {
            let value = match value {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            // 0 is a value of every key.
            let text = value.as_deref().unwrap_or("0");
            Limits::default().set_key(key, text).map_err(|bad| bad.to_string())?;
            Ok((key.clone(), value))
        };
        set.iter().map(change).collect::<Result<_, _>>().map(Changes)
    }

    /// Changes the limits of an export.
    pub(super) fn apply(self, tenant: &Tenant) -> Result<(), String> {
        if self.0.is_empty() {
            return Ok(());
        }
        let changed = tenant.change_limits(|limits| {
            for (key, value) in &self.0 {
                let limit = LimitKey::named(key).expect("checked by the parser");
                match value {
                    Some(value) => assert!(limit.set(limits, value), "checked by the parser"),
                    None => limit.reset(limits),
                }
            }
            for limit in &LIMIT_KEYS {
                let is_set = self.0.iter().any(|(key, _)| *key == limit.key);
                if !is_set && limit.lacks_rate(limits) {
                    limit.reset(limits);
                }
            }
        });
        changed.map_err(|error| error.to_string())
    }
}

/// Returns the description of an export.
pub(super) fn describe(export: &Export) -> Value {
    let limits = export.tenant.limits();
    let number = |limit: &LimitKey| limit.get(&limits)?.parse::<u64>().ok();
    let limits = LIMIT_KEYS.iter().filter_map(|limit| Some((limit.key, number(limit)?)));
    let limits: Map<String, Value> =
        limits.map(|(key, number)| (key.to_owned(), number.into())).collect();
    let stats = export.tenant.stats();
    let stats = json!({
        "ios": stats.ios,
        "bytes": stats.bytes,
        "limit_waits": stats.limit_waits,
        "limit_wait_ns": stats.limit_wait_ns,
        "tag_waits": stats.tag_waits,
        "tag_wait_ns": stats.tag_wait_ns,
        "missed_windows": stats.missed_windows,
        "depth": stats.depth,
    });
    json!({ "export": export.name, "limits": limits, "stats": stats })
}
