//! Rings with drivers that keep the standard.

use super::driver::{
    DATA, Driver, EVENT_IDX, HEADER, INDIRECT, IS_INDIRECT, NEXT, PLAIN, SEAM, SIZE, STATUS,
    Served, WRITE, memory,
};
use super::{Ring, RingError};
use crate::config::MAX_SEGMENTS;
use crate::memory::GuestMemory;
use forebay_front::blk::GuestBytes;
use std::sync::Arc;
use virtio_bindings::virtio_ring::{VRING_AVAIL_F_NO_INTERRUPT, VRING_USED_F_NO_NOTIFY};

#[test]
fn requests_are_answered_for_many_turns_of_the_indices() {
    let memory = memory();
    for features in [PLAIN, EVENT_IDX] {
        let mut driver = Driver::new(&memory, 0, features);
        driver.index = u16::MAX - 20;
        driver.write(driver.used + 2, &driver.index.to_le_bytes());
        let mut served = Served::new();
        served.start(&driver);
        for nr in 0..100 {
            // The driver wants to be notified of the next entry.
            driver.write(driver.available + 4 + 2 * u64::from(SIZE), &driver.index.to_le_bytes());
            served.check_alive(&mut driver, 3 * (nr % 5));
            assert_eq!(driver.nr_calls(), 1);
        }
        assert!(served.host().broken.is_empty());
    }
}

/// The header, the data and the status may be split in any way, and across regions.
#[test]
fn request_may_be_split_anywhere() {
    let memory = memory();
    let mut driver = Driver::new(&memory, 0, INDIRECT);
    let mut served = Served::new();
    served.start(&driver);
    // A write of two sectors: 3 + 13 + 200 bytes, then 824 across a seam of two regions.
    driver.header(HEADER, 1, 5);
    let data: Vec<u8> = (0..1024_u32).map(|at| (at % 251) as u8).collect();
    let (first, second) = data.split_at(200);
    driver.write(HEADER + 16, first);
    driver.write(SEAM - 100, second);
    let table = DATA;
    let status = (STATUS, 1);
    let pieces = [(HEADER, 3), (HEADER + 3, 213), (SEAM - 100, 824)];
    for (nr, piece) in pieces.into_iter().enumerate() {
        driver.describe(table + 16 * nr as u64, piece, NEXT, nr as u16 + 1);
    }
    driver.describe(table + 48, status, WRITE, 0);
    driver.descriptor(4, (table, 64), IS_INDIRECT, 0);
    driver.offer(4);
    served.run();
    assert_eq!((driver.used_index(), driver.used_entry(0)), (1, (4, 1)));
    assert_eq!(driver.read(STATUS), [0]);
    assert_eq!(served.host().bytes[5 * 512..7 * 512], data);
    // A read whose status follows its data in the same descriptor, after a direct header.
    driver.header(HEADER, 0, 5);
    driver.write(DATA + 1024, &[0xaa; 2]);
    driver.descriptor(0, (HEADER, 16), NEXT, 1);
    driver.descriptor(1, (DATA, 1025), WRITE, 0);
    driver.offer(0);
    served.run();
    assert_eq!((driver.used_index(), driver.used_entry(1)), (2, (0, 1025)));
    assert_eq!(driver.read::<1024>(DATA), data[..]);
    assert_eq!(driver.read(DATA + 1024), [0, 0xaa]);
}

#[test]
fn ring_may_be_filled_completely() {
    let memory = memory();
    let mut driver = Driver::new(&memory, 0, INDIRECT);
    let mut served = Served::new();
    served.start(&driver);
    driver.header(HEADER, 0, 9);
    let table = HEADER + 0x100;
    for (nr, (addr, len), flags) in
        [(0, (HEADER, 16), NEXT), (1, (DATA, 512), NEXT | WRITE), (2, (STATUS, 1), WRITE)]
    {
        driver.describe(table + 16 * nr, (addr, len), flags, nr as u16 + 1);
    }
    for head in 0..SIZE {
        driver.descriptor(head, (table, 48), IS_INDIRECT, 0);
        driver.offer(head);
    }
    served.run();
    assert_eq!((driver.used_index(), driver.nr_calls()), (SIZE, 1));
    // One chain with all descriptors.
    for index in 0..SIZE - 1 {
        driver.descriptor(index, (DATA + 32 * u64::from(index), 32), NEXT | WRITE, index + 1);
    }
    driver.descriptor(0, (HEADER, 16), NEXT, 1);
    driver.descriptor(SIZE - 1, (STATUS, 65), WRITE, 0);
    driver.offer(0);
    served.run();
    assert_eq!((driver.used_index(), driver.used_entry(SIZE)), (SIZE + 1, (0, 513)));
}

