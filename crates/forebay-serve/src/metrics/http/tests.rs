//! Requests of scrapers, and malformed requests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use forebay::Disk;

use super::*;
use crate::metrics::CountedExport;
use forebay_insight::small::MAX_CLIENTS;

fn answered(request: &str) -> Option<String> {
    let text = |page| match page {
        Page::Metrics => "# EOF\n".to_owned(),
        Page::Diskstats => " 240 1 x\n".to_owned(),
    };
    answer(request.as_bytes(), |page| Some(text(page)))
        .map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn only_metrics_and_diskstats_are_served() {
    let table = [
        ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
        ("GET /metrics?x=y HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET /diskstats HTTP/1.1\r\n\r\n", "200 OK"),
        ("POST /diskstats HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("GET /metrics/../x HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        ("NBDMAGICIHAVEOPT\0\0\0\u{1}", "400 Bad Request"),
        ("GET /metrics HTTP/9\r\n\r\n", "400 Bad Request"),
    ];
    for (request, status) in table {
        let reply = answered(request).expect(request);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {reply}");
    }
    let reply = answered(table[0].0).unwrap();
    assert!(reply.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0; "));
    assert!(reply.ends_with("Content-Length: 6\r\nConnection: close\r\n\r\n# EOF\n"), "{reply}");
    let reply = answered("HEAD /metrics HTTP/1.1\r\n\r\n").unwrap();
    assert!(reply.contains("Content-Length: 6\r\n") && reply.ends_with("\r\n\r\n"), "{reply}");
}

#[test]
fn diskstats_are_plain_text_and_a_wrong_path_names_the_right_ones() {
    let reply = answered("GET /diskstats HTTP/1.1\r\n\r\n").unwrap();
    assert!(reply.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"), "{reply}");
    assert!(reply.ends_with("\r\n\r\n 240 1 x\n"), "{reply}");
    let reply = answered("GET /proc/diskstats HTTP/1.1\r\n\r\n").unwrap();
    assert!(reply.ends_with("\r\n\r\nnot found: only /metrics and /diskstats exist\n"), "{reply}");
}

#[test]
fn a_request_may_come_in_pieces_but_not_without_end() {
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    for end in 0..request.len() {
        assert_eq!(answered(&request[..end]), None);
    }
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(MAX_REQUEST_BYTES));
    assert!(answered(&long).unwrap().starts_with("HTTP/1.1 431 "));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(MAX_HEADERS + 1));
    assert!(answered(&many).unwrap().starts_with("HTTP/1.1 431 "));
}

fn ask(path: &std::path::Path, page: &str) -> String {
    let mut socket = UnixStream::connect(path).unwrap();
    write!(socket, "GET {page} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn silent_client_delays_neither_others_nor_shutdown() {
    let disk = Disk::open("null:1M").unwrap();
    let counters = Counters::new(vec![CountedExport::of("x", disk)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m");
    let endpoint = Endpoint::open(&Address::Unix(path.clone()), counters).unwrap();
    assert_eq!(endpoint.place(), format!("unix:{}", path.display()));
    let server = endpoint.start().unwrap();
    let _silent: Vec<_> = (1..MAX_CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for _ in 0..3 {
        let reply = ask(&path, "/metrics");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("# EOF\n"), "{reply}");
    }
    drop(server);
    assert!(!path.exists());
}

#[test]
fn diskstats_have_a_line_for_each_export_under_its_name() {
    let exports = ["a b", ""].map(|name| {
        let disk = Disk::open("ram:1M").unwrap();
        disk.write_all_at(&[7; 1024], 0).unwrap();
        CountedExport::of(name, disk)
    });
    let numbers = exports.each_ref().map(|export| export.disk.meter().number());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m");
    let counters = Counters::new(exports.to_vec());
    let endpoint = Endpoint::open(&Address::Unix(path.clone()), counters).unwrap();
    let _server = endpoint.start().unwrap();
    let reply = ask(&path, "/diskstats");
    let lines: Vec<Vec<_>> = reply
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.lines().map(|line| line.split_whitespace().collect()).collect())
        .expect("a body");
    assert_eq!(lines.len(), 2, "{reply}");
    for ((line, name), number) in
        lines.iter().zip(["a_b", &format!("#{}", numbers[1])]).zip(numbers)
    {
        assert_eq!((line.len(), line[2]), (20, name), "{reply}");
        assert_eq!(line[1], number.to_string(), "{reply}");
        assert_eq!((line[7], line[9]), ("1", "2"), "a write of two sectors: {reply}");
    }
}

#[test]
fn the_host_is_this_machine_if_none_is_named() {
    let here = |port| Address::Tcp { host: "127.0.0.1".to_owned(), port };
    assert_eq!(metrics_address("tcp::9100"), Ok(here(9100)));
    assert_eq!(metrics_address("tcp:"), Ok(here(METRICS_PORT)));
    assert!(metrics_address("9100").is_err());
}
