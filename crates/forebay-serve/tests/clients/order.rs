//! Replies to large and small reads that are in flight together.

use crate::client::{Client, DF, READ, number, request};
use crate::server::Running;
use forebay_serve::Limits;
use std::collections::BTreeMap;
use std::io::Write;

const SIZE: usize = 24 << 20;
const NR_READS: u64 = 100;
/// Lengths around the sizes of pieces, of portions, and of the memory that a client may hold.
const LENS: [usize; 10] =
    [512, 4096, 4096, 4096, 65_536, 256 << 10, 300 << 10, 1 << 20, (1 << 20) + 512, 8 << 20];

/// Returns bytes without two equal blocks.
fn content() -> Vec<u8> {
    (0..SIZE as u64 / 8)
        .flat_map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes())
        .collect()
}

/// Returns offsets and lengths of reads, of all lengths and in no order.
fn reads() -> Vec<(usize, usize)> {
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let read = |_| {
        let len = LENS[random(LENS.len())];
        (random((SIZE - len) / 512) * 512, len)
    };
    (0..NR_READS).map(read).collect()
}

/// Sends all reads at once, and reads replies while they are sent.
fn ask(client: &Client, reads: &[(usize, usize)], flags: u16) -> std::thread::JoinHandle<()> {
    let mut bytes = Vec::new();
    for (cookie, (at, len)) in reads.iter().enumerate() {
        bytes.extend(request(READ, flags, cookie as u64, *at as u64, *len as u32));
    }
    let mut socket = client.socket.try_clone().unwrap();
    std::thread::spawn(move || socket.write_all(&bytes).unwrap())
}

fn with_memory(test: impl Fn(&Running, &[u8])) {
    let content = content();
    // The smallest and the default memory, with one and two threads.
    for (memory_bytes, threads) in [(1 << 20, 1), (64 << 20, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk.img");
        std::fs::write(&disk, &content).unwrap();
        let memory_bytes = Some(memory_bytes);
        let limits = Limits { memory_bytes, threads, ..Limits::default() };
        test(&Running::start(folder.path(), &[disk.display().to_string()], limits), &content);
    }
}

#[test]
fn simple_replies_stay_whole_beside_other_replies() {
    with_memory(|server, content| {
        let mut client = Client::new(&server.socket, "0", false);
        let reads = reads();
        let sender = ask(&client, &reads, 0);
        let mut left: BTreeMap<u64, (usize, usize)> = (0..).zip(reads.iter().copied()).collect();
        while !left.is_empty() {
            let reply = client.reply(|cookie| reads[cookie as usize].1);
            let (at, len) = left.remove(&reply.cookie).expect("answered once");
            assert_eq!(reply.error, 0);
            assert!(reply.payload == content[at..at + len], "read {} at {at}", reply.cookie);
        }
        sender.join().unwrap();
    });
}

#[test]
fn data_that_must_come_in_one_chunk_do() {
    with_memory(|server, content| {
        let mut client = Client::new(&server.socket, "0", true);
        let reads = reads();
        let sender = ask(&client, &reads, DF);
        let mut left: BTreeMap<u64, (usize, usize)> = (0..).zip(reads.iter().copied()).collect();
        while !left.is_empty() {
            let reply = client.reply(|_| unreachable!("reads get chunks"));
            let (at, len) = left.remove(&reply.cookie).expect("answered once");
            assert_eq!((reply.kind, reply.is_last), (Some(1), true));
            assert_eq!(number(&reply.payload[..8]), at as u64);
            assert!(reply.payload[8..] == content[at..at + len], "read {} at {at}", reply.cookie);
        }
        sender.join().unwrap();
    });
}

#[test]
fn chunks_of_a_read_are_its_range_once_and_in_order() {
    with_memory(|server, content| {
        let mut client = Client::new(&server.socket, "0", true);
        let reads = reads();
        let sender = ask(&client, &reads, 0);
        let mut left: BTreeMap<u64, (usize, usize)> = (0..).zip(reads.iter().copied()).collect();
        while !left.is_empty() {
            let reply = client.reply(|_| unreachable!("reads get chunks"));
            let (at, len) = left.get_mut(&reply.cookie).expect("not answered yet");
            assert_eq!((reply.kind, number(&reply.payload[..8])), (Some(1), *at as u64));
            let data = &reply.payload[8..];
            assert!(data == &content[*at..*at + data.len()], "read {} at {at}", reply.cookie);
            (*at, *len) = (*at + data.len(), *len - data.len());
            assert_eq!(reply.is_last, *len == 0);
            if reply.is_last {
                left.remove(&reply.cookie);
            }
        }
        sender.join().unwrap();
    });
}
