//! Requests at a control socket, from a client of the same user.

use super::*;
use crate::config::{ExportOptions, Options};
use crate::export::Export;
use crate::export_limits::ExportLimits;
use crate::listen::Address;
use crate::own_socket;
use crate::server::Server;
use forebay::{Limits, Rate};
use forebay_insight::lines::MAX_LINE_BYTES;
use forebay_insight::small::SmallServer;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

/// Returns the service of a server that does not run, with the exports `a` and `b`.
fn control() -> Control {
    control_of(&["a", "b"])
}

/// Returns the service of a server that does not run, with exports of these names.
fn control_of(names: &[&str]) -> Control {
    let folder = tempfile::tempdir().unwrap();
    let export = |name: &&str| {
        let (spec, name) = ("ram:1M".to_owned(), (*name).to_owned());
        ExportOptions { spec, name, ..ExportOptions::default() }
    };
    let options = Options {
        exports: names.iter().map(export).collect(),
        listen: vec![Address::Unix(folder.path().join("s"))],
        ..Options::default()
    };
    let shared = Server::open(options).unwrap().shared;
    let panicked = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    Control::new(&shared, &[], &Arc::new(Devices::new(&shared, &panicked)))
}

/// Returns a request for the limits of an export.
fn limits_of(export: &str) -> String {
    json!({ "command": "limits", "export": export }).to_string()
}

fn answer(control: &Control, line: &str) -> Value {
    let reply = match control.answer(line.as_bytes(), &mut Vec::new()) {
        Answer::Reply(reply) => reply,
        Answer::Work(work) => work(),
        other => panic!("{other:?}"),
    };
    serde_json::from_slice(&reply).unwrap()
}

fn export(control: &Control, index: usize) -> Arc<Export> {
    control.server.shared.exports.get(index)
}

