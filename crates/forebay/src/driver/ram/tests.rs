//! Tests of a RAM disk that several threads use.

use crate::driver::memory::{NR_LOCKS, REGION};
use crate::driver::testing::{Numbers, data, device, issue, queue, reap};
use crate::driver::{DriverQueue, Mode};
use crate::sys::clock;
use forebay_core::{Bio, Driver, Op};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const BLOCK: usize = 512;

/// A wait that nothing ends lasts this long; no other wait does.
const LONG: Duration = Duration::from_secs(100);

/// Runs one request from issue to completion.
fn run(driver: &mut dyn Driver, bio: Bio) {
    issue(driver, 0, bio);
    driver.commit_rqs();
    assert_eq!(reap(driver).len(), 1);
}

#[test]
fn no_block_is_torn_by_four_threads() {
    let device = device("ram:256k");
    // A range across a region's boundary, small enough that the threads often collide.
    let (first, nr_blocks) = (REGION - 8 * BLOCK as u64, 16);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let device = &device;
            scope.spawn(move || {
                let mut numbers = Numbers(thread + 1);
                let mut driver = device.open_queue(4, Mode::Shared).expect("a queue").driver;
                for round in 0..20_000u64 {
                    let nr = 1 + numbers.below(8);
                    let at = first + numbers.below(nr_blocks - nr) * BLOCK as u64;
                    let stamp = (thread << 32 | round).to_le_bytes();
                    let mut buf = stamp.repeat(nr as usize * BLOCK / 8);
                    // Segments that are not whole blocks.
                    let segment = [96, 200, 4096][numbers.below(3) as usize];
                    match numbers.below(5) {
                        0 => run(&mut *driver, Bio::range(Op::WriteZeroes, at, buf.len() as u64)),
                        1 | 2 => run(&mut *driver, data(Op::Write, at, &mut buf, segment)),
                        _ => run(&mut *driver, data(Op::Read, at, &mut buf, segment)),
                    }
                    for block in buf.chunks(BLOCK) {
                        assert!(block.chunks(8).all(|word| word == &block[..8]), "torn: {block:?}");
                    }
                }
            });
        }
    });
}

#[test]
fn zeroes_reach_exactly_as_far_as_asked() {
    let len = REGION * (NR_LOCKS as u64 + 2);
    let mut driver = queue(&format!("ram:{len}"), Mode::Shared).driver;
    let block = BLOCK as u64;
    for (start, end) in [
        (block, len - block),
        (REGION - block, REGION + block),
        (REGION, 3 * REGION),
        (REGION + block, 4 * REGION - block),
        (block, 3 * block),
    ] {
        for (at, kept) in [(start - block, true), (start, false), (end - block, false), (end, true)]
        {
            run(&mut *driver, data(Op::Write, at, &mut [7; BLOCK], BLOCK));
            assert!(kept || start <= at && at < end);
        }
        run(&mut *driver, Bio::range(Op::WriteZeroes, start, end - start));
        for (at, kept) in [(start - block, 7), (start, 0), (end - block, 0), (end, 7)] {
            let mut buf = [1; BLOCK];
            run(&mut *driver, data(Op::Read, at, &mut buf, BLOCK));
            assert_eq!(buf, [kept; BLOCK], "{start}..{end}, block at {at}");
        }
    }
}

#[test]
fn queues_share_the_clock_of_their_device() {
    let device = device("ram:1M?req_ns=1000000&io_ns=500000");
    let mut queues = [0; 3].map(|_| device.open_queue(4, Mode::Shared).expect("a queue").driver);
    let begin = clock::now_ns();
    for driver in &mut queues {
        issue(&mut **driver, 0, Bio::range(Op::WriteZeroes, 0, 512));
    }
    queues[2].wait(1, None);
    assert!(clock::now_ns() - begin >= 3 * 1_500_000, "one request after another");
    assert!(queues.iter_mut().all(|driver| reap(&mut **driver).len() == 1));
}

#[test]
fn a_wait_ends_with_requests_issued_meanwhile() {
    let DriverQueue { driver, waiter } = queue("ram:1M?req_ns=200000", Mode::Shared);
    let driver = Mutex::new(driver);
    thread::scope(|scope| {
        for _ in 0..200 {
            // Usually the thread sleeps before the request, sometimes not: both must work.
            let waiting = scope.spawn(|| waiter.wait(Some(LONG)));
            thread::sleep(Duration::from_micros(100));
            issue(&mut **driver.lock().expect("no panic"), 0, Bio::range(Op::WriteZeroes, 0, 512));
            let begin = clock::now_ns();
            waiting.join().expect("a wait");
            assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
            assert_eq!(reap(&mut **driver.lock().expect("no panic")).len(), 1);
        }
    });
}

#[test]
fn a_kick_ends_a_wait_now_or_later_and_once() {
    let DriverQueue { mut driver, waiter } = queue("ram:1M?req_ns=1", Mode::Shared);
    let begin = clock::now_ns();
    driver.kick();
    driver.kick();
    waiter.wait(Some(LONG));
    let is_back = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            waiter.wait(Some(LONG));
            is_back.store(true, Ordering::Release);
        });
        thread::sleep(Duration::from_millis(2));
        assert!(!is_back.load(Ordering::Acquire), "two kicks before a wait are one");
        driver.kick();
    });
    assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
    let begin = clock::now_ns();
    waiter.wait(Some(Duration::from_millis(3)));
    assert!(clock::now_ns() - begin >= 3_000_000, "nothing was there to end it");
}

#[test]
fn without_service_times_completions_are_ready_at_once() {
    for spec in ["ram:1M", "null:1M?kick_ns=10"] {
        let DriverQueue { mut driver, waiter } = queue(spec, Mode::Shared);
        assert!(!driver.has_ready());
        issue(&mut *driver, 0, Bio::range(Op::WriteZeroes, 0, 512));
        assert!(driver.has_ready());
        driver.commit_rqs();
        assert_eq!(reap(&mut *driver).len(), 1);
        // A wait does not observe them: it ends by its timeout, or with a kick.
        waiter.wait(Some(Duration::from_millis(1)));
        driver.kick();
        waiter.wait(Some(LONG));
        assert!(!driver.has_ready() && waiter.poll_fd().is_ok_and(|fd| fd.is_none()));
    }
}

#[test]
fn a_commit_takes_its_time_once() {
    let mut driver = queue("null:1M?kick_ns=2000000", Mode::Owned).driver;
    for tag in 0..3 {
        issue(&mut *driver, tag, Bio::range(Op::WriteZeroes, 0, 512));
    }
    let begin = clock::now_ns();
    driver.commit_rqs();
    assert!(clock::now_ns() - begin >= 2_000_000);
    assert_eq!(reap(&mut *driver).len(), 3);
}