/// Returns the capacities of the lists that a ring keeps after a request of so many descriptors.
fn kept_after(nr_descriptors: u16) -> Vec<usize> {
    let memory = memory();
    let mut driver = Driver::new(&memory, 0, INDIRECT);
    let mut ring = Ring::start(driver.setup()).map_err(|(error, _)| error).expect("a good ring");
    let table = SEAM + 0x9000;
    driver.describe(table, (HEADER, 16), NEXT, 1);
    for nth in 1..nr_descriptors {
        // None follows another one in memory.
        let buffer = (DATA + 2 * u64::from(nth), 1);
        let is_last = nth == nr_descriptors - 1;
        let flags = if is_last { WRITE } else { NEXT | WRITE };
        driver.describe(table + 16 * u64::from(nth), buffer, flags, nth + 1);
    }
    driver.descriptor(0, (table, 16 * u32::from(nr_descriptors)), IS_INDIRECT, 0);
    for _ in 0..3 {
        driver.offer(0);
        let chain = ring.take().expect("a good chain").expect("a request");
        ring.put(0, 0, 1);
        chain.readable.into_iter().chain(chain.writable).for_each(|data| ring.recycle(data));
    }
    ring.publish();
    ring.lists.iter().map(Vec::capacity).collect()
}

#[test]
fn lists_longer_than_the_segments_that_the_device_offers_are_not_kept() {
    let longest = usize::try_from(MAX_SEGMENTS).expect("a small number") + 2;
    // A request with one data segment needs no list.
    for (nr_descriptors, nr_kept) in [(3, 0), (128, 1), (140, 0), (1024, 0)] {
        let kept = kept_after(nr_descriptors);
        assert_eq!(kept.len(), nr_kept, "{nr_descriptors} descriptors: {kept:?}");
        assert!(kept.iter().all(|len| *len <= longest), "{nr_descriptors} descriptors: {kept:?}");
    }
}

#[test]
fn notifications_are_suppressed_in_both_directions() {
    let memory = memory();
    // Without event indices: flags.
    let mut driver = Driver::new(&memory, 0, PLAIN);
    let mut served = Served::new();
    served.start(&driver);
    driver.write(driver.available, &(VRING_AVAIL_F_NO_INTERRUPT as u16).to_le_bytes());
    served.check_alive(&mut driver, 0);
    assert_eq!(driver.nr_calls(), 0);
    assert_eq!(driver.used_flags(), 0, "the device is to be notified when it waits");
    driver.write(driver.available, &[0, 0]);
    served.0.round(|front| {
        front.look_at_rings();
        assert_eq!(driver.used_flags(), VRING_USED_F_NO_NOTIFY as u16);
    });
    served.check_alive(&mut driver, 0);
    assert_eq!(driver.nr_calls(), 1);
    // With event indices.
    let mut driver = Driver::new(&memory, 1, EVENT_IDX);
    served.start(&driver);
    let used_event = driver.available + 4 + 2 * u64::from(SIZE);
    let available_event = driver.used + 4 + 8 * u64::from(SIZE);
    driver.write(used_event, &1_u16.to_le_bytes());
    served.check_alive(&mut driver, 0);
    assert_eq!(driver.nr_calls(), 0, "the driver waits for the second entry");
    assert_eq!(driver.read(available_event), 1_u16.to_le_bytes());
    served.check_alive(&mut driver, 0);
    assert_eq!(driver.nr_calls(), 1);
    assert_eq!(driver.read(available_event), 2_u16.to_le_bytes());
}

