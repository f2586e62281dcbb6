//! How many pieces there are, of which class, and how they give way.

use super::super::driven::{Driven, is_answered, send};
use super::*;
use crate::config::Limits;

const READ: u16 = 0;
const CACHE: u16 = 5;
const LEN: u32 = 4 << 20;
const NR_PIECES: u64 = (LEN as usize / PIECE_BYTES) as u64;

/// A worker with a disk in memory, which completes each I/O as it is submitted, and which counts as
/// one whose reads fill a cache.
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
    let mut slots = super::super::slots::Slots::new();
    let piece = piece(Buf::new(4096), 4096, 0, slots.insert(()));
    assert_eq!(flags(&piece), flags(&Io::flush().background()));
    assert_ne!(flags(&piece), flags(&Io::flush()));
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

#[test]
fn where_a_read_fills_no_cache_it_ends_at_once() {
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
    std::io::Read::read_exact(&mut client, &mut reply).expect("a reply");
    assert_eq!(reply[4..8], 5_u32.to_be_bytes(), "EIO");
    assert_eq!(nr_reads(&driven), 3);
    assert_eq!(driven.worker.disks.flights.len(), 0);
}
