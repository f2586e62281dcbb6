//! Metrics and log lines of a client.

use crate::client::{Client, FLUSH, READ};
use crate::server::Running;
use forebay_serve::{ExportOptions, Limits, Options, PollMode};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const DISCONNECT: u16 = 2;

pub(crate) fn metrics(server: &Running) -> String {
    let mut socket = UnixStream::connect(&server.metrics).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}

/// Returns the value of a metric of the only disk.
#[track_caller]
pub(crate) fn figure(server: &Running, name: &str) -> u64 {
    let text = metrics(server);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let labels_and_value = lines.find(|rest| rest.starts_with('{')).expect(name);
    labels_and_value.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

#[test]
fn a_connection_is_logged_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let export = ExportOptions {
        spec: disk.display().to_string(),
        name: "the \"disk\"".to_owned(),
        ..ExportOptions::default()
    };
    let mut server = Running::with_exports(folder.path(), vec![export], Limits::default());
    let mut client = Client::new(&server.socket, "the \"disk\"", false);
    assert_eq!(client.ask(READ, 4096, 512), 0);
    assert_eq!(client.ask(FLUSH, 0, 0), 0);
    assert_ne!(client.ask(READ, 1 << 20, 512), 0, "behind the end");

    let text = metrics(&server);
    let device = r#"device="the \"disk\"""#;
    for line in [
        format!("forebay_connections{{{device}}} 1"),
        format!("forebay_export_requests_total{{{device},op=\"read\"}} 1"),
        format!("forebay_export_requests_total{{{device},op=\"flush\"}} 1"),
        format!("forebay_export_requests_total{{{device},op=\"refused\"}} 1"),
        format!("forebay_export_errors_total{{{device}}} 1"),
        format!("forebay_export_read_bytes_total{{{device}}} 512"),
        format!("forebay_disk_reads_completed_total{{{device}}} 1"),
        format!("forebay_disk_io_now{{{device}}} 0"),
        format!("forebay_request_stage_seconds_count{{{device},stage=\"disk\"}} 2"),
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }

    client.socket.write_all(&crate::client::request(DISCONNECT, 0, 0, 0, 0)).unwrap();
    // A ring that ends in this process may interrupt a plain read of a socket with a timeout.
    assert_eq!(client.socket.read_to_end(&mut Vec::new()).unwrap(), 0);
    server.stop().unwrap();
    let log = server.log();
    for part in [
        " serving metrics at unix:",
        "connection 1 from unix: export \"the \\\"disk\\\"\", simple replies, no TLS",
        "connection 1 from unix: closed by the client after ",
        "; 3 requests (1 failed), 512 B read, 0 B written",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

/// Prometheus treats an empty label as a missing one.
#[test]
fn the_default_export_is_labelled_by_the_end_of_its_spec() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let spec = format!("{}?engine=psync", disk.display());
    let export = ExportOptions { spec, ..ExportOptions::default() };
    let server = Running::with_exports(folder.path(), vec![export], Limits::default());
    let mut client = Client::new(&server.socket, "", false);
    assert_eq!(client.ask(READ, 4096, 512), 0);
    let text = metrics(&server);
    assert!(!text.contains("device=\"\""), "{text}");
    let line = "forebay_export_read_bytes_total{device=\"disk.img\"} 512";
    assert!(text.lines().any(|other| other == line), "{text}");
}

#[test]
fn polls_that_find_a_request_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let export = ExportOptions { spec: "ram:1M".to_owned(), ..ExportOptions::default() };
    let options = Options {
        exports: vec![export],
        limits: Limits { threads: 1, ..Limits::default() },
        // Longer than any client of this test needs, so that no wait sleeps.
        poll: PollMode::Fixed(3_600_000_000_000),
        ..Options::default()
    };
    let mut server = Running::with_options(folder.path(), options);
    let mut client = Client::new(&server.socket, "", false);
    for _ in 0..10 {
        assert_eq!(client.ask(READ, 4096, 512), 0);
    }
    let text = metrics(&server);
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().parse::<f64>().expect("a number")
    };
    assert!(value("forebay_polls_total{end=\"found\"}") >= 10.0, "{text}");
    assert_eq!(value("forebay_polls_total{end=\"slept\"}"), 0.0);
    assert!(value("forebay_poll_seconds_total") > 0.0, "{text}");
    drop(client);
    server.stop().unwrap();
}
