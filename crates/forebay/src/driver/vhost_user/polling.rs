//! Tests of waits that poll before they sleep.

use super::simulated::{Device, Kind, pair, polling_pair};
use crate::driver::Mode;
use crate::driver::testing::{issue, reap};
use forebay_core::{Bio, Driver, Issue, Op};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A time that no test waits for.
const LONG: Duration = Duration::from_secs(600);

/// Lets a device use one chain, later than the caller's next steps if threads run evenly.
fn serve_one(device: &mut Device) {
    thread::yield_now();
    while device.serve() == 0 {
        thread::yield_now();
    }
}

#[test]
fn wait_that_polls_costs_neither_side_a_system_call() {
    for kind in Kind::ALL {
        for mode in [Mode::Owned, Mode::Shared] {
            let (mut driver, mut device) = polling_pair(kind, mode, LONG);
            device.want_kicks(false);
            let shared = Arc::clone(driver.shared());
            for round in 0..50 {
                assert_eq!(issue(&mut driver, 3, Bio::range(Op::Flush, 0, 0)), Issue::Queued);
                driver.commit_rqs();
                thread::scope(|scope| {
                    scope.spawn(|| serve_one(&mut device));
                    match mode {
                        Mode::Owned => driver.wait(1, None),
                        Mode::Shared => shared.wait(None),
                    }
                });
                assert_eq!(reap(&mut driver).len(), 1, "{kind:?} {round}");
                device.want_kicks(false);
            }
            assert_eq!(device.nr_interrupts, 0, "{kind:?} {mode:?}");
            assert_eq!(driver.nr_syscalls() + shared.nr_syscalls(), 0, "{kind:?} {mode:?}");
        }
    }
}

#[test]
fn wait_sleeps_after_it_has_polled_in_vain() {
    for kind in Kind::ALL {
        for mode in [Mode::Owned, Mode::Shared] {
            let (mut driver, mut device) = polling_pair(kind, mode, Duration::from_nanos(1));
            let shared = Arc::clone(driver.shared());
            for round in 0..50 {
                issue(&mut driver, 3, Bio::range(Op::Flush, 0, 0));
                driver.commit_rqs();
                thread::scope(|scope| {
                    scope.spawn(|| serve_one(&mut device));
                    while reap(&mut driver).is_empty() {
                        match mode {
                            Mode::Owned => driver.wait(1, None),
                            Mode::Shared => shared.wait(None),
                        }
                    }
                });
                assert_eq!(reap(&mut driver).len(), 0, "{kind:?} {mode:?} {round}");
            }
        }
    }
}

#[test]
fn timeout_or_kick_or_lost_device_ends_polling() {
    for kind in Kind::ALL {
        let (mut driver, device) = polling_pair(kind, Mode::Shared, LONG);
        let shared = Arc::clone(driver.shared());
        issue(&mut driver, 3, Bio::range(Op::Flush, 0, 0));
        driver.commit_rqs();
        let timeout = Some(Duration::from_micros(100));
        shared.wait(timeout);
        driver.wait(1, timeout);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| shared.wait(None));
            driver.kick();
            waiter.join().expect("no panic");
            let waiter = scope.spawn(|| shared.wait(None));
            drop(device);
            shared.look();
            waiter.join().expect("no panic");
        });
        assert_eq!(reap(&mut driver).len(), 1, "{kind:?}");
    }
}

#[test]
fn wait_with_nothing_in_flight_does_not_poll() {
    let (mut driver, _device) = polling_pair(Kind::ALL[0], Mode::Shared, LONG);
    let shared = Arc::clone(driver.shared());
    let before = shared.nr_syscalls();
    shared.wait(Some(Duration::from_micros(100)));
    assert_eq!(shared.nr_syscalls() - before, 1, "it sleeps");
    driver.kick();
    shared.wait(None);
    let (mut driver, mut device) = pair(Kind::ALL[0], Mode::Owned);
    issue(&mut driver, 3, Bio::range(Op::Flush, 0, 0));
    driver.commit_rqs();
    let before = driver.nr_syscalls();
    driver.wait(1, Some(Duration::from_micros(100)));
    assert_eq!(driver.nr_syscalls() - before, 1, "poll_us=0");
    serve_one(&mut device);
    assert_eq!(reap(&mut driver).len(), 1);
}
