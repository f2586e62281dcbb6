//! A client with many requests, beside another one.

use crate::client::{Client, READ, request};
use crate::server::Running;
use forebay_serve::Limits;
use std::io::{Read, Write};

const NR_REQUESTS: u64 = 9_000;
const LEN: u32 = 4096;

#[test]
fn whoever_asks_for_thousands_of_blocks_at_once_keeps_nobody_waiting_for_the_last() {
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
