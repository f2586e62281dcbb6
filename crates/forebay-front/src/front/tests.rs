//! Rounds of a front whose host the test drives.

use crate::testing::{Driven, REPLY_LEN, TestClient};

const READ: u16 = 0;
const BLOCK: usize = 4096;

/// Sends a read, runs rounds until its reply has arrived, and returns the data.
fn read(driven: &mut Driven, client: &mut TestClient, offset: u64, len: usize) -> Vec<u8> {
    client.send(READ, offset, len as u32);
    let mut reply = Vec::new();
    for _ in 0..100 {
        driven.round();
        reply.extend(client.read(REPLY_LEN + len - reply.len()));
    }
    assert_eq!(reply.len(), REPLY_LEN + len, "the whole reply");
    assert_eq!(reply[4..8], [0; 4], "no error");
    reply.split_off(REPLY_LEN)
}

#[test]
fn panic_ends_one_client_and_the_others_go_on() {
    let mut driven = Driven::usual(false);
    let (mut one, mut other) = (driven.connect(), driven.connect());
    driven.host().bytes.fill(3);
    driven.host().panics_at = Some(8192);
    one.send(READ, 0, BLOCK as u32);
    one.send(READ, 8192, BLOCK as u32);
    other.send(READ, 0, BLOCK as u32);
    driven.round();
    assert_eq!((driven.host().nr_panics, driven.front.nr_clients()), (1, 1));
    // The I/O that the client had in flight has ended without it. The request whose submission
    // panicked is dropped too. Its memory is lost.
    assert_eq!(driven.front.nr_flights(), 0);
    assert_eq!(driven.host().after_close, (2, 2), "each is reported once");
    assert!(other.is_answered(BLOCK));
    assert_eq!(read(&mut driven, &mut other, BLOCK as u64, BLOCK), vec![3; BLOCK]);
    let mut third = driven.connect();
    assert_eq!(read(&mut driven, &mut third, 0, BLOCK), vec![3; BLOCK]);
}

/// The memory of such a read may hold data of another client.
#[test]
fn read_of_a_disk_without_data_returns_zeroes() {
    let mut driven = Driven::without_data();
    let mut client = driven.connect();
    driven.host().bytes.fill(9);
    // A read of one piece, and one in portions.
    for len in [BLOCK, 4 << 20] {
        let data = read(&mut driven, &mut client, 0, len);
        assert!(data.iter().all(|byte| *byte == 0), "{len} bytes");
    }
}
