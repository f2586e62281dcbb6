//! Tests of descriptors for event loops on drivers that complete by the clock: they are readable
//! when a request is due, and their timers are seldom set.

use crate::buf::Buf;
use crate::driver::testing::{data, is_readable, issue, queue, reap};
use crate::driver::{DriverQueue, Mode};
use crate::sys::clock;
use forebay_core::{Completed, Driver, Op};
use std::time::Duration;

/// The time that a request takes.
const TIME: Duration = Duration::from_millis(3);

/// The maximum lateness of a wake-up on an idle machine.
const LATE_MAX: Duration = Duration::from_millis(2);

/// Specs of disks on which a read takes [`TIME`].
const SPECS: [&str; 3] = [
    "ram:1M?req_ns=3000000",
    "model:nvme?size=1M&latency_ns=3000000",
    "fault:ram:1M?rule=read:delay=3ms",
];

/// Waits in `poll` until a request was reaped. Returns it and the number of wake-ups.
fn poll_for_one(queue: &mut DriverQueue) -> (Completed, u32) {
    let DriverQueue { driver, waiter } = queue;
    let fd = waiter.poll_fd().expect("no error").expect("a descriptor");
    let mut nr_wakes = 0;
    loop {
        assert!(is_readable(fd, 100_000), "no wake-up");
        nr_wakes += 1;
        waiter.ack_poll();
        if let [done] = reap(&mut **driver)[..] {
            return (done, nr_wakes);
        }
    }
}

/// Issues a request that is due later, and reaps as the layer does: if the driver is ready.
fn issue_data(driver: &mut dyn Driver, op: Op, tag: usize, buf: &mut Buf) {
    issue(driver, tag, data(op, tag as u64 * 4096, buf, 4096));
    driver.commit_rqs();
    if driver.has_ready() {
        assert!(reap(driver).is_empty(), "it is not due");
    }
}

/// Returns the number of system calls of the waiter's timer.
fn nr_timer_calls(queue: &DriverQueue) -> u64 {
    queue.waiter.nr_syscalls()
}

#[test]
fn descriptor_is_readable_when_a_request_is_due() {
    for spec in SPECS {
        for mode in [Mode::Owned, Mode::Shared] {
            let mut queue = queue(spec, mode);
            assert!(
                is_readable(queue.waiter.poll_fd().expect("no error").expect("a descriptor"), 0),
                "{spec}"
            );
            assert!(reap(&mut *queue.driver).is_empty());
            let (nr_requests, nr_before) = (30u32, nr_timer_calls(&queue));
            let (mut nr_wakes, mut least_late) = (0, Duration::MAX);
            let mut buf = Buf::new(4096);
            for _ in 0..nr_requests {
                let begin = clock::now_ns();
                issue_data(&mut *queue.driver, Op::Read, 0, &mut buf);
                let (done, nr) = poll_for_one(&mut queue);
                let took = Duration::from_nanos(clock::now_ns() - begin);
                assert_eq!(done.result, Ok(4096));
                assert!(took >= TIME, "{spec}: {took:?}");
                least_late = least_late.min(took - TIME);
                nr_wakes += nr;
            }
            assert!(least_late <= LATE_MAX, "{spec}: {least_late:?} late, each time");
            // A wake-up in vain is one by a timer that has expired early.
            assert!(nr_wakes <= nr_requests + 3, "{spec}: {nr_wakes} wake-ups");
            let nr_calls = nr_timer_calls(&queue) - nr_before;
            let nr_max = 2 * u64::from(nr_requests) + 6;
            assert!(nr_calls <= nr_max, "{spec}: {nr_calls} system calls");
            let fd = queue.waiter.poll_fd().expect("no error").expect("a descriptor");
            assert!(!is_readable(fd, 10), "{spec}: nothing is in flight");
        }
    }
}

#[test]
fn timer_is_set_once_for_each_of_many_requests() {
    let mut queue = queue("ram:1M?req_ns=200000", Mode::Owned);
    queue.waiter.poll_fd().expect("no error").expect("a descriptor");
    assert!(reap(&mut *queue.driver).is_empty());
    let nr_before = nr_timer_calls(&queue);
    let mut bufs: Vec<Buf> = (0..32).map(|_| Buf::new(4096)).collect();
    for (tag, buf) in bufs.iter_mut().enumerate() {
        issue_data(&mut *queue.driver, Op::Read, tag, buf);
    }
    assert!(nr_timer_calls(&queue) - nr_before <= 4, "later due times do not set the timer");
    let mut nr_done = 0;
    while nr_done < 32 {
        let fd = queue.waiter.poll_fd().expect("no error").expect("a descriptor");
        assert!(is_readable(fd, 100_000), "no wake-up");
        nr_done += reap(&mut *queue.driver).len();
    }
    let nr_calls = nr_timer_calls(&queue) - nr_before;
    assert!(nr_calls <= 32 + 4, "{nr_calls} system calls");
}

#[test]
fn timer_is_set_again_for_an_earlier_due_time() {
    let spec = "fault:ram:1M?rule=write:delay=50s&rule=read:delay=3ms";
    let mut queue = queue(spec, Mode::Shared);
    queue.waiter.poll_fd().expect("no error").expect("a descriptor");
    assert!(reap(&mut *queue.driver).is_empty());
    let (mut written, mut read) = (Buf::new(4096), Buf::new(4096));
    let begin = clock::now_ns();
    issue_data(&mut *queue.driver, Op::Write, 9, &mut written);
    issue_data(&mut *queue.driver, Op::Read, 1, &mut read);
    let (done, _) = poll_for_one(&mut queue);
    assert_eq!(done.tag.index(), 1);
    assert!((3_000_000..50_000_000_000).contains(&(clock::now_ns() - begin)));
}
