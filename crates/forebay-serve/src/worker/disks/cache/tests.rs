//! Number and class of CACHE pieces, and their priority.

use super::*;
use crate::config::Limits;
use crate::worker::driven::{Driven, REPLY_LEN, is_answered, send};
use std::io::Read;
use std::os::unix::net::UnixStream;

const READ: u16 = 0;
const CACHE: u16 = 5;
const LEN: u32 = 4 << 20;
const NR_PIECES: u64 = (LEN as usize / PIECE_BYTES) as u64;

/// Creates a worker with a disk in memory that completes each I/O when it is submitted. The disk
/// counts as one whose reads fill a cache.
fn driven() -> Driven {
    Driven::new("ram:8M", Limits::default(), |export| export.caches_reads = true)
}

fn nr_reads(driven: &Driven) -> u64 {
    driven.disk.stats().queue.issued
}

#[test]
fn pieces_are_background_reads() {
    let flags = |io: &Io| {
        let shown = format!("{io:?}");
        shown[shown.find("flags").expect("they are shown")..].split(',').next().map(str::to_owned)
    };
    let mut slots = crate::worker::slots::Slots::new();
    let piece = piece(Buf::new(4096), 4096, 0, slots.insert(()));
    let read = || Io::read(Buf::new(4096), 0);
    assert_eq!(flags(&piece), flags(&read().background()));
    assert_ne!(flags(&piece), flags(&read()));
}

#[test]
fn a_round_reads_one_piece_of_64_kib_and_the_reply_follows_the_last() {
    let mut driven = driven();
    let mut client = driven.connect();
    send(&mut client, CACHE, 0, LEN);
    for nr in 1..=NR_PIECES {
        driven.round();
        assert_eq!(nr_reads(&driven), nr);
        assert!(!is_answered(&mut client, 0), "after {nr} pieces");
        assert!(driven.worker.is_unfinished, "no event would begin the next round");
    }
    driven.round();
    assert!(is_answered(&mut client, 0));
    assert!(!driven.worker.is_unfinished);
    let stats = driven.disk.stats().queue;
    let reads = stats.op(forebay::Op::Read);
    assert_eq!((reads.requests, reads.bytes, reads.merges), (NR_PIECES, LEN.into(), 0));
}

#[test]
fn requests_of_others_are_answered_at_once_and_one_piece_passes_in_sixteen_rounds() {
    let mut driven = driven();
    let (mut greedy, mut other) = (driven.connect(), driven.connect());
    for _ in 0..20 {
        send(&mut greedy, CACHE, 0, LEN);
    }
    driven.round();
    let before = nr_reads(&driven);
    let nr_rounds = u64::from(ROUNDS_PER_PIECE) * 10;
    for _ in 0..nr_rounds {
        send(&mut other, READ, 0, 4096);
        driven.round();
        assert!(is_answered(&mut other, 4096), "in the round that took it up");
    }
    assert_eq!(nr_reads(&driven) - before, nr_rounds + 10, "ten pieces beside the reads");
    driven.round();
    assert_eq!(nr_reads(&driven) - before, nr_rounds + 11, "a round of its own");
}

#[test]
fn requests_take_turns() {
    let mut driven = driven();
    let (mut one, mut other) = (driven.connect(), driven.connect());
    send(&mut one, CACHE, 0, LEN);
    driven.round();
    send(&mut other, CACHE, 0, 2 * PIECE_BYTES as u32);
    let mut nr_rounds = 0;
    while !is_answered(&mut other, 0) {
        driven.round();
        nr_rounds += 1;
    }
    assert!(nr_rounds <= 6, "{nr_rounds} rounds for two pieces beside another request");
    assert!(!is_answered(&mut one, 0));
}

#[test]
fn a_client_that_leaves_ends_its_requests_and_gives_its_memory_back() {
    let mut driven = driven();
    let (mut leaving, mut staying) = (driven.connect(), driven.connect());
    send(&mut leaving, CACHE, 0, LEN);
    send(&mut staying, CACHE, 0, LEN);
    for _ in 0..4 {
        driven.round();
    }
    drop(leaving);
    for _ in 0..4 {
        driven.round();
    }
    assert_eq!(driven.worker.conns.len(), 1);
    while !is_answered(&mut staying, 0) {
        driven.round();
    }
    assert_eq!(driven.worker.disks.flights.len(), 0);
    assert!(nr_reads(&driven) < NR_PIECES + 10, "the rest of the other request was not read");
    assert!(driven.worker.disks.pool.is_whole());
}

/// Length of a read that is sent in portions. With simple replies, nothing may be sent between
/// them.
const LARGE_LEN: usize = 3 << 20;

