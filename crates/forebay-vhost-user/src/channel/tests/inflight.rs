//! Messages of the in-flight region.

use super::peer::*;
use super::{WCE, assert_refused, well};
use crate::WriteCache;
use crate::inflight::{InflightMemory, InflightShape};
use std::fs::File;
use std::os::fd::AsRawFd;

const SHAPE: InflightShape = InflightShape { nr_queues: 2, queue_size: 128 };

/// Returns the body of a message about a region.
fn region_of(
    len: u64,
    offset: u64,
    InflightShape { nr_queues, queue_size }: InflightShape,
) -> Vec<u8> {
    let numbers = [len, offset].map(u64::to_le_bytes).concat();
    // Four bytes of padding follow.
    let counts = [nr_queues, queue_size, 0, 0].map(u16::to_le_bytes).concat();
    [numbers, counts].concat()
}

#[test]
fn rings_that_start_later_use_the_region_of_the_front_end() {
    let rings = Fake::default();
    well(&rings, |peer| {
        peer.negotiate();
        peer.share();
        let asked = region_of(0, 0, SHAPE);
        let given = region_of(SHAPE.len_bytes(), 0, SHAPE);
        let Reply::Body(body) = peer.call(GET_INFLIGHT_FD, &asked, &[]) else { panic!("closed") };
        // The padding too: it must not be of the server's stack.
        assert_eq!(body, given);
        peer.start_ring(1);
        assert_eq!(rings.take_log(), ["1: start 5 false"]);
        peer.call(GET_VRING_BASE, &state(1, 0), &[]);
        let (memory, file) = InflightMemory::create(SHAPE).expect("memory");
        memory.recover(1, 128, 0).expect("a new record").0.take(9);
        peer.accept(SET_INFLIGHT_FD, &given, &[file.as_raw_fd()]);
        rings.take_log();
        peer.start_ring(1);
        assert_eq!(rings.take_log(), ["1: start 5 false in flight [9]"]);
    });
}

/// Front ends do not repeat the driver's write to the configuration space when the server is
/// restarted: the driver still believes that each write is durable before it ends.
#[test]
fn write_cache_that_the_driver_has_switched_off_stays_off_after_a_restart() {
    let (_, file) = InflightMemory::create(SHAPE).expect("memory");
    let set = |peer: &Peer, file: &File| {
        let given = region_of(SHAPE.len_bytes(), 0, SHAPE);
        peer.accept(SET_INFLIGHT_FD, &given, &[file.as_raw_fd()]);
    };
    // Each server has its own setting, and finds that of its predecessor.
    for (was_on, written) in [(true, Some(0)), (false, None), (false, Some(1)), (true, None)] {
        let cache = WriteCache::default();
        let ended = connection(&Fake::default(), &cache, |peer| {
            peer.negotiate();
            set(peer, &file);
            assert_eq!(cache.is_on(), was_on);
            if let Some(wce) = written {
                peer.accept(SET_CONFIG, &config(WCE, &[wce]), &[]);
                // A ring that starts again has the same region set again; after a reset, another.
                let (_, other) = InflightMemory::create(SHAPE).expect("memory");
                set(peer, &other);
                set(peer, &file);
                assert_eq!(cache.is_on(), wce == 1);
            }
        });
        assert_eq!(ended, Ok(()));
    }
}

/// Sends a region before any ring runs. It must be refused for this reason.
#[track_caller]
fn assert_region_refused(expected: &str, body: &[u8], file: &File) {
    let ended = connection(&Fake::default(), &WriteCache::default(), |peer| {
        peer.negotiate();
        peer.share();
        let reply = peer.call(SET_INFLIGHT_FD, body, &[file.as_raw_fd()]);
        let error = Reply::Body(1_u64.to_le_bytes().to_vec());
        assert!(reply == error || reply == Reply::Closed, "{expected}: {reply:?}");
    });
    let why = ended.expect_err(expected);
    assert!(why.contains(expected), "{why}");
}

#[test]
fn regions_that_cannot_be_used_are_refused() {
    let (_, file) = InflightMemory::create(SHAPE).expect("memory");
    let len = SHAPE.len_bytes();
    let larger = InflightShape { nr_queues: NR_RINGS + 1, ..SHAPE };
    let longer = InflightShape { queue_size: 2 * QUEUE_SIZE, ..SHAPE };
    for (body, why) in [
        (
            region_of(len, 0, larger),
            "asks for 4 queues, and the device has 3 (lower num-queues of the virtual",
        ),
        (
            region_of(len, 0, longer),
            "asks for rings of 512 descriptors, and the device has at most 256",
        ),
        (region_of(len - 1, 0, SHAPE), "is too short: 2 queues of 128 descriptors need"),
        (region_of(len, 4096, SHAPE), "ends before byte 4096"),
        (region_of(u64::MAX, u64::MAX - 4095, SHAPE), "ends before byte"),
    ] {
        assert_region_refused(why, &body, &file);
    }
    let body = region_of(len, 0, SHAPE);
    assert_region_refused("not sealed against shrinking", &body, &memory(len));
    assert_refused("the in-flight region cannot change while a ring runs", |peer| {
        peer.call(SET_INFLIGHT_FD, &body, &[file.as_raw_fd()])
    });
}
