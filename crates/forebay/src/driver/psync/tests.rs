//! Tests of which thread makes a call, the owner or a pool thread, and of the number of threads.

use super::driver::PsyncDevice;
use crate::buf::Buf;
use crate::driver::testing::{DEPTH, data, issue, reap, target};
use crate::driver::{Device, Mode};
use forebay_core::{Bio, Op};
use std::thread;

/// Returns a device on a file of 1 MiB.
fn device(nr_threads: usize) -> PsyncDevice {
    let (target, limits) = target();
    PsyncDevice::new(target, limits, nr_threads)
}

#[test]
fn owner_that_waits_for_one_request_makes_its_call() {
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
    assert_eq!(device.nr_threads_made(), 0);
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
