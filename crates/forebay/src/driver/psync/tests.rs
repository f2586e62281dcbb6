//! Tests of which thread makes a call, a waiter or one of the pool, and of the number of threads.

use super::driver::PsyncDevice;
use crate::buf::Buf;
use crate::driver::testing::{DEPTH, data, issue, reap, target};
use crate::driver::{Device, DriverQueue, Mode};
use forebay_core::{Bio, Op};
use std::thread;

/// Returns a device on a file of 1 MiB.
fn device(nr_threads: usize) -> PsyncDevice {
    let (target, limits) = target();
    PsyncDevice::new(target, limits, nr_threads)
}

#[test]
fn who_waits_for_one_request_alone_makes_its_call() {
    let device = device(4);
    let mut buf = Buf::new(4096);
    let mut driver = device.open_queue(DEPTH, Mode::Owned).expect("a queue").driver;
    for _ in 0..100 {
        let before = driver.nr_syscalls();
        issue(&mut *driver, 0, data(Op::Read, 0, &mut buf, 4096));
        driver.wait(1, None);
        assert_eq!(reap(&mut *driver)[0].result, Ok(4096));
        assert_eq!(driver.nr_syscalls(), before + 1);
    }
    let DriverQueue { mut driver, waiter } = device.open_queue(DEPTH, Mode::Shared).expect("one");
    for _ in 0..100 {
        waiter.offer();
        assert!(!waiter.help(true), "there is nothing");
        waiter.offer();
        issue(&mut *driver, 0, Bio::flush());
        driver.commit_rqs();
        assert!(waiter.help(true), "it was left to us");
        assert_eq!(reap(&mut *driver).len(), 1);
    }
    assert_eq!(device.nr_threads_made(), 0);
}

#[test]
fn who_waits_beside_others_leaves_long_calls_to_the_pool() {
    let device = device(1);
    let mut buf = Buf::new(4096);
    let DriverQueue { mut driver, waiter } = device.open_queue(DEPTH, Mode::Shared).expect("one");
    issue(&mut *driver, 0, data(Op::Read, 0, &mut buf, 4096));
    issue(&mut *driver, 1, Bio::flush());
    issue(&mut *driver, 2, Bio::flush());
    waiter.offer();
    assert!(waiter.help(true), "the read, though it is not the newest");
    assert_eq!(reap(&mut *driver).iter().map(|done| done.tag.index()).collect::<Vec<_>>(), [0]);
    driver.commit_rqs();
    let mut nr = 0;
    while nr < 2 {
        waiter.wait(None);
        nr += reap(&mut *driver).len();
    }
    assert_eq!(device.nr_threads_made(), 1);
}

#[test]
fn an_offer_that_is_taken_back_leaves_nothing_lying() {
    let device = device(1);
    let DriverQueue { mut driver, waiter } = device.open_queue(DEPTH, Mode::Shared).expect("one");
    for nr_offers in [1, 2, 5] {
        (0..nr_offers).for_each(|_| waiter.offer());
        (0..2).for_each(|tag| {
            issue(&mut *driver, tag, Bio::flush());
        });
        driver.commit_rqs();
        (0..nr_offers).for_each(|_| assert!(!waiter.help(false)));
        let mut nr = 0;
        while nr < 2 {
            waiter.wait(None);
            nr += reap(&mut *driver).len();
        }
    }
}

#[test]
fn an_offer_that_was_withdrawn_keeps_nothing_from_the_pool() {
    let device = device(1);
    let DriverQueue { mut driver, waiter } = device.open_queue(DEPTH, Mode::Shared).expect("one");
    // Nothing was offered, which is permitted.
    waiter.withdraw();
    for _ in 0..10 {
        waiter.offer();
        waiter.withdraw();
        thread::scope(|scope| {
            let other = || {
                issue(&mut *driver, 0, Bio::flush());
                driver.commit_rqs();
                waiter.wait(None);
                assert_eq!(reap(&mut *driver).len(), 1);
            };
            scope.spawn(other).join().expect("no panic");
        });
        assert!(!waiter.help(true));
    }
}

#[test]
fn threads_are_made_as_calls_come_and_no_more_than_wanted() {
    let device = device(3);
    let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::new(4096)).collect();
    let mut driver = device.open_queue(DEPTH, Mode::Owned).expect("a queue").driver;
    for _ in 0..100 {
        for (tag, buf) in bufs.iter_mut().enumerate() {
            issue(&mut *driver, tag, data(Op::Write, tag as u64 * 4096, buf, 4096));
        }
        driver.wait(DEPTH, None);
        assert_eq!(reap(&mut *driver).len(), DEPTH as usize, "it waits for all of them");
    }
    assert!((1..=3).contains(&device.nr_threads_made()));
}

#[test]
fn a_batch_costs_its_submitter_one_wake_up() {
    let device = device(1);
    let mut driver = device.open_queue(DEPTH, Mode::Owned).expect("a queue").driver;
    for round in 0..50u64 {
        let before = driver.nr_syscalls();
        (0..DEPTH as usize).for_each(|tag| {
            issue(&mut *driver, tag, Bio::flush());
        });
        driver.wait(DEPTH, None);
        assert_eq!(reap(&mut *driver).len(), DEPTH as usize);
        // In addition to the calls themselves: a sleep, perhaps in several calls, and one wake-up.
        let nr = driver.nr_syscalls() - before - u64::from(DEPTH);
        assert!(nr <= 4, "round {round}: {nr}");
    }
}

#[test]
fn a_driver_that_is_dropped_by_a_panic_waits_for_its_calls() {
    let device = device(2);
    let mut seven = Buf::from(&[7; 4096][..]);
    let mut driver = device.open_queue(DEPTH, Mode::Owned).expect("a queue").driver;
    issue(&mut *driver, 0, data(Op::Write, 0, &mut seven, 4096));
    driver.wait(1, None);
    assert_eq!(reap(&mut *driver).len(), 1);
    for _ in 0..20 {
        let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::new(4096)).collect();
        let mut driver = device.open_queue(DEPTH, Mode::Shared).expect("a queue").driver;
        let bios = bufs.iter_mut().map(|buf| data(Op::Read, 0, buf, 4096));
        let bios: Vec<Bio> = bios.collect();
        let panics = thread::spawn(move || {
            for (tag, bio) in bios.into_iter().enumerate() {
                issue(&mut *driver, tag, bio);
            }
            panic!("with {DEPTH} calls in flight, on purpose");
        });
        assert!(panics.join().is_err());
        assert!(bufs.iter().all(|buf| buf.iter().all(|byte| *byte == 7)), "all were made");
    }
}
