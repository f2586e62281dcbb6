//! Requests of scrapers, and malformed requests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use forebay::Disk;

use super::*;
use crate::metrics::CountedExport;
use forebay_insight::small::MAX_CLIENTS;

fn answered(request: &str) -> Option<String> {
    answer(request.as_bytes(), || Some("# EOF\n".to_owned()))
        .map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn only_metrics_can_be_got() {
    let table = [
        ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
        ("GET /metrics?x=y HTTP/1.0\r\n\r\n", "200 OK"),
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

fn ask(path: &std::path::Path) -> String {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
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
        let reply = ask(&path);
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("# EOF\n"), "{reply}");
    }
    drop(server);
    assert!(!path.exists());
}

#[test]
fn the_host_is_this_machine_if_none_is_named() {
    let here = |port| Address::Tcp { host: "127.0.0.1".to_owned(), port };
    assert_eq!(metrics_address("tcp::9100"), Ok(here(9100)));
    assert_eq!(metrics_address("tcp:"), Ok(here(METRICS_PORT)));
    assert!(metrics_address("9100").is_err());
}
