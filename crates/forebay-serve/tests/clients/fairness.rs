//! Greedy clients beside another one.

use crate::client::{Client, READ, request};
use crate::server::Running;
use forebay_serve::Limits;
use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::time::Instant;

const NR_REQUESTS: u64 = 9_000;
const LEN: u32 = 4096;

#[test]
fn thousands_of_requests_at_once_delay_no_other_client() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, vec![1; 1 << 20]).unwrap();
    let limits = Limits { threads: 1, ..Limits::default() };
    let server = Running::start(folder.path(), &[disk.display().to_string()], limits);
    let mut other = Client::new(&server.socket, "0", true);
    let mut greedy = Client::new(&server.socket, "0", true);
    let requests = (0..NR_REQUESTS).flat_map(|nr| request(READ, 0, nr, 0, LEN));
    let requests: Vec<u8> = requests.collect();
    let mut socket = greedy.socket.try_clone().unwrap();
    let sender = std::thread::spawn(move || socket.write_all(&requests).unwrap());
    let reply_len = 20 + greedy.reply(|_| 0).payload.len() as u64;
    let mut left = (NR_REQUESTS - 1) * reply_len;
    other.socket.write_all(&request(READ, 0, 0, 0, LEN)).unwrap();
    other.socket.set_nonblocking(true).unwrap();
    // Reads replies as fast as possible: only then could the server keep serving this client alone.
    let mut bytes = vec![0; 1 << 20];
    while other.socket.read(&mut [0; 16]).is_err() {
        assert!(left > 0, "the other client was answered last");
        left -= greedy.some(&mut bytes) as u64;
    }
    let nr_left = left / reply_len;
    assert!(nr_left > NR_REQUESTS / 2, "the other client waited until {nr_left} were left");
    while left > 0 {
        left -= greedy.some(&mut bytes) as u64;
    }
    sender.join().unwrap();
}

/// Connects with simple replies, sends 8 reads of 256 KiB, and leaves. Returns `false` if the
/// server refuses the connection.
fn read_and_leave(server: &Running) -> bool {
    let mut socket = UnixStream::connect(&server.socket).unwrap();
    // The client flags (fixed newstyle, no zeroes), and EXPORT_NAME.
    let choice = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 1], b"0"].concat();
    socket.write_all(&choice).unwrap();
    // The greeting; then size and flags.
    if socket.read_exact(&mut [0; 18 + 10]).is_err() {
        return false;
    }
    let requests = (0..8).flat_map(|nr| request(READ, 0, nr, nr << 18, 256 << 10));
    socket.write_all(&requests.collect::<Vec<u8>>()).unwrap();
    true
}

/// The reads are in flight until after the test, so the server is not stopped: that would wait for
/// them.
#[test]
fn clients_that_leave_with_reads_in_flight_leave_the_others_their_memory() {
    let folder = tempfile::tempdir().unwrap();
    let specs = ["fault:ram:8M?rule=read:delay=3600s", "ram:1M"].map(str::to_owned);
    let limits = Limits { threads: 1, connections: 8, memory_bytes: Some(8 << 20) };
    let server = ManuallyDrop::new(Running::start(folder.path(), &specs, limits));
    let mut polite = Client::new(&server.socket, "1", false);
    for nr_left in 1..=40 {
        if !read_and_leave(&server) {
            assert!(nr_left > 8, "{nr_left} places are taken, but less than the memory");
            break;
        }
        let start = Instant::now();
        while server.log().matches(" written").count() < nr_left {
            assert!(start.elapsed().as_secs() < 60, "not closed: {}", server.log());
            std::thread::yield_now();
        }
        assert_eq!(polite.ask(READ, 0, 4096), 0, "after {nr_left} clients");
    }
}
