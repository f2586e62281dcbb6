//! Time limits of requests: `io_timeout_ms` and `io_timeout_grace_ms` (H1 to H4). Bios that end
//! before their request are in `early_ends` (H5, H6).

use crate::common::{Scratch, open, submit};
use crate::event_loop::{await_readable, run};
use forebay::{BlockStatus, Buf, Disk, Io, IoError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const LIMIT: Duration = Duration::from_millis(40);
pub(crate) const GRACE: Duration = Duration::from_millis(60);

/// How long a request takes that no driver gives up. The tests wait for less.
pub(crate) const SLOW: Duration = Duration::from_secs(2);

/// Returns specs of faulty disks: each engine, with a shared and with an owned context.
pub(crate) fn specs(scratch: &Scratch, keys: &str) -> Vec<String> {
    let (limit, grace) = (LIMIT.as_millis(), GRACE.as_millis());
    let keys = format!("{keys}&io_timeout_ms={limit}&io_timeout_grace_ms={grace}");
    let mut specs = Vec::new();
    for nr in [1, 2] {
        let keys = format!("{keys}&nr_hw_queues={nr}");
        for engine in ["file", "aio", "psync"] {
            specs.push(format!("fault:{engine}:{}", scratch.spec(&keys)));
        }
        specs.push(format!("fault:ram:1M?{keys}"));
    }
    specs
}

/// Calls `act` with each disk, all at the same time. Each has a file of its own.
pub(crate) fn on_each(keys: &str, act: impl Fn(&Disk) + Sync) {
    on_each_with(keys, |_| true, act);
}

/// Calls `act` with each disk that has a volatile cache, as [`on_each`] does.
pub(crate) fn on_each_cached(keys: &str, act: impl Fn(&Disk) + Sync) {
    on_each_with(keys, |spec| !spec.contains("ram"), act);
}

fn on_each_with(keys: &str, is_wanted: fn(&str) -> bool, act: impl Fn(&Disk) + Sync) {
    let scratches: Vec<Scratch> = (0..8).map(|_| Scratch::new(1 << 20)).collect();
    thread::scope(|scope| {
        for (nth, scratch) in scratches.iter().enumerate() {
            let (act, spec) = (&act, specs(scratch, keys).swap_remove(nth));
            if is_wanted(&spec) {
                scope.spawn(move || act(&open(&spec)));
            }
        }
    });
}

/// Asserts that something took this long: not less, and not nearly as long as a slow request.
pub(crate) fn assert_took(begin: Instant, limit: Duration, disk: &Disk) {
    let took = begin.elapsed();
    assert!(limit <= took && took < SLOW / 2, "{}: {took:?}", disk.info().spec);
}

/// Waits until other threads have issued `nr` requests.
pub(crate) fn await_issues(disk: &Disk, nr: u64) {
    while disk.stats().queue.issued < nr {
        thread::yield_now();
    }
}

#[test]
fn request_that_hangs_is_counted_and_cancelled() {
    on_each("rule=read:hang:range=0+4096", |disk| {
        let begin = Instant::now();
        let error = disk.read_at(&mut [0; 4096], 0).expect_err("it hangs");
        assert_took(begin, LIMIT, disk);
        assert_eq!(error, IoError::Ended(BlockStatus::Timeout));
        assert_eq!(disk.stats().queue.timeouts, 1);
        assert!(!disk.is_failed(), "the driver has given it up in time");
        disk.read_at(&mut [0; 4096], 4096).expect("the disk works");
    });
}

#[test]
fn request_that_hangs_ends_for_queues_event_loops_and_futures() {
    on_each("rule=read:hang:range=0+4096", |disk| {
        let read = || Io::read(Buf::new(4096), 0);
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        let begin = Instant::now();
        submit(&mut queue, read());
        queue.reap(1, 1, &mut done);
        assert_took(begin, LIMIT, disk);
        let begin = Instant::now();
        queue.poll_fd().expect("a descriptor");
        submit(&mut queue, read());
        while done.len() < 2 {
            await_readable(queue.poll_fd().expect("a descriptor"), &disk.info().spec);
            queue.reap(0, 1, &mut done);
        }
        assert_took(begin, LIMIT, disk);
        let begin = Instant::now();
        done.push(run(disk.start(read()), thread::park).expect("no refusal"));
        assert_took(begin, LIMIT, disk);
        assert!(done.iter().all(|done| done.result == Err(BlockStatus::Timeout)));
        assert_eq!(disk.stats().queue.timeouts, 3);
    });
}

#[test]
fn hung_flush_loses_the_writes_that_it_covers() {
    let scratch = Scratch::new(1 << 20);
    for spec in &specs(&scratch, "rule=flush:hang")[..2] {
        let disk = open(spec);
        disk.write_at(&[1; 4096], 0).expect("no fault");
        let error = disk.flush().expect_err("it hangs");
        assert_eq!(error, IoError::Ended(BlockStatus::Timeout), "{spec}");
        assert!(disk.lost_writes().is_some(), "{spec}");
    }
}

#[test]
fn device_that_does_not_answer_is_gone_after_the_grace() {
    let slow = SLOW.as_secs();
    on_each(&format!("rule=read:delay={slow}s:range=0+4096&queue_depth=1"), |disk| {
        thread::scope(|scope| {
            let begin = Instant::now();
            // No driver gives up a request that only its report delays.
            let late = scope.spawn(|| disk.read_at(&mut [0; 4096], 0));
            await_issues(disk, 1);
            // It waits for the only tag of the shared context.
            let error = disk.read_at(&mut [0; 4096], 4096).expect_err("the device is gone");
            assert_took(begin, LIMIT + GRACE, disk);
            assert_eq!(error, IoError::Ended(BlockStatus::Offline));
            assert!(disk.is_failed());
            assert_eq!(
                disk.failure().expect("a reason"),
                "a request has not completed within 100 ms"
            );
            let error = disk.read_at(&mut [0; 4096], 4096).expect_err("the device is gone");
            assert_eq!(error, IoError::Ended(BlockStatus::Offline));
            assert!(!late.is_finished(), "its memory is still the driver's");
            assert_eq!(late.join().expect("no panic").expect("it succeeds late"), 4096);
            assert!(begin.elapsed() >= SLOW);
        });
        assert_eq!(disk.stats().queue.timeouts, 1);
        disk.revive();
        assert_eq!(disk.failure(), None);
        disk.read_at(&mut [0; 4096], 4096).expect("the device is back");
    });
}

#[test]
fn flush_behind_a_hung_one_ends_when_the_device_is_gone() {
    let scratch = Scratch::new(1 << 20);
    let slow = SLOW.as_secs();
    let specs = specs(&scratch, &format!("rule=flush:delay={slow}s"));
    thread::scope(|scope| {
        // `ram` has no volatile cache.
        for spec in specs.into_iter().filter(|spec| !spec.contains("ram")) {
            scope.spawn(move || {
                let disk = open(&spec);
                disk.write_at(&[1; 4096], 0).expect("no fault");
                thread::scope(|scope| {
                    let begin = Instant::now();
                    // The second flush fails first, and records that its writes may be lost.
                    scope.spawn(|| disk.flush().expect_err("a write that it covers is lost"));
                    while disk.stats().queue.flushes_issued == 0 {
                        thread::yield_now();
                    }
                    disk.write_at(&[2; 4096], 0).expect("no fault");
                    let error = disk.flush().expect_err("the device is gone");
                    assert_took(begin, LIMIT + GRACE, &disk);
                    assert_eq!(error, IoError::Ended(BlockStatus::Offline));
                });
            });
        }
    });
}

#[test]
fn disk_with_a_hung_request_of_a_dropped_future_closes() {
    on_each("rule=read:hang:range=0+4096", |disk| {
        // A disk of its own: `on_each` keeps the other one open.
        let disk = open(&disk.info().spec);
        let begin = Instant::now();
        let mut read = Box::pin(disk.start(Io::read(Buf::new(4096), 0)));
        let waker = std::task::Waker::noop();
        assert!(read.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        drop(read);
        drop(disk);
        let took = begin.elapsed();
        assert!(LIMIT <= took && took < SLOW / 2, "{took:?}");
    });
}