/// Returns bytes without two equal words of 4 bytes.
fn pattern() -> Vec<u8> {
    (0..LARGE_LEN as u32 / 4).flat_map(u32::to_be_bytes).collect()
}

/// Appends the bytes that have arrived, and returns whether there are `len` of them.
fn has_arrived(client: &mut UnixStream, stream: &mut Vec<u8>, len: usize) -> bool {
    let mut bytes = vec![0; len - stream.len()];
    if let Ok(nr) = client.read(&mut bytes) {
        stream.extend_from_slice(&bytes[..nr]);
    }
    stream.len() == len
}

#[test]
fn large_read_does_not_wait_for_a_cache_request_of_the_same_client() {
    let mut driven = driven();
    driven.disk.write_at(&pattern(), 0).expect("memory");
    let (mut client, mut other) = (driven.connect(), driven.connect());
    for _ in 0..20 {
        send(&mut client, CACHE, 0, LEN);
    }
    driven.round();
    send(&mut client, READ, 0, LARGE_LEN as u32);
    let mut stream = Vec::new();
    let mut nr_rounds = 0;
    while !has_arrived(&mut client, &mut stream, REPLY_LEN + LARGE_LEN) {
        send(&mut other, READ, 0, 4096);
        driven.round();
        assert!(is_answered(&mut other, 4096));
        nr_rounds += 1;
        assert!(nr_rounds < 200, "{} bytes have arrived", stream.len());
    }
    assert!(stream[REPLY_LEN..] == pattern());
}

/// Returns a worker and its client, which reads nothing, in the middle of a large read. A CACHE
/// request of the client ends there, as after the last of its pieces.
fn cache_that_ends_within_a_large_read() -> (Driven, UnixStream) {
    let mut driven = driven();
    driven.disk.write_at(&pattern(), 0).expect("memory");
    let mut client = driven.connect();
    send(&mut client, CACHE, 0, LEN);
    send(&mut client, READ, 0, LARGE_LEN as u32);
    // The read gets all the memory that a client may hold, and CACHE waits for some.
    driven.round();
    assert_eq!(nr_reads(&driven), 8, "two portions");
    let disks = &mut driven.worker.disks;
    let (cache, _) = disks.caching[0].waiting.pop_front().expect("it waits");
    disks.flights.get_mut(cache).expect("it waits").is_all_there = true;
    disks.to_settle.push(cache);
    driven.round();
    (driven, client)
}

#[test]
fn reply_to_cache_waits_for_the_end_of_a_large_read() {
    let (mut driven, mut client) = cache_that_ends_within_a_large_read();
    let mut stream = Vec::new();
    for _ in 0..1000 {
        if has_arrived(&mut client, &mut stream, REPLY_LEN + LARGE_LEN + REPLY_LEN) {
            break;
        }
        driven.round();
    }
    let (read, cache) = stream.split_at(REPLY_LEN + LARGE_LEN);
    assert!(read[REPLY_LEN..] == pattern(), "the data of the read are contiguous");
    assert_eq!(cache, [&[0x67, 0x44, 0x66, 0x98][..], &[0; 12]].concat());
    assert_eq!(driven.worker.disks.flights.len(), 0);
    assert!(driven.worker.disks.pool.is_whole());
}

#[test]
fn client_that_leaves_within_a_large_read_leaves_no_cache_request_behind() {
    let (mut driven, client) = cache_that_ends_within_a_large_read();
    drop(client);
    for _ in 0..4 {
        driven.round();
    }
    assert_eq!(driven.worker.conns.len(), 0);
    assert_eq!(driven.worker.disks.flights.len(), 0);
    assert!(driven.worker.disks.pool.is_whole());
}

#[test]
fn cache_request_ends_at_once_if_reads_fill_no_cache() {
    let mut driven = Driven::new("ram:8M", Limits::default(), |_| {});
    let mut client = driven.connect();
    send(&mut client, CACHE, 0, LEN);
    driven.round();
    assert!(is_answered(&mut client, 0));
    assert_eq!(nr_reads(&driven), 0);
}

#[test]
fn a_read_error_is_reported_and_ends_the_request() {
    let spec = "fault:ram:8M?rule=read:medium:range=128k+1k";
    let mut driven = Driven::new(spec, Limits::default(), |export| export.caches_reads = true);
    let mut client = driven.connect();
    send(&mut client, CACHE, 0, LEN);
    for _ in 0..8 {
        driven.round();
    }
    let mut reply = [0; 16];
    client.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[4..8], 5_u32.to_be_bytes(), "EIO");
    assert_eq!(nr_reads(&driven), 3);
    assert_eq!(driven.worker.disks.flights.len(), 0);
}
