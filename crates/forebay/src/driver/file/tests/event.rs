//! Tests of the signals of a ring's eventfd.

use super::scratch;
use crate::buf::Buf;
use crate::driver::file::event::IS_HUSHED;
use crate::driver::skip::skip;
use crate::driver::testing::{data, is_readable, issue, reap};
use crate::driver::{DriverQueue, Mode};
use forebay_core::{Bio, Op};

#[test]
fn completion_within_the_submitting_call_signals_no_descriptor() {
    let test = "completion_within_the_submitting_call_signals_no_descriptor";
    if !IS_HUSHED {
        return skip(test, "on this architecture the ring signals such completions");
    }
    let (DriverQueue { mut driver, waiter }, _folder) = scratch("", Mode::Owned);
    let fd = waiter.poll_fd().expect("a descriptor");
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
    let fd = waiter.poll_fd().expect("a descriptor");
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
