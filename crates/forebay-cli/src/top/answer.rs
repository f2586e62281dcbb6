//! Answer of a process at its socket: the counters at one moment. `forebay_insight::stats` has the
//! format.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// All counters of a process.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Answer {
    protocol: u64,
    pub(super) now_ns: u64,
    pub(super) process: Process,
    pub(super) disks: Vec<Disk>,
    pub(super) exports: Vec<Export>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) cpu_ns: u64,
    pub(super) uptime_ns: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Disk {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) spec: String,
    pub(super) driver: String,
    pub(super) size_bytes: Option<u64>,
    pub(super) scheduler: String,
    pub(super) nr_hw_queues: u32,
    pub(super) failed: bool,
    pub(super) in_flight: u64,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) stages: BTreeMap<String, Times>,
    pub(super) nr_owners: usize,
    pub(super) owners: Vec<Owner>,
}

/// A histogram of times.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) sum_ns: u64,
    /// The largest time of each bucket, in order, and its count.
    pub(super) buckets: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Owner {
    pub(super) name: String,
    pub(super) parent: Option<String>,
    pub(super) weight: u32,
    pub(super) counters: BTreeMap<String, Option<u64>>,
    /// `None` if the process is of an older build, which does not count them.
    #[serde(default)]
    pub(super) in_flight: Option<u64>,
    #[serde(default)]
    pub(super) stages: BTreeMap<String, Times>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Export {
    pub(super) name: String,
    pub(super) clients: u64,
    pub(super) in_flight: u64,
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) stages: BTreeMap<String, Times>,
}

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    /// Returns the reason if it is no answer, or one of a later protocol.
    pub(super) fn parse(reply: Value) -> Result<Answer, String> {
        let answer = serde_json::from_value::<Answer>(printable(reply));
        let answer = answer.map_err(|error| format!("not an answer of forebay: {error}"))?;
        match answer.protocol {
            forebay_insight::stats::PROTOCOL => Ok(answer),
            other => Err(format!(
                "the process answers in protocol {other}, and this program reads {}: use the \
                 forebay of version {}",
                forebay_insight::stats::PROTOCOL,
                answer.process.version
            )),
        }
    }
}

