//! Shutdown of a server.

use crate::client::{Client, FLUSH, READ, WRITE, request};
use crate::counters::metrics;
use crate::server::Running;
use forebay_serve::{Limits, ServeError};
use std::io::Write;

/// Every disk is flushed at the end, even if the flush of another one fails.
#[test]
fn each_disk_whose_last_flush_fails_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |nr: u32| folder.path().join(nr.to_string()).display().to_string();
    let spec = |nr: u32| {
        std::fs::write(path(nr), vec![0; 1 << 20]).unwrap();
        format!("fault:{}?rule=flush:io", path(nr))
    };
    let specs: Vec<String> = (0..3).map(spec).collect();
    let mut server = Running::start(folder.path(), &specs, Limits::default());
    for nr in 0..3 {
        let mut client = Client::new(&server.socket, &nr.to_string(), false);
        let mut write = request(WRITE, 0, 1, 0, 4);
        write.extend(b"data");
        client.socket.write_all(&write).unwrap();
        assert_eq!(client.reply(|_| 0).error, 0);
    }
    let error = server.stop().expect_err("nothing was flushed").to_string();
    let said = format!("{}{error}\n", server.log());
    for nr in 0..3 {
        let told = said.lines().filter(|line| line.contains("the last flush failed"));
        assert_eq!(told.filter(|line| line.contains(&path(nr))).count(), 1, "{nr} in {said}");
    }
}

/// The I/O takes longer than the time limit for the last replies.
#[test]
fn requests_at_a_slow_disk_are_answered_before_the_server_ends() {
    let folder = tempfile::tempdir().unwrap();
    let spec = "fault:ram:1M?rule=read:delay=6s".to_owned();
    let mut server = Running::start(folder.path(), &[spec], Limits::default());
    let mut client = Client::new(&server.socket, "0", false);
    client.socket.write_all(&request(READ, 0, 1, 0, 512)).unwrap();
    let is_begun =
        |line: &str| line.starts_with("forebay_connection_in_flight{") && line.ends_with(" 1");
    while !metrics(&server).lines().any(is_begun) {}
    server.stop().unwrap();
    assert_eq!(client.reply(|_| 512).error, 0);
}

#[test]
fn a_server_that_has_ended_leaves_no_socket_and_no_thread_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Running::start(folder.path(), &["ram:1M".to_owned()], Limits::default());
    let mut client = Client::new(&server.socket, "0", false);
    server.stop().unwrap();
    assert_eq!(std::io::Read::read(&mut client.socket, &mut [0]).unwrap(), 0, "it is closed");
    for socket in [&server.socket, &server.metrics] {
        assert!(!socket.exists(), "{} was left behind", socket.display());
    }
}

/// Serves a disk whose flushes fail, and returns how the server ended and its log.
fn end_on_failing_flushes(with: impl FnOnce(&mut Client)) -> (Result<(), ServeError>, String) {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let spec = format!("fault:{}?rule=flush:io", disk.display());
    let mut server = Running::start(folder.path(), &[spec], Limits::default());
    let mut client = Client::new(&server.socket, "0", false);
    assert_eq!(client.ask(READ, 0, 4096), 0);
    with(&mut client);
    let end = server.stop();
    (end, server.log())
}

fn write(client: &mut Client) {
    let mut write = request(WRITE, 0, 1, 0, 4);
    write.extend(b"data");
    client.socket.write_all(&write).unwrap();
    assert_eq!(client.reply(|_| 0).error, 0);
}

#[test]
fn a_last_flush_that_fails_is_no_failure_where_nothing_was_written() {
    let (end, log) = end_on_failing_flushes(|_| ());
    end.unwrap();
    let line = log.lines().find(|line| line.contains("the last flush failed")).expect("a line");
    assert!(line.contains("no write of a client was waiting for it, so none is lost"), "{line}");
}

/// A loss that a client knows of is still the result of the server.
#[test]
fn a_last_flush_that_fails_after_writes_is_a_loss() {
    let and_flush = |client: &mut Client| {
        write(client);
        assert_ne!(client.ask(FLUSH, 0, 0), 0);
    };
    let ways: [fn(&mut Client); 2] = [write, and_flush];
    for with in ways {
        let (end, log) = end_on_failing_flushes(with);
        let error = end.unwrap_err().to_string();
        assert!(error.contains("the last flush failed"), "{error}");
        assert!(error.contains("writes may be lost"), "{error}");
        assert!(!log.contains("none is lost") && !error.contains("none is lost"), "{log}");
    }
}
