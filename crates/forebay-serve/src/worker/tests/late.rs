//! Tests of disks that do not answer in time: what happens to the memory of clients.

use crate::config::Limits;
use crate::worker::driven::{Driven, REPLY_LEN, request, send};
use forebay_front::Host;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

const READ: u16 = 0;
const WRITE: u16 = 1;
const TRIM: u16 = 4;

/// A disk that takes much longer than its time limit and its grace period together. No request can
/// be cancelled, because only its completion is delayed.
const SLOW: &str = "fault:ram:8M?rule=any:delay=20s&io_timeout_ms=20&io_timeout_grace_ms=30";

/// Runs rounds until `nr` bytes have arrived, and returns them.
fn await_bytes(driven: &mut Driven, client: &mut UnixStream, nr: usize) -> Vec<u8> {
    let (mut bytes, mut part) = (Vec::new(), vec![0; nr]);
    while bytes.len() < nr {
        driven.round();
        match client.read(&mut part[bytes.len()..]) {
            Ok(nr_read) => {
                assert!(nr_read > 0, "the server has closed the connection");
                let begin = bytes.len();
                bytes.extend_from_slice(&part[begin..begin + nr_read]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    bytes
}

#[test]
fn memory_that_the_disk_keeps_is_no_longer_counted() {
    let mut driven = Driven::new(SLOW, Limits::default(), |_| {});
    let mut client = driven.connect();
    // A single piece, a small one, and several: reads in a portion, and the payloads of a write.
    send(&mut client, READ, 0, 8192);
    send(&mut client, READ, 8192, 512);
    send(&mut client, TRIM, 0, 8192);
    send(&mut client, READ, 1 << 20, 600 << 10);
    for (offset, len) in [(4 << 20, 512_u32), (5 << 20, 100 << 10)] {
        client.write_all(&request(WRITE, offset, len)).unwrap();
        let mut payload = vec![7; len as usize];
        while !payload.is_empty() {
            match client.write(&payload) {
                Ok(nr) => drop(payload.drain(..nr)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => driven.round(),
                Err(error) => panic!("{error}"),
            }
        }
    }
    let replies = await_bytes(&mut driven, &mut client, 6 * REPLY_LEN);
    for reply in replies.chunks(REPLY_LEN) {
        assert_ne!(reply[4..8], [0; 4], "each request has failed");
    }
    assert!(driven.worker.front.has_all_memory());
    assert!(driven.disk.is_failed());
    send(&mut client, READ, 0, 512);
    await_bytes(&mut driven, &mut client, REPLY_LEN);
    assert!(driven.worker.front.has_all_memory());
}

#[test]
fn memory_of_a_client_that_is_gone_is_no_longer_counted() {
    let mut driven = Driven::new(SLOW, Limits::default(), |_| {});
    let mut client = driven.connect();
    send(&mut client, READ, 0, 8192);
    send(&mut client, READ, 1 << 20, 600 << 10);
    driven.round();
    drop(client);
    while driven.disk.stats().queue.early_ends == 0 || driven.worker.front.host().is_busy() {
        driven.round();
        thread::sleep(Duration::from_millis(1));
    }
    driven.round();
    assert!(driven.worker.front.has_all_memory());
}
