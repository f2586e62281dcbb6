//! Replies of a control socket as text.

use serde_json::Value;
use std::fmt::Write as _;

/// Returns the text of a reply.
pub(super) fn of(reply: &Value) -> String {
    if let Some(all) = reply["exports"].as_array() {
        return all.iter().map(export).chain(trace(&reply["trace"])).collect();
    }
    if let Some(settings) = reply["policy"].as_object() {
        let line = |(key, value): (&String, &Value)| {
            format!("{key}={}\n", value.as_str().unwrap_or_default())
        };
        return settings.iter().map(line).collect();
    }
    match reply["log_level"].as_str() {
        Some(level) => format!("{level}\n"),
        None if reply["export"].is_string() => export(reply),
        // The others only confirm the request.
        None => trace(&reply["trace"]).unwrap_or_default(),
    }
}

/// Returns the state of the trace. `None`: there was none, and the server has no directory for one.
fn trace(trace: &Value) -> Option<String> {
    let is_on = trace["on"].as_bool()?;
    let mut text = format!("trace {}", if is_on { "on" } else { "off" });
    let place = match &trace["directory"] {
        Value::String(dir) => Some(dir.as_str()),
        _ => trace.get("directory").map(|_| "a client of the control socket"),
    };
    if let Some(place) = place {
        let last = if is_on { "to" } else { "the last one to" };
        let _ = match trace["error"].as_str() {
            Some(error) => write!(text, ", {last} {place} has ended early: {error}"),
            None => {
                let (records, lost) = (&trace["records"], &trace["lost"]);
                write!(text, ", {last} {place}: {records} records, {lost} lost")
            }
        };
    }
    text.push('\n');
    Some(text)
}

/// Returns the description of an export.
fn export(export: &Value) -> String {
    let mut text = format!("export {}", export["export"]);
    if export["removing"] == true {
        text.push_str(", being removed");
    }
    text.push('\n');
    if let (Some(size), Some(spec)) = (export["size_bytes"].as_u64(), export["spec"].as_str()) {
        let read_only = if export["read_only"] == true { ", read-only" } else { "" };
        let nr = export["nr_clients"].as_u64().unwrap_or_default();
        let clients = if nr == 1 { "client" } else { "clients" };
        let _ = writeln!(text, "  disk    {spec}, {size} bytes{read_only}; {nr} {clients}");
    }
    for socket in export["vhost_user_blk"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "  device  vhost-user:{}", socket.as_str().unwrap_or_default());
    }
    let _ = writeln!(text, "  limits  {}", limits(&export["limits"]));
    let stat = |key: &str| export["stats"][key].as_u64().unwrap_or_default();
    if stat("ios") > 0 {
        let _ = writeln!(text, "  I/O     {}", io(&export["stats"], " since the first limit"));
    }
    if stat("missed_windows") > 0 {
        let _ = writeln!(text, "  goal    missed in {} windows", stat("missed_windows"));
    }
    if stat("depth") > 0 {
        let _ = writeln!(text, "  depth   {} for the goals of others", stat("depth"));
    }
    let all = export["clients"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(|client| client["stats"].is_object()).for_each(|it| client(&mut text, it));
    let nr_more = export["nr_clients"].as_u64().unwrap_or_default() as usize;
    if nr_more > all.len() {
        let _ = writeln!(text, "  and {} more clients", nr_more - all.len());
    }
    text
}

/// Appends the description of a client.
fn client(text: &mut String, client: &Value) {
    let number = client["client"].as_u64().unwrap_or_default();
    let peer = client["peer"].as_str().unwrap_or_default();
    let stats = &client["stats"];
    let _ = write!(text, "  client {number} from {peer}: {}", io(stats, " I/Os"));
    if let Some(depth) = stats["depth"].as_u64() {
        let _ = write!(text, "; depth {depth} for the goals of others");
    }
    if let Some(missed) = stats["missed_windows"].as_u64().filter(|missed| *missed > 0) {
        let _ = write!(text, "; goal missed in {missed} windows");
    }
    if client["limits"].is_object() {
        let _ = write!(text, "; its own limits: {}", limits(&client["limits"]));
    }
    text.push('\n');
}