/// A ring stops with requests at the disk, and goes on where it stopped.
#[test]
fn ring_that_stops_goes_on_from_its_base() {
    let memory = memory();
    let mut driver = Driver::new(&memory, 0, PLAIN);
    let mut served = Served::new();
    for _ in 0..50 {
        let base = served.start(&driver);
        served.host().is_held = true;
        driver.offer_read(0, 9);
        served.run();
        served.0.round(|front| front.stop_rings());
        assert_eq!(*base.borrow(), None, "the disk has the request");
        let before = driver.used_index();
        served.host().is_held = false;
        served.run();
        assert_eq!(*base.borrow(), Some(driver.index));
        assert_eq!(driver.used_index(), before.wrapping_add(1));
    }
    served.start(&driver);
    served.check_alive(&mut driver, 0);
}

/// A region that a request in flight uses stays mapped when it is removed.
#[test]
fn request_in_flight_keeps_its_memory() {
    let memory = memory();
    let mut driver = Driver::new(&memory, 0, PLAIN);
    let mut served = Served::new();
    served.start(&driver);
    served.host().is_held = true;
    driver.offer_read(0, 9);
    served.run();
    driver.offer_read(3, 9);
    let seam = vm_memory::GuestAddress(SEAM);
    let (rest, removed) = memory.regions().remove_region(seam, 0x1_0000).expect("a region");
    let without = GuestMemory::new(rest);
    driver.memory = without.clone();
    drop(memory);
    served.0.round(|front| {
        front.change_rings(|peer| {
            peer.ring.set_memory(without.clone()).map_err(|error| error.to_string())
        });
    });
    let mapping = Arc::downgrade(&removed.get_mmap());
    drop(removed);
    assert!(mapping.upgrade().is_some(), "the disk may use it");
    served.run();
    let broken = std::mem::take(&mut served.host().broken);
    assert!(matches!(&broken[..], [why] if why.contains("not in the memory of the guest")));
    served.host().is_held = false;
    served.run();
    assert_eq!((driver.used_index(), driver.used_entry(0)), (1, (0, 513)));
    served.0.round(|front| front.stop_rings());
    assert!(mapping.upgrade().is_none());
}

#[test]
fn ring_outside_of_the_memory_does_not_start() {
    let memory = memory();
    let start = |change: fn(&mut Driver)| {
        let mut driver = Driver::new(&memory, 0, PLAIN);
        change(&mut driver);
        Ring::start(driver.setup()).map(|_| ()).map_err(|(error, _)| error)
    };
    assert!(start(|_| {}).is_ok());
    let bad: [fn(&mut Driver); 6] = [
        |driver| driver.table = super::driver::HOLE - 16,
        |driver| driver.available = super::driver::HOLE,
        |driver| driver.used = u64::MAX - 3,
        |driver| driver.table += 8,
        |driver| driver.available += 1,
        |driver| driver.used += 2,
    ];
    for change in bad {
        assert!(matches!(start(change), Err(RingError::NotInMemory | RingError::Size(_))));
    }
}

#[test]
fn last_byte_is_the_status_even_if_it_has_a_descriptor_of_its_own_region() {
    let memory = memory();
    let driver = Driver::new(&memory, 0, PLAIN);
    let mut ring = Ring::start(driver.setup()).map_err(|(error, _)| error).unwrap();
    let mut driver = driver;
    driver.write(SEAM - 4, &[1, 2, 3, 4, 5, 6]);
    driver.descriptor(0, (SEAM - 4, 6), WRITE, 0);
    driver.offer(0);
    let chain = ring.take().unwrap().unwrap();
    assert!(chain.readable.is_none() && chain.has_status);
    assert_eq!(chain.writable.map(|data| data.len()), Some(5));
    ring.put(0, 77, 1);
    assert_eq!(driver.read(SEAM - 4), [1, 2, 3, 4, 5, 77]);
}

/// A notification that went to the former eventfd must not be lost.
#[test]
fn new_call_eventfd_is_signalled_at_once() {
    let memory = memory();
    let driver = Driver::new(&memory, 0, PLAIN);
    let mut ring = Ring::start(driver.setup()).map_err(|(error, _)| error).expect("a good ring");
    assert_eq!(driver.nr_calls(), 0);
    ring.set_call(driver.setup().call);
    assert_eq!(driver.nr_calls(), 1);
    ring.set_call(None);
    assert_eq!(driver.nr_calls(), 0);
}
