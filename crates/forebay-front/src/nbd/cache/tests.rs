//! Number and class of CACHE pieces, and their priority.

use super::*;
use crate::slots::Slots;
use crate::testing::{Driven, REPLY_LEN, TestClient};

const READ: u16 = 0;
const CACHE: u16 = 5;
const LEN: u32 = 4 << 20;
const NR_PIECES: u64 = (LEN as usize / PIECE_BYTES) as u64;

/// Creates a front with a disk that completes each I/O when it is submitted, and whose reads fill a
/// cache.
fn driven() -> Driven {
    Driven::usual(true)
}

fn nr_reads(driven: &Driven) -> u64 {
    driven.front.host().nr_reads
}

#[test]
fn pieces_are_background_reads() {
    let piece = piece(vec![0; 4096].into_boxed_slice(), 0, (0, 4096), Slots::new().insert(()));
    assert_eq!((piece.op, piece.flags), (Op::Read, BioFlags::BACKGROUND));
}

#[test]
fn a_round_reads_one_piece_of_64_kib_and_the_reply_follows_the_last() {
    let mut driven = driven();
    let mut client = driven.connect();
    client.send(CACHE, 0, LEN);
    for nr in 1..=NR_PIECES {
        driven.round();
        assert_eq!(nr_reads(&driven), nr);
        assert!(!client.is_answered(0), "after {nr} pieces");
        assert!(driven.front.is_unfinished, "no event would begin the next round");
    }
    driven.round();
    assert!(client.is_answered(0));
    assert!(!driven.front.is_unfinished);
    assert_eq!(nr_reads(&driven), NR_PIECES);
}

#[test]
fn requests_of_others_are_answered_at_once_and_one_piece_passes_in_sixteen_rounds() {
    let mut driven = driven();
    let (mut greedy, mut other) = (driven.connect(), driven.connect());
    for _ in 0..20 {
        greedy.send(CACHE, 0, LEN);
    }
    driven.round();
    let before = nr_reads(&driven);
    let nr_rounds = u64::from(ROUNDS_PER_PIECE) * 10;
    for _ in 0..nr_rounds {
        other.send(READ, 0, 4096);
        driven.round();
        assert!(other.is_answered(4096), "in the round that took it up");
    }
    assert_eq!(nr_reads(&driven) - before, nr_rounds + 10, "ten pieces beside the reads");
    driven.round();
    assert_eq!(nr_reads(&driven) - before, nr_rounds + 11, "a round of its own");
}

#[test]
fn requests_take_turns() {
    let mut driven = driven();
    let (mut one, mut other) = (driven.connect(), driven.connect());
    one.send(CACHE, 0, LEN);
    driven.round();
    other.send(CACHE, 0, 2 * PIECE_BYTES as u32);
    let mut nr_rounds = 0;
    while !other.is_answered(0) {
        driven.round();
        nr_rounds += 1;
    }
    assert!(nr_rounds <= 6, "{nr_rounds} rounds for two pieces beside another request");
    assert!(!one.is_answered(0));
}

#[test]
fn a_client_that_leaves_ends_its_requests_and_gives_its_memory_back() {
    let mut driven = driven();
    let (mut leaving, mut staying) = (driven.connect(), driven.connect());
    leaving.send(CACHE, 0, LEN);
    staying.send(CACHE, 0, LEN);
    for _ in 0..4 {
        driven.round();
    }
    drop(leaving);
    for _ in 0..4 {
        driven.round();
    }
    assert_eq!(driven.front.nr_clients(), 1);
    while !staying.is_answered(0) {
        driven.round();
    }
    assert_eq!(driven.front.nr_flights(), 0);
    assert!(nr_reads(&driven) < NR_PIECES + 10, "the rest of the other request was not read");
    assert!(driven.front.has_all_memory());
}

/// Length of a read that is sent in portions. With simple replies, nothing may be sent between
/// them.
const LARGE_LEN: usize = 3 << 20;

/// Returns bytes without two equal words of 4 bytes.
fn pattern() -> Vec<u8> {
    (0..LARGE_LEN as u32 / 4).flat_map(u32::to_be_bytes).collect()
}

/// Appends the bytes that have arrived, and returns whether there are `len` of them.
fn has_arrived(client: &mut TestClient, stream: &mut Vec<u8>, len: usize) -> bool {
    stream.extend(client.read(len - stream.len()));
    stream.len() == len
}

#[test]
fn large_read_does_not_wait_for_a_cache_request_of_the_same_client() {
    let mut driven = driven();
    driven.host().bytes[..LARGE_LEN].copy_from_slice(&pattern());
    let (mut client, mut other) = (driven.connect(), driven.connect());
    for _ in 0..20 {
        client.send(CACHE, 0, LEN);
    }
    driven.round();
    client.send(READ, 0, LARGE_LEN as u32);
    let mut stream = Vec::new();
    let mut nr_rounds = 0;
    while !has_arrived(&mut client, &mut stream, REPLY_LEN + LARGE_LEN) {
        other.send(READ, 0, 4096);
        driven.round();
        assert!(other.is_answered(4096));
        nr_rounds += 1;
        assert!(nr_rounds < 200, "{} bytes have arrived", stream.len());
    }
    assert!(stream[REPLY_LEN..] == pattern());
}

/// Returns a front and its client, which reads nothing, in the middle of a large read. A CACHE
/// request of the client ends there, as after the last of its pieces.
fn cache_that_ends_within_a_large_read() -> (Driven, TestClient) {
    let mut driven = driven();
    driven.host().bytes[..LARGE_LEN].copy_from_slice(&pattern());
    let mut client = driven.connect();
    client.send(CACHE, 0, LEN);
    client.send(READ, 0, LARGE_LEN as u32);
    // The read gets all the memory that a client may hold, and CACHE waits for some.
    driven.round();
    assert_eq!(nr_reads(&driven), 8, "two portions");
    let desk = &mut driven.front.desk;
    let (cache, _) = desk.common.caching[0].waiting.pop_front().expect("it waits");
    desk.flights.get_mut(cache).expect("it waits").is_all_there = true;
    desk.to_settle.push(cache);
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
    assert_eq!(driven.front.nr_flights(), 0);
    assert!(driven.front.has_all_memory());
}

#[test]
fn client_that_leaves_within_a_large_read_leaves_no_cache_request_behind() {
    let (mut driven, client) = cache_that_ends_within_a_large_read();
    drop(client);
    for _ in 0..4 {
        driven.round();
    }
    assert_eq!(driven.front.nr_clients(), 0);
    assert_eq!(driven.front.nr_flights(), 0);
    assert!(driven.front.has_all_memory());
}

#[test]
fn cache_request_ends_at_once_if_reads_fill_no_cache() {
    let mut driven = Driven::usual(false);
    let mut client = driven.connect();
    client.send(CACHE, 0, LEN);
    driven.round();
    assert!(client.is_answered(0));
    assert_eq!(nr_reads(&driven), 0);
}

#[test]
fn a_read_error_is_reported_and_ends_the_request() {
    let mut driven = driven();
    driven.host().bad = 128 << 10..129 << 10;
    let mut client = driven.connect();
    client.send(CACHE, 0, LEN);
    for _ in 0..8 {
        driven.round();
    }
    let reply = client.read(REPLY_LEN);
    assert_eq!(reply[4..8], 5_u32.to_be_bytes(), "EIO");
    assert_eq!(nr_reads(&driven), 3);
    assert_eq!(driven.front.nr_flights(), 0);
}
