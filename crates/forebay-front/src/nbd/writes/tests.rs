//! Payloads that stop halfway: the share of other clients, and the time limit.

use crate::stream::Capacity;
use crate::testing::{Driven, TestClient};

const READ: u16 = 0;
const WRITE: u16 = 1;
const NR_STALLED: usize = 99;
const SECOND_NS: u64 = 1_000_000_000;

/// Creates a front with this memory and as many clients as it allows. All but the last client have
/// sent the header of a write of 64 KiB and one byte of its payload.
fn stalled(block: u32, memory_bytes: usize) -> (Driven, Vec<TestClient>, TestClient) {
    let (connections, threads) = (NR_STALLED + 1, 1);
    let capacity = Capacity { connections, threads, memory_bytes: Some(memory_bytes) };
    let mut driven = Driven::new(false, block, capacity);
    let stall = |_| {
        let mut client = driven.connect();
        client.send(WRITE, 0, 64 << 10);
        client.write(&[1]);
        driven.round();
        client
    };
    let clients = (0..NR_STALLED).map(stall).collect();
    let last = driven.connect();
    (driven, clients, last)
}

/// Sends two reads of a block, and runs rounds until both are answered.
#[track_caller]
fn reads_two_blocks(driven: &mut Driven, client: &mut TestClient, len: u32) {
    client.send(READ, 0, len);
    client.send(READ, 0, len);
    for nr_left in [2, 1] {
        let mut nr_rounds = 0;
        while !client.is_answered(len as usize) {
            driven.round();
            nr_rounds += 1;
            assert!(nr_rounds < 100, "{nr_left} reads are not answered");
        }
    }
}

/// The server has the least memory that is accepted.
#[test]
fn stalled_payloads_leave_every_client_its_share() {
    let (mut driven, _stalled, mut last) = stalled(4096, 1 << 20);
    reads_two_blocks(&mut driven, &mut last, 4096);
}

#[test]
fn payloads_that_stall_while_others_wait_for_memory_end_after_half_a_minute() {
    let (mut driven, stalled, mut last) = stalled(512, 1 << 20);
    // Runs a round at a later time. The times of the clients' pieces stay as they are.
    let elapse = |driven: &mut Driven, seconds: u64| {
        let now_ns = driven.host().now_ns;
        driven.host().now_ns += seconds * SECOND_NS;
        driven.round_with(|front| front.tick());
        driven.host().now_ns = now_ns;
    };
    let nr_clients = NR_STALLED + 1;
    driven.front.desk.common.pool.take_shortage();
    elapse(&mut driven, 3600);
    assert_eq!(driven.front.nr_clients(), nr_clients, "no client was closed");

    // The second of two reads waits until the first is answered.
    reads_two_blocks(&mut driven, &mut last, 4096);
    assert!(driven.front.desk.common.pool.is_short());
    elapse(&mut driven, 29);
    assert_eq!(driven.front.nr_clients(), nr_clients, "the time limit has not passed");
    reads_two_blocks(&mut driven, &mut last, 4096);
    elapse(&mut driven, 31);
    assert_eq!(driven.front.nr_clients(), 1, "all but the last are closed");
    assert!(driven.front.has_all_memory());
    assert_eq!(driven.front.nr_flights(), 0);
    drop(stalled);
    reads_two_blocks(&mut driven, &mut last, 4096);
}
