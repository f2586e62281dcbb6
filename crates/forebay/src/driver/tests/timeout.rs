//! Tests of waits with a timeout, for all drivers: such a wait ends neither before its timeout nor
//! long after it, ends with a completion that comes first, and costs no more system calls.

use super::wait::{LONG, scratch, with_vhost_user};
use crate::buf::Buf;
use crate::driver::nbd_server::{NbdServer, export};
use crate::driver::testing::{DEPTH, data, issue, queue, reap};
use crate::driver::{DriverQueue, Mode};
use crate::sys::clock;
use forebay_core::{Bio, Driver, Op};
use std::io::{Read, Write};
use std::time::Duration;

const ALL: [&str; 9] =
    ["file", "file?sqpoll=on", "aio", "psync", "nbd", "model", "ram", "null", "fault"];

/// The maximum lateness of a wait on an idle machine.
const LATE_MAX: Duration = Duration::from_millis(2);

/// Calls `wait` with a timeout that nothing precedes. Checks that it never returns early. It may
/// return late on a busy machine, so the best of several calls counts.
fn assert_lasts(spec: &str, timeout: Duration, mut wait: impl FnMut(Option<Duration>)) {
    let mut least_late = Duration::MAX;
    for _ in 0..50 {
        let begin = clock::now_ns();
        wait(Some(timeout));
        let took = Duration::from_nanos(clock::now_ns() - begin);
        assert!(took >= timeout, "{spec}: {took:?} of {timeout:?}");
        least_late = least_late.min(took - timeout);
        if least_late <= LATE_MAX {
            return;
        }
    }
    panic!("{spec}: {least_late:?} later than {timeout:?}, each time");
}

#[test]
fn owned_wait_without_completions_lasts_until_its_timeout() {
    for driver in with_vhost_user(ALL) {
        let (spec, _place) = scratch(driver);
        let mut driver = queue(&spec, Mode::Owned).driver;
        // The long ones begin with a blocking receive in `nbd`.
        for timeout_us in [0, 1, 300, 3_000, 20_000, 110_000, 250_000] {
            let timeout = Duration::from_micros(timeout_us);
            assert_lasts(&spec, timeout, |timeout| driver.wait(1, timeout));
            assert!(reap(&mut *driver).is_empty(), "{spec}");
        }
    }
}

#[test]
fn wait_beside_a_driver_without_completions_lasts_until_its_timeout() {
    // The waiter of `fault` with delays looks every 500 us.
    for driver in with_vhost_user(ALL).into_iter().filter(|driver| *driver != "fault") {
        let (spec, _place) = scratch(driver);
        let DriverQueue { mut driver, waiter } = queue(&spec, Mode::Shared);
        for timeout_us in [0, 1, 300, 3_000, 20_000, 110_000] {
            let timeout = Duration::from_micros(timeout_us);
            assert_lasts(&spec, timeout, |timeout| waiter.wait(timeout));
            assert!(reap(&mut *driver).is_empty(), "{spec}");
        }
    }
}

/// Waits as the owner until a request was reaped. Returns the number of waits.
fn wait_for_one(driver: &mut dyn Driver, timeout: Option<Duration>) -> u64 {
    let mut nr_waits = 0;
    while reap(driver).is_empty() {
        driver.wait(1, timeout);
        nr_waits += 1;
    }
    nr_waits
}

/// The time that a slow request takes.
const SLOW: Duration = Duration::from_millis(60);

/// Returns a server that answers each request after [`SLOW`].
fn slow_server() -> NbdServer {
    NbdServer::scripted(export(1 << 20), &[], |reader, transmission| {
        let mut header = vec![0; transmission.header_len()];
        loop {
            reader.read_exact(&mut header)?;
            let rq = transmission.parse(&header).expect("a good client");
            std::thread::sleep(SLOW);
            let reply = transmission.data(&rq, rq.offset, 4096, true, true);
            let mut stream = *reader.get_ref();
            stream.write_all(&[reply.as_slice(), &[7; 4096]].concat())?;
        }
    })
}

#[test]
fn owned_wait_ends_before_a_slow_request_and_the_next_one_with_it() {
    let server = slow_server();
    let slow_ns = SLOW.as_nanos();
    let specs = [
        format!("ram:1M?req_ns={slow_ns}"),
        format!("model:nvme?size=1M&latency_ns={slow_ns}"),
        String::from("fault:ram:1M?rule=read:delay=60ms"),
        server.uri(),
    ];
    for spec in specs {
        let mut driver = queue(&spec, Mode::Owned).driver;
        for timeout in [Duration::from_millis(5), LONG] {
            // A wait may be so late on a busy machine that it sees the end.
            let is_in_time = (0..20).any(|_| {
                let nr_waits = nr_waits_of_a_slow_read(&spec, &mut *driver, timeout);
                nr_waits > 1 || timeout == LONG
            });
            assert!(is_in_time, "{spec}: one wait of {timeout:?} lasts until the end");
        }
    }
}