/// Returns the limits that are set.
fn limits(limits: &Value) -> String {
    let limits = limits.as_object().into_iter().flatten();
    let limits: Vec<_> = limits.map(|(key, value)| format!("{key}={value}")).collect();
    if limits.is_empty() { "none".to_owned() } else { limits.join(" ") }
}

/// Returns a description of counters.
fn io(stats: &Value, unit: &str) -> String {
    let stat = |key: &str| stats[key].as_u64().unwrap_or_default();
    let waits = |cause: &str, what: &str| {
        let nr = stat(&format!("{cause}_waits"));
        let ms = stat(&format!("{cause}_wait_ns")) / nr.max(1) / 1_000_000;
        format!("; {nr} waited {what}, {ms} ms on average")
    };
    let (ios, bytes) = (stat("ios"), stat("bytes"));
    let mut text = format!("{ios}{unit}, {bytes} bytes");
    text += &waits("limit", "for a limit");
    text += &waits("tag", "for a tag");
    if stat("scheduler_waits") > 0 {
        text += &waits("scheduler", "in the scheduler");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn state_of_the_trace_follows_the_exports() {
        let all = json!({"exports": [], "trace": {"on": false}});
        assert_eq!(super::of(&all), "trace off\n");
        assert_eq!(super::of(&json!({"exports": [], "trace": null})), "");
        let on = json!({"on": true, "directory": "/t/1", "records": 7, "lost": 0});
        assert_eq!(super::of(&json!({"trace": on})), "trace on, to /t/1: 7 records, 0 lost\n");
        let off = json!({"on": false, "directory": null, "error": "File too large"});
        let expected = "trace off, the last one to a client of the control socket has ended \
                        early: File too large\n";
        assert_eq!(super::of(&json!({"trace": off})), expected);
    }

    #[test]
    fn description_has_limits_and_io() {
        let export = json!({
            "export": "a", "limits": {"iops": 5, "bps": 100},
            "stats": {"ios": 7, "bytes": 4096, "limit_waits": 2, "limit_wait_ns": 8_000_000},
        });
        let expected = "export \"a\"\n  limits  iops=5 bps=100\n  I/O     7 since the first limit, \
                        4096 bytes; 2 waited for a limit, 4 ms on average; 0 waited for a \
                        tag, 0 ms on average\n";
        assert_eq!(super::export(&export), expected);
        let goals = json!({
            "export": "", "limits": {}, "stats": {"ios": 0, "missed_windows": 3, "depth": 16},
        });
        let expected = "export \"\"\n  limits  none\n  goal    missed in 3 windows\n  depth   16 \
                        for the goals of others\n";
        assert_eq!(super::export(&goals), expected);
        let clients = json!({
            "export": "", "limits": {"client_iops": 5}, "stats": {"ios": 0}, "nr_clients": 9,
            "clients": [
                {"client": 3, "peer": "unix", "stats": null},
                {"client": 7, "peer": "unix", "limits": {"weight": 5}, "stats": {
                    "ios": 1, "bytes": 512, "limit_waits": 0, "limit_wait_ns": 0, "tag_waits": 1,
                    "tag_wait_ns": 2_500_000, "scheduler_waits": 2,
                    "scheduler_wait_ns": 18_000_000, "missed_windows": 4, "depth": 8,
                }},
            ],
        });
        let expected = "export \"\"\n  limits  client_iops=5\n  client 7 from unix: 1 I/Os, 512 \
                        bytes; 0 waited for a limit, 0 ms on average; 1 waited for a tag, 2 ms on \
                        average; 2 waited in the scheduler, 9 ms on average; \
                        depth 8 for the goals of others; goal missed in 4 windows; its own limits: \
                        weight=5\n  and 7 more clients\n";
        assert_eq!(super::export(&clients), expected);
        let device =
            json!({"export": "", "limits": {}, "stats": {"ios": 0}, "vhost_user_blk": ["/v.sock"]});
        let expected = "export \"\"\n  device  vhost-user:/v.sock\n  limits  none\n";
        assert_eq!(super::export(&device), expected);
        let idle = json!({"export": "", "limits": {}, "stats": {"ios": 0, "depth": null}});
        assert_eq!(super::export(&idle), "export \"\"\n  limits  none\n");
    }
}
