//! Tests of a device that is killed with requests in flight, and of its successor.

use super::driver::{Driver, EVENT_IDX, PLAIN, SIZE, memory};
use super::{Ring, RingError};
use crate::inflight::{InflightMemory, InflightShape, RecoverError};

const SHAPE: InflightShape = InflightShape { nr_queues: 2, queue_size: SIZE };

/// Starts ring 1 of a device with this in-flight region.
fn start(driver: &Driver, region: &InflightMemory) -> Result<Ring, RingError> {
    let mut setup = driver.setup();
    // The successor of a killed device is given another index than its own.
    setup.base = 0;
    setup.inflight = Some((region.clone(), 1));
    Ring::start(setup).map_err(|(error, _)| error)
}

/// Takes all requests. Returns their heads.
fn take_all(ring: &mut Ring) -> Vec<u16> {
    std::iter::from_fn(|| ring.take().expect("a good ring")).map(|chain| chain.head).collect()
}

#[test]
fn successor_takes_the_requests_of_a_dead_device_first_and_in_order() {
    let memory = memory();
    let mut driver = Driver::new(&memory, 0, PLAIN);
    let (region, _) = InflightMemory::create(SHAPE).expect("memory");
    let mut ring = start(&driver, &region).expect("a good ring");
    for head in [9, 0, 3, 12] {
        driver.offer_read(head, 1);
    }
    assert_eq!(take_all(&mut ring), [9, 0, 3, 12]);
    ring.put(3, 0, 513);
    ring.publish();
    driver.offer_read(6, 1);
    // The device dies: nothing is drained.
    drop(ring);
    let mut ring = start(&driver, &region).expect("a good ring");
    assert_eq!(take_all(&mut ring), [9, 0, 12, 6]);
    // The successor dies as well, after it has used some.
    ring.put(12, 0, 513);
    ring.put(9, 0, 513);
    ring.publish();
    // The driver cannot see this answer, so the request is taken again.
    ring.put(0, 0, 513);
    assert_eq!(driver.used_index(), 3);
    drop(ring);
    let mut ring = start(&driver, &region).expect("a good ring");
    driver.offer_read(9, 1);
    assert_eq!(take_all(&mut ring), [0, 6, 9]);
    for head in [9, 6, 0] {
        ring.put(head, 0, 513);
    }
    ring.publish();
    let used: Vec<_> = (0..driver.used_index()).map(|at| driver.used_entry(at).0).collect();
    assert_eq!(used, [3, 12, 9, 9, 6, 0], "each request is used once");
    assert_eq!(ring.next_available(), 6);
}

#[test]
fn successor_notifies_the_driver_of_what_a_dead_device_has_used() {
    let memory = memory();
    let mut driver = Driver::new(&memory, 0, EVENT_IDX);
    let (region, _) = InflightMemory::create(SHAPE).expect("memory");
    let mut ring = start(&driver, &region).expect("a good ring");
    driver.nr_calls();
    driver.offer_read(0, 1);
    driver.offer_read(3, 1);
    assert_eq!(take_all(&mut ring), [0, 3]);
    ring.put(0, 0, 513);
    ring.publish();
    // The device dies between the used entry and the notification. The driver waits for that: its
    // used event stays where it is, so a notification of the next entry alone would not be due.
    drop(ring);
    let mut ring = start(&driver, &region).expect("a good ring");
    assert_eq!(driver.nr_calls(), 1);
    assert_eq!(take_all(&mut ring), [3]);
}

#[test]
fn region_of_another_ring_stops_the_ring() {
    let memory = memory();
    let mut driver = Driver::new(&memory, 0, PLAIN);
    let (region, _) = InflightMemory::create(SHAPE).expect("memory");
    let mut ring = start(&driver, &region).expect("a good ring");
    driver.offer_read(0, 1);
    assert_eq!(take_all(&mut ring), [0]);
    drop(ring);
    driver.write(driver.used + 2, &1000_u16.to_le_bytes());
    let refused = start(&driver, &region).expect_err("it has another index");
    let expected = RecoverError::UsedIndex { ring: 1000, record: 0 };
    assert!(matches!(refused, RingError::Recover(why) if why == expected), "{refused}");
}
