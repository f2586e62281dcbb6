//! Time limits of requests: `io_timeout_ms` and `io_timeout_grace_ms` (H1 to H4). Bios that end
//! before their request are in `early_ends` (H5, H6).

use crate::common::{LoopDevice, open, submit};
use crate::early_ends::{end_early, slow};
use crate::event_loop::{await_readable, run};
use crate::hung_disks::{
    GRACE, LIMIT, SLOW, assert_took, await_issues, disks_on, on_each, overlaps_flushes,
};
use forebay::{BlockStatus, Buf, Disk, Io, IoError};
use std::thread;
use std::time::Instant;

/// The keys of a disk whose reads of the first block hang until they are cancelled.
const HANG: &str = "rule=read:hang:range=0+4096";

#[test]
fn request_that_hangs_is_counted_and_cancelled() {
    on_each(HANG, hang_in_a_blocking_call);
}

fn hang_in_a_blocking_call(disk: &Disk) {
    let begin = Instant::now();
    let error = disk.read_at(&mut [0; 4096], 0).expect_err("it hangs");
    assert_took(begin, LIMIT, disk);
    assert_eq!(error, IoError::Ended(BlockStatus::Timeout));
    assert_eq!(disk.stats().queue.timeouts, 1);
    assert!(!disk.is_failed(), "the driver has given it up in time");
    disk.read_at(&mut [0; 4096], 4096).expect("the disk works");
}

#[test]
fn request_that_hangs_ends_for_queues_event_loops_and_futures() {
    on_each(HANG, hang_in_queues_event_loops_and_futures);
}

fn hang_in_queues_event_loops_and_futures(disk: &Disk) {
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
}

#[test]
fn hung_flush_loses_the_writes_that_it_covers() {
    on_each("rule=flush:hang", hang_in_a_flush);
}

fn hang_in_a_flush(disk: &Disk) {
    disk.write_at(&[1; 4096], 0).expect("no fault");
    let error = disk.flush().expect_err("it hangs");
    assert_eq!(error, IoError::Ended(BlockStatus::Timeout), "{}", disk.info().spec);
    assert!(disk.lost_writes().is_some(), "{}", disk.info().spec);
}

#[test]
fn device_that_does_not_answer_is_gone_after_the_grace() {
    on_each(&slow_with_one_tag(), lose_the_device);
}

/// Returns the keys of a disk with one tag, whose reads of the first block are late.
fn slow_with_one_tag() -> String {
    format!("{}&queue_depth=1", slow("read"))
}

fn lose_the_device(disk: &Disk) {
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
        assert_eq!(disk.failure().expect("a reason"), "a request has not completed within 300 ms");
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
}

#[test]
fn flush_behind_a_hung_one_ends_when_the_device_is_gone() {
    on_each(&format!("rule=flush:delay={}s", SLOW.as_secs()), |disk| {
        if !overlaps_flushes(disk) {
            return; // The write below would wait for the first flush.
        }
        disk.write_at(&[1; 4096], 0).expect("no fault");
        thread::scope(|scope| {
            let begin = Instant::now();
            // The second flush fails first, and records that its writes may be lost.
            scope.spawn(|| disk.flush().expect_err("a write that it covers is lost"));
            while disk.stats().queue.flushes_issued == 0 && !disk.is_failed() {
                thread::yield_now();
            }
            disk.write_at(&[2; 4096], 0).expect("no fault");
            let error = disk.flush().expect_err("the device is gone");
            assert_took(begin, LIMIT + GRACE, disk);
            assert_eq!(error, IoError::Ended(BlockStatus::Offline));
        });
    });
}

#[test]
fn disk_with_a_hung_request_of_a_dropped_future_closes() {
    on_each(HANG, close_while_a_request_hangs);
}

fn close_while_a_request_hangs(disk: &Disk) {
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
}

#[test]
fn block_devices_keep_the_time_limits() {
    let test = "block_devices_keep_the_time_limits";
    let Some(device) = LoopDevice::or_skip(test, 1 << 20) else { return };
    let at_once = |keys: &str, act: fn(&Disk)| {
        let disks = disks_on(&device, keys);
        thread::scope(|scope| disks.iter().for_each(|disk| drop(scope.spawn(|| act(disk)))));
    };
    at_once(HANG, hang_in_a_blocking_call);
    at_once(HANG, hang_in_queues_event_loops_and_futures);
    at_once(HANG, close_while_a_request_hangs);
    at_once(&slow_with_one_tag(), lose_the_device);
    at_once(&slow("read"), end_early);
    // These disks share their losses.
    for disk in disks_on(&device, "rule=flush:hang") {
        hang_in_a_flush(&disk);
        disk.acknowledge_loss();
    }
}