/// Returns the number of waits until a slow request has completed.
fn nr_waits_of_a_slow_read(spec: &str, driver: &mut dyn Driver, timeout: Duration) -> u64 {
    let mut buf = Buf::new(4096);
    let begin = clock::now_ns();
    issue(driver, 0, data(Op::Read, 0, &mut buf, 4096));
    driver.commit_rqs();
    let nr_waits = wait_for_one(driver, Some(timeout));
    let took = Duration::from_nanos(clock::now_ns() - begin);
    assert!(took >= SLOW && took < LONG, "{spec}: {took:?}");
    let nr_max = (took.as_nanos() / timeout.as_nanos()) as u64 + 2;
    assert!(nr_waits <= nr_max, "{spec}: {nr_waits} waits of {timeout:?} in {took:?}");
    nr_waits
}

#[test]
fn owned_wait_with_a_timeout_ends_with_as_many_as_it_asks_for() {
    for driver in with_vhost_user(ALL) {
        for timeout in [LONG, Duration::MAX] {
            let (spec, _place) = scratch(driver);
            let mut driver = queue(&spec, Mode::Owned).driver;
            let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::new(4096)).collect();
            let begin = clock::now_ns();
            for round in 1..50u64 {
                let nr = (round % u64::from(DEPTH)) as usize + 1;
                for (tag, buf) in bufs.iter_mut().enumerate().take(nr) {
                    let at = tag as u64 * 4096;
                    issue(&mut *driver, tag, data(Op::Read, at, buf, 4096));
                }
                if round % 3 == 0 {
                    driver.commit_rqs();
                }
                let mut nr_done = 0;
                while nr_done < nr {
                    driver.wait((nr - nr_done) as u32, Some(timeout));
                    nr_done += reap(&mut *driver).len();
                }
                assert_eq!(nr_done, nr);
            }
            assert!(clock::now_ns() - begin < LONG.as_nanos() as u64, "{spec}");
        }
    }
}

#[test]
fn wait_beside_a_driver_ends_with_a_completion_before_its_timeout() {
    for driver in with_vhost_user(ALL) {
        for timeout in [LONG, Duration::MAX] {
            let (spec, _place) = scratch(driver);
            let DriverQueue { mut driver, waiter } = queue(&spec, Mode::Shared);
            let begin = clock::now_ns();
            for _ in 0..100 {
                issue(&mut *driver, 0, Bio::flush());
                driver.commit_rqs();
                while reap(&mut *driver).is_empty() {
                    if !driver.has_ready() {
                        waiter.wait(Some(timeout));
                    }
                }
            }
            assert!(clock::now_ns() - begin < LONG.as_nanos() as u64, "{spec}");
        }
    }
}

/// Returns the number of system calls of 100 reads, one at a time, each with a wait.
fn nr_syscalls_of_reads(driver: &mut dyn Driver, timeout: Option<Duration>) -> u64 {
    let mut buf = Buf::new(4096);
    let before = driver.nr_syscalls();
    for _ in 0..100 {
        issue(driver, 0, data(Op::Read, 0, &mut buf, 4096));
        let mut nr = 0;
        while nr == 0 {
            driver.wait(1, timeout);
            nr = reap(driver).len();
        }
    }
    driver.nr_syscalls() - before
}

#[test]
fn long_timeout_costs_an_owner_no_system_calls() {
    // With a timeout a thread of the pool makes the calls of `psync`: a call may last for longer.
    // The counts of `vhost-user` vary: a wait makes no call if the request is complete.
    for driver in ALL.into_iter().filter(|driver| *driver != "psync") {
        let (spec, _place) = scratch(driver);
        let mut driver = queue(&spec, Mode::Owned).driver;
        // The least of some, because a wait may be interrupted.
        let mut least = |timeout| {
            let counts = (0..5).map(|_| nr_syscalls_of_reads(&mut *driver, timeout));
            counts.min().expect("several")
        };
        let (without, with) = (least(None), least(Some(Duration::from_secs(30))));
        assert!(with <= without + 2, "{spec}: {with} system calls, {without} without a timeout");
    }
}
