//! Tests of the signals of a ring's eventfd.

use super::scratch;
use crate::buf::Buf;
use crate::driver::file::event::IS_HUSHED;
use crate::driver::skip::skip;
use crate::driver::testing::{data, device, is_readable, issue, reap};
use crate::driver::{DriverQueue, Mode};
use forebay_core::{Bio, Op};
use std::time::Duration;

#[test]
fn completion_within_the_submitting_call_signals_no_descriptor() {
    let test = "completion_within_the_submitting_call_signals_no_descriptor";
    if !IS_HUSHED {
        return skip(test, "on this architecture the ring signals such completions");
    }
    let (DriverQueue { mut driver, waiter }, _folder) = scratch("", Mode::Owned);
    let fd = waiter.poll_fd().expect("no error").expect("a descriptor");
    assert!(is_readable(fd, 0), "it begins readable");
    waiter.ack_poll();
    assert!(reap(&mut *driver).is_empty() && !is_readable(fd, 0));
    let mut buf = Buf::new(4096);
    let mut nr_at_once = 0;
    for _ in 0..100 {
        let before = driver.nr_syscalls();
        issue(&mut *driver, 0, data(Op::Read, 0, &mut buf, 4096));
        driver.commit_rqs();
        if driver.has_ready() {
            assert_eq!(reap(&mut *driver).len(), 1);
            if driver.nr_syscalls() == before + 1 {
                nr_at_once += 1;
                assert!(!is_readable(fd, 0));
            }
            continue;
        }
        assert!(is_readable(fd, 100_000));
        waiter.ack_poll();
        assert_eq!(reap(&mut *driver).len(), 1);
    }
    if nr_at_once == 0 {
        skip(test, "no read from this file system's cache completes within the call");
    }
}

/// A kernel worker makes a flush.
#[test]
fn later_completion_is_signalled_until_acknowledged() {
    let (DriverQueue { mut driver, waiter }, _folder) = scratch("", Mode::Owned);
    let fd = waiter.poll_fd().expect("no error").expect("a descriptor");
    for _ in 0..100 {
        issue(&mut *driver, 0, Bio::flush());
        driver.commit_rqs();
        let mut nr = 0;
        while nr == 0 {
            assert!(driver.has_ready() || is_readable(fd, 100_000));
            waiter.ack_poll();
            nr = reap(&mut *driver).len();
        }
    }
}

/// One call fetches at most 20 deferred completions (`IO_LOCAL_TW_DEFAULT_MAX`, since Linux 6.13).
#[test]
fn many_deferred_completions_are_all_reaped_or_signalled() {
    const NR: usize = 120;
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; NR * 4096]).expect("a scratch file");
    let device = device(&format!("{}?direct=on", path.display()));
    let DriverQueue { mut driver, waiter } =
        device.open_queue(NR as u32, Mode::Owned).expect("a queue");
    let fd = waiter.poll_fd().expect("no error").expect("a descriptor");
    let mut bufs: Vec<_> = (0..NR).map(|_| Buf::new(4096)).collect();
    for round in 0..5 {
        for (tag, buf) in bufs.iter_mut().enumerate() {
            issue(&mut *driver, tag, data(Op::Write, tag as u64 * 4096, buf, 4096));
        }
        driver.commit_rqs();
        // Most of them complete meanwhile, so their completions are deferred until the next call.
        std::thread::sleep(Duration::from_millis(50));
        let mut nr = reap(&mut *driver).len();
        while nr < NR {
            let is_signalled = driver.has_ready() || is_readable(fd, 5_000);
            assert!(is_signalled, "round {round}: {nr} of {NR} were reaped");
            waiter.ack_poll();
            nr += reap(&mut *driver).len();
        }
    }
}