/// Replaces control characters in all strings. Names come from another process, and a terminal
/// would obey their escape sequences.
fn printable(value: Value) -> Value {
    let plain = |text: String| match text.contains(char::is_control) {
        true => text.replace(char::is_control, "?"),
        false => text,
    };
    match value {
        Value::String(text) => Value::String(plain(text)),
        Value::Array(list) => list.into_iter().map(printable).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (plain(key), printable(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn control_characters_of_names_do_not_reach_the_terminal() {
        let reply = serde_json::json!({ "a\u{7}": ["\u{1b}]0;x\u{7}", 1, null, true] });
        let expected = serde_json::json!({ "a?": ["?]0;x?", 1, null, true] });
        assert_eq!(printable(reply), expected);
    }
    use serde_json::json;

    /// Returns an answer of a server with two disks, after `seconds` of a steady load.
    pub(crate) fn after(seconds: u64) -> Value {
        let s = seconds;
        let times = |per_s: u64, ns: u64| {
            json!({
                "count": per_s * s, "sum_ns": per_s * s * ns, "max_ns": 9 * ns,
                "buckets": [[ns, per_s * s * 98 / 100], [8 * ns, per_s * s * 2 / 100]],
            })
        };
        let owner = |name: &str, parent: Option<&str>, depth: Option<u64>| {
            json!({"name": name, "parent": parent, "weight": 100, "counters": {
                "ios": 500 * s, "bytes": 500 * 4096 * s, "limit_waits": 100 * s,
                "limit_wait_ns": 100 * s * 2_000_000, "tag_waits": 0, "tag_wait_ns": 0,
                "scheduler_waits": 50 * s, "scheduler_wait_ns": 50 * s * 300_000,
                "missed_windows": 2 * s, "depth": depth,
            }, "in_flight": 3, "stages": {
                "total": times(490, 6_100_000), "driver": times(480, 90_000),
            }})
        };
        let disk = |number: u64, name: &str, scale: u64, owners: &[Value]| {
            json!({
                "number": number, "name": name, "spec": format!("{name}?direct=on"),
                "driver": "file", "size_bytes": 1_u64 << 30, "read_only": false,
                "scheduler": "mq-deadline", "nr_requests": 64, "nr_hw_queues": 1,
                "failed": number == 2, "in_flight": 7 * scale, "nr_owners": owners.len(),
                "counters": {
                    "read_bios": 9000 * scale * s, "read_bytes": 36_864_000 * scale * s,
                    "read_requests": 6000 * scale * s, "write_bios": 3000 * scale * s,
                    "write_bytes": 12_288_000 * scale * s, "write_requests": 2000 * scale * s,
                    "flush_bios": 40 * s, "flush_requests": 10 * s,
                    "merges_back": 3500 * scale * s, "merges_front": 500 * scale * s,
                    "busy_ns": 640_000_000 * s, "issued": 8010 * scale * s,
                    "tag_waits": 120 * s, "tag_wait_ns": 120 * s * 45_000,
                    "limit_waits": 100 * s, "limit_wait_ns": 100 * s * 2_000_000,
                    "requeues": 3 * s, "splits": s, "flushes_asked": 40 * s,
                    "flushes_issued": 10 * s, "flushes_joined": 28 * s, "flushes_elided": 2 * s,
                    "unplugs_section": 800 * s, "unplugs_full": 12 * s, "nr_syscalls": 900 * s,
                },
                "stages": {
                    "plug": times(12_000, 3_000), "tag": times(8_000, 500),
                    "queue": times(8_000, 100), "driver": times(8_000, 84_000),
                },
                "owners": owners,
            })
        };
        let owners = [
            owner("export:a.img", None, None),
            owner("client:7", Some("export:a.img"), Some(4)),
            owner("client:8", Some("export:a.img"), None),
        ];
        json!({
            "protocol": 1, "now_ns": 1_000_000_000 * s,
            "process": {
                "pid": 4242, "name": "forebay", "version": "0.1.0", "cpu_ns": 180_000_000 * s,
                "uptime_ns": 3_700_000_000_000_u64 + 1_000_000_000 * s,
            },
            "disks": [disk(1, "vm1.img", 2, &owners), disk(2, "vm2.img", 1, &[])],
            "exports": [{
                "name": "vm1", "disk": 1, "clients": 3, "in_flight": 5, "requests": 12_000 * s,
                "requests_by_kind": {}, "errors": s, "read_bytes": 36_864_000 * s,
                "written_bytes": 12_288_000 * s, "received_bytes": 0, "sent_bytes": 0,
                "stages": {"receive": times(12_000, 9_000), "disk": times(12_000, 95_000)},
            }],
        })
    }

    #[test]
    fn bad_answers_are_refused_with_the_reason() {
        assert!(Answer::parse(after(1)).is_ok());
        let refused = |reply| Answer::parse(reply).expect_err("refused");
        assert!(refused(json!({})).starts_with("not an answer of forebay: missing field"));
        let mut later = after(1);
        later["protocol"] = 2.into();
        assert_eq!(
            refused(later),
            "the process answers in protocol 2, and this program reads 1: use the forebay of \
             version 0.1.0"
        );
        let mut odd = after(1);
        odd["disks"][0]["stages"]["tag"]["buckets"] = json!([[1, -2]]);
        assert!(refused(odd).contains("invalid value"));
        let mut less = after(1);
        for field in ["in_flight", "stages"] {
            less["disks"][0]["owners"][0].as_object_mut().expect("an object").remove(field);
        }
        assert!(Answer::parse(less).is_ok(), "a process may not count these");
        let mut more = after(1);
        more["disks"][0]["news"] = json!("later versions may add fields");
        assert!(Answer::parse(more).is_ok());
    }
}
