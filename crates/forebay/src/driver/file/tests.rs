//! Tests of rings. Tests for all drivers of files are in `driver/tests/wait.rs`.

mod again;
mod answers;
mod cancel;
mod entries;
mod event;
mod fixed;
mod inline;
mod limits;
mod registered;
mod restricted;
mod sqpoll;

use crate::driver::testing::{DEPTH, issue, queue, reap};
use crate::driver::{DriverQueue, Mode};
use crate::sys::clock;
use forebay_core::Bio;
use std::time::Duration;

/// A wait that nothing ends lasts this long; no other wait does.
const LONG: Duration = Duration::from_secs(100);

/// Returns a queue on a new file of 1 MiB, and its folder.
fn scratch(keys: &str, mode: Mode) -> (DriverQueue, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    (queue(&format!("{}?{keys}", path.display()), mode), folder)
}

#[test]
fn a_wait_returns_earlier_completions() {
    for mode in [Mode::Owned, Mode::Shared] {
        let (DriverQueue { mut driver, waiter }, _folder) = scratch("", mode);
        for _ in 0..100 {
            issue(&mut *driver, 0, Bio::flush());
            driver.wait(1, None);
            let begin = clock::now_ns();
            waiter.wait(Some(LONG));
            assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
            assert_eq!(reap(&mut *driver).len(), 1);
        }
    }
}

#[test]
fn a_kick_finds_room_in_a_ring_full_of_requests() {
    let (DriverQueue { mut driver, waiter }, _folder) = scratch("", Mode::Shared);
    for tag in 0..DEPTH as usize {
        issue(&mut *driver, tag, Bio::flush());
    }
    driver.kick();
    waiter.wait(None);
    let mut nr = 0;
    while nr < DEPTH as usize {
        driver.wait(1, None);
        nr += reap(&mut *driver).len();
    }
}

#[test]
fn a_wait_ends_in_time() {
    for mode in [Mode::Owned, Mode::Shared] {
        let (queue, _folder) = scratch("", mode);
        for timeout in [Duration::ZERO, Duration::from_millis(3)] {
            let begin = clock::now_ns();
            queue.waiter.wait(Some(timeout));
            let took = clock::now_ns() - begin;
            assert!(took >= timeout.as_nanos() as u64 && took < LONG.as_nanos() as u64);
        }
        assert!(queue.waiter.nr_syscalls() > 0, "{mode:?}");
    }
}
