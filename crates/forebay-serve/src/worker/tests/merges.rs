//! Requests that arrive together in a round: they are merged, even from different clients.

use crate::config::Limits;
use crate::worker::driven::{Driven, is_answered, request, send};
use forebay::Op;
use std::io::Write;
use std::os::unix::net::UnixStream;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const BLOCK: u32 = 512;
const NR: u64 = 32;

fn driven() -> Driven {
    Driven::new("ram:8M", Limits::default(), |_| {})
}

/// Returns the bytes of requests for these blocks, one after another.
fn requests(command: u16, blocks: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for nr in blocks {
        bytes.extend(request(command, nr * u64::from(BLOCK), BLOCK));
        if command == WRITE {
            bytes.extend([nr as u8; BLOCK as usize]);
        }
    }
    bytes
}

/// Returns the number of requests that reached the disk, and of I/Os that were merged into one.
fn counts(driven: &Driven, op: Op) -> (u64, u64) {
    let stats = driven.disk.stats();
    let stats = stats.queue.op(op);
    (stats.requests, stats.merges)
}

/// Reads the replies to `nr` requests.
#[track_caller]
fn take_replies(client: &mut UnixStream, nr: u64, command: u16) {
    let data_len = if command == READ { BLOCK as usize } else { 0 };
    assert!((0..nr).all(|_| is_answered(client, data_len)), "all are answered in the round");
}

#[test]
fn neighbours_that_one_client_sends_together_are_one_request() {
    for (command, op) in [(WRITE, Op::Write), (READ, Op::Read)] {
        let mut driven = driven();
        let mut client = driven.connect();
        client.write_all(&requests(command, 0..NR)).unwrap();
        driven.round();
        assert_eq!(counts(&driven, op), (1, NR - 1), "{op:?}");
        take_replies(&mut client, NR, command);
    }
}

/// The kernel chooses which client is served first. An I/O is merged into the newest request only,
/// so if the second half arrives first, there are two requests.
#[test]
fn halves_of_a_range_from_two_clients_are_merged() {
    for (command, op) in [(WRITE, Op::Write), (READ, Op::Read)] {
        let mut driven = driven();
        let (mut first, mut second) = (driven.connect(), driven.connect());
        first.write_all(&requests(command, 0..NR / 2)).unwrap();
        second.write_all(&requests(command, NR / 2..NR)).unwrap();
        driven.round();
        let (requests, merges) = counts(&driven, op);
        assert!(requests <= 2, "{op:?}: {requests} requests");
        assert_eq!(requests + merges, NR);
        take_replies(&mut first, NR / 2, command);
        take_replies(&mut second, NR / 2, command);
    }
}

/// The requests are one batch, even if they are not adjacent.
#[test]
fn requests_that_came_together_go_to_the_disk_in_one_commit() {
    let mut driven = driven();
    let mut clients: Vec<_> = (0..8).map(|_| driven.connect()).collect();
    let before = driven.disk.stats().queue.commits;
    for (nr, client) in clients.iter_mut().enumerate() {
        send(client, READ, nr as u64 * 8192, BLOCK);
    }
    driven.round();
    assert_eq!(counts(&driven, Op::Read), (8, 0));
    assert_eq!(driven.disk.stats().queue.commits - before, 1);
}

#[test]
fn flushes_of_several_clients_are_one() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let spec = file.path().display().to_string();
    let mut driven = Driven::new(&spec, Limits::default(), |_| {});
    let mut clients: Vec<_> = (0..8).map(|_| driven.connect()).collect();
    clients[0].write_all(&requests(WRITE, 0..1)).unwrap();
    while !is_answered(&mut clients[0], 0) {
        driven.round();
    }
    for client in &mut clients {
        send(client, FLUSH, 0, 0);
    }
    for client in &mut clients {
        while !is_answered(client, 0) {
            driven.round();
        }
    }
    let stats = driven.disk.stats().queue;
    assert_eq!((stats.flushes_asked, stats.flushes_issued), (8, 1));
}