#[test]
fn limits_are_set_by_key_and_reset_by_null() {
    let control = control();
    let set =
        r#"{"command":"limits","export":"b","set":{"iops":500,"write_bps":"10m","iops_burst":7}}"#;
    let reply = answer(&control, set);
    assert_eq!(reply["export"], "b");
    assert_eq!(reply["limits"], json!({"iops": 500, "write_bps": 10 << 20, "iops_burst": 7}));
    assert_eq!(export(&control, 1).disk.owners()[0].limits().both.iops.per_s, 500);
    let reset = r#"{"command":"limits","export":"b","set":{"iops_burst":null,"write_bps":0}}"#;
    assert_eq!(answer(&control, reset)["limits"], json!({"iops": 500}));
    let mut expected = Limits::default();
    expected.both.iops = Rate::per_s(500);
    assert_eq!(
        export(&control, 1).tenant.limits(),
        expected.into(),
        "the burst is the default again"
    );
    let set = r#"{"command":"limits","export":"b","set":{"read_bps":"1m","read_bps_burst":1}}"#;
    answer(&control, set);
    let end = r#"{"command":"limits","export":"b","set":{"read_bps":0}}"#;
    assert_eq!(answer(&control, end)["limits"], json!({"iops": 500}), "its burst ends too");
    let all = answer(&control, r#"{"command":"exports"}"#);
    assert_eq!(all, answer(&control, r#"{"command":"list"}"#), "a synonym");
    assert_eq!(
        all["exports"][0],
        json!({
            "export": "a", "spec": "ram:1M", "size_bytes": 1 << 20, "read_only": false,
            "limits": {}, "stats": {"ios": 0, "bytes": 0, "limit_waits": 0,
            "limit_wait_ns": 0, "tag_waits": 0, "tag_wait_ns": 0, "scheduler_waits": 0,
            "scheduler_wait_ns": 0, "missed_windows": 0,
            "depth": null}, "nr_clients": 0, "clients": [],
        })
    );
    assert_eq!(all["exports"][1]["limits"], json!({"iops": 500}));
    let goal = r#"{"command":"limits","export":"b","set":{"iops":0,"latency_target_us":2000}}"#;
    assert_eq!(answer(&control, goal)["limits"], json!({"latency_target_us": 2000}));
    assert_eq!(export(&control, 1).disk.owners()[0].limits().latency_target_us, 2000);
}

#[test]
fn default_export_also_has_the_name_that_top_shows() {
    let control = control_of(&["", "b"]);
    for name in ["", "ram:1M"] {
        assert_eq!(answer(&control, &limits_of(name))["export"], "", "{name}");
    }
    assert_eq!(answer(&control, &limits_of("b"))["export"], "b");
    let remove = r#"{"command":"remove","export":"ram:1M"}"#;
    let refused = answer(&control, remove)["error"].to_string();
    assert!(refused.contains("there is no export"), "a removal takes the name itself: {refused}");
    let error = "there is no export \"c\"; there are: \"\" (the default export, ram:1M), \"b\"";
    assert_eq!(answer(&control, &limits_of("c")), json!({ "error": error }));
    // A name that an export has is that export's. The default export has another label then.
    let control = control_of(&["ram:1M", ""]);
    assert_eq!(answer(&control, &limits_of("ram:1M"))["export"], "ram:1M");
    assert_eq!(answer(&control, &limits_of("(default)"))["export"], "");
    let control = control_of(&["", "ram:1M"]);
    control.server.shared.exports.remove(1);
    let refused = answer(&control, &limits_of("ram:1M"))["error"].to_string();
    assert!(refused.contains("there is no export"), "the name was another export's: {refused}");
    let control = control_of(&["a"]);
    control.server.shared.exports.remove(0);
    let error = "there is no export \"a\": this server has none; add one first";
    assert_eq!(answer(&control, &limits_of("a")), json!({ "error": error }));
}

#[test]
fn bad_requests_change_nothing_and_name_the_reason() {
    let control = control();
    for (line, error) in [
        ("limits", "not a line of JSON: expected value at line 1 column 1"),
        ("[]", "not a JSON object: expected, for example, {\"command\": \"exports\"}"),
        ("{}", "the field \"command\" is missing"),
        (r#"{"command":1}"#, "command: 1: expected a string"),
        (
            r#"{"command":"stop"}"#,
            "command \"stop\": expected one of \"exports\", \"stats\", \"limits\", \"policy\", \
             \"resize\", \"add\", \"remove\", \"drain\", \"reload-certificates\", \"log-level\", \
             \"trace\", \"record\"",
        ),
        (r#"{"command":"trace","on":1}"#, "on: 1: expected true or false"),
        (r#"{"command":"trace","on":false}"#, "no trace runs"),
        (
            r#"{"command":"trace","on":true}"#,
            "this server has no directory for traces: start it with --trace DIR, or record with \
             `forebay trace SOCKET`, which needs none",
        ),
        (
            r#"{"command":"record"}"#,
            "expected one descriptor with the request: a socket for the files of the trace",
        ),
        (r#"{"command":"exports","all":true}"#, "\"exports\" has no field \"all\""),
        (
            r#"{"command":"limits","export":"c"}"#,
            "there is no export \"c\"; there are: \"a\", \"b\"",
        ),
        (
            r#"{"command":"limits","export":"a","set":{"iops":5,"speed":1}}"#,
            "limits not set: speed=1: expected one of the limits iops, bps, read_iops, read_bps, \
             write_iops, write_bps, iops_burst, bps_burst, read_iops_burst, read_bps_burst, \
             write_iops_burst, write_bps_burst, latency_target_us, each also with client_, or \
             client_weight",
        ),
        (
            r#"{"command":"limits","export":"a","set":{"iops":5,"bps":-1}}"#,
            "limits not set: bps=-1: expected a number of bytes per second from 0 to 1T; 0: no \
             limit",
        ),
        (
            r#"{"command":"limits","export":"a","set":{"bps":5,"iops_burst":1}}"#,
            "limits not set: iops_burst=1: expected iops above 0 beside it: set that too",
        ),
        (
            r#"{"command":"limits","export":"a","set":{"iops":5,"client_weight":0}}"#,
            "limits not set: client_weight=0: expected a number from 1 to 10000",
        ),
        (
            r#"{"command":"limits","export":"a","client":3,"set":{"iops":5}}"#,
            "client 3 is not connected to this export; connected: none",
        ),
        (
            r#"{"command":"limits","export":"a","client":"3","set":{}}"#,
            "client: \"3\": expected the number of a connection",
        ),
    ] {
        assert_eq!(answer(&control, line), json!({ "error": error }), "{line}");
    }
    assert_eq!(export(&control, 0).tenant.limits(), ExportLimits::default());
}

#[test]
fn socket_is_for_its_user_and_its_lines_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let open = |mode| {
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
        own_socket::listen(&folder.path().join("control"))
    };
    let missing = own_socket::listen(&folder.path().join("a/b")).expect_err("no directory");
    assert!(missing.to_string().contains("create it with `mkdir -m 700 "), "{missing}");
    let refused = open(0o750).expect_err("open to the group").to_string();
    assert!(refused.contains("is open to other users: run `chmod 700`"), "{refused}");
    let socket = open(0o700).expect("a directory of our own");
    let path = socket.file().expect("a file").to_owned();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let server = SmallServer::start(socket, control()).unwrap();
    let connect = || BufReader::new(UnixStream::connect(&path).unwrap());
    let ask = |client: &mut BufReader<UnixStream>, text: &str, nr: usize| {
        client.get_mut().write_all(text.as_bytes()).unwrap();
        let mut lines = String::new();
        (0..nr).for_each(|_| _ = client.read_line(&mut lines).unwrap());
        lines
    };
    let mut client = connect();
    // Two requests at once, and the first half of a third.
    let replies = ask(&mut client, "{\"command\":\"exports\"}\n{}\n{\"comm", 2);
    assert!(replies.starts_with("{\"exports\":[{\"export\":\"a\""), "{replies}");
    assert!(replies.ends_with("{\"error\":\"the field \\\"command\\\" is missing\"}\n"));
    let reply = ask(&mut client, "and\":\"exports\"}\n", 1);
    assert!(reply.starts_with("{\"exports\""), "{reply}");
    let reply = ask(&mut connect(), &"x".repeat(MAX_LINE_BYTES + 1), 1);
    assert_eq!(reply, "{\"error\":\"a request is longer than 16384 bytes\"}\n");
    drop(server);
    assert!(!path.exists());
}
