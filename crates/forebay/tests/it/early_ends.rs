//! Tests of I/O that ends because of its time limit while the driver still has the request (H5,
//! H6).

use crate::common::{Scratch, open, submit};
use crate::event_loop::{await_readable, run};
use crate::held_calls;
use crate::hung_disks::{
    GRACE, HungDisk, LIMIT, SLOW, assert_took, await_issues, disks, file_disk, limits, moves_data,
    on_each,
};
use crate::nbd_server::{NbdServer, export};
use forebay::{BlockStatus, Buf, Completion, Disk, Io, IoError, leaked_bufs};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

/// Returns the keys of a disk on which an operation on the first block takes [`SLOW`]. Only its
/// completion is delayed, so no driver can cancel it.
pub(crate) fn slow(op: &str) -> String {
    format!("rule={op}:delay={}s:range=0+4096", SLOW.as_secs())
}

fn read() -> Io {
    Io::read(Buf::new(4096), 0)
}

/// Asserts that an I/O with a buffer has ended early.
fn assert_early(done: &Completion) {
    assert_eq!(done.result, Err(BlockStatus::Timeout));
    assert!(done.buf.is_none(), "the driver may still write to it");
}

/// Waits until the request that was issued at `begin` has completed.
fn await_completion(begin: Instant, disk: &Disk) {
    // The delay begins when the driver has reaped the completion.
    thread::sleep((begin + SLOW + LIMIT + GRACE).saturating_duration_since(Instant::now()));
    disk.poll();
}

#[test]
fn owned_io_of_a_queue_ends_once_after_the_grace_period() {
    on_each(&slow("read"), end_early);
}

/// Lets a read of a queue end before its request, and revives the disk when that has completed.
pub(crate) fn end_early(disk: &Disk) {
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    let begin = Instant::now();
    submit(&mut queue, read().user_data(7));
    queue.reap(1, 1, &mut done);
    assert_took(begin, LIMIT + GRACE, disk);
    assert_early(&done[0]);
    assert_eq!((done[0].user_data, queue.len()), (7, 0));
    assert!(disk.is_failed());
    assert_eq!((disk.stats().queue.timeouts, disk.stats().queue.early_ends), (1, 1));
    submit(&mut queue, Io::read(Buf::new(4096), 8192));
    queue.reap(1, 1, &mut done);
    assert_eq!(done[1].result, Err(BlockStatus::Offline));
    assert!(done[1].buf.is_some(), "the driver never got this request");
    await_completion(begin, disk);
    assert_eq!(queue.reap(0, 9, &mut done), 0, "its result is dropped");
    disk.revive();
    submit(&mut queue, Io::read(Buf::new(4096), 8192));
    queue.reap(1, 1, &mut done);
    assert_eq!((done.len(), done[2].result), (3, Ok(4096)));
}

#[test]
fn owned_io_of_event_loops_and_futures_ends_after_the_grace_period() {
    on_each(&slow("read"), |disk| {
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        queue.poll_fd().expect("a descriptor");
        let begin = Instant::now();
        submit(&mut queue, read());
        while done.is_empty() {
            await_readable(queue.poll_fd().expect("a descriptor"), &disk.info().spec);
            queue.reap(0, 1, &mut done);
        }
        assert_took(begin, LIMIT + GRACE, disk);
        assert_early(&done[0]);
    });
    on_each(&slow("read"), |disk| {
        let begin = Instant::now();
        let done = run(disk.start(read()), thread::park).expect("no refusal");
        assert_took(begin, LIMIT + GRACE, disk);
        assert_early(&done);
    });
}

#[test]
fn merged_and_split_io_ends_after_the_grace_period() {
    let keys = format!("{}&max_sectors_kb=8", slow("read"));
    on_each(&keys, |disk| {
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        let begin = Instant::now();
        let plug = forebay::plug();
        submit(&mut queue, read());
        submit(&mut queue, Io::read(Buf::new(4096), 4096));
        drop(plug);
        // Its second part is fast, and completes.
        submit(&mut queue, Io::read(Buf::new(16384), 0));
        queue.reap(3, 3, &mut done);
        assert_took(begin, LIMIT + GRACE, disk);
        done.iter().for_each(assert_early);
        assert_eq!(disk.stats().queue.early_ends, 3);
    });
}

#[test]
fn completion_of_a_given_up_request_frees_its_tag() {
    on_each(&format!("{}&queue_depth=1", slow("read")), |disk| {
        let begin = Instant::now();
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        submit(&mut queue, read());
        queue.reap(1, 1, &mut done);
        assert_early(&done[0]);
        disk.revive();
        // This read waits for the only tag (H7).
        let waits_since = Instant::now();
        submit(&mut queue, Io::read(Buf::new(4096), 8192));
        queue.reap(1, 1, &mut done);
        assert_took(waits_since, LIMIT + GRACE, disk);
        assert_eq!(done[1].result, Err(BlockStatus::Offline));
        assert!(disk.is_failed());
        await_completion(begin, disk);
        disk.revive();
        submit(&mut queue, Io::read(Buf::new(4096), 8192));
        queue.reap(1, 1, &mut done);
        assert_eq!(done[2].result, Ok(4096), "{}", disk.info().spec);
    });
}

#[test]
fn range_of_a_given_up_write_is_blocked_until_it_completes() {
    on_each(&slow("write"), |disk| {
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        let begin = Instant::now();
        submit(&mut queue, Io::write(Buf::from(&[1; 4096][..]), 0));
        queue.reap(1, 1, &mut done);
        assert_early(&done[0]);
        assert_eq!(disk.lost_writes().is_some(), done[0].durable_point > 0);
        disk.revive();
        let error = disk.read_at(&mut [0; 4096], 0).expect_err("it may change at any time");
        assert_eq!(error, IoError::Ended(BlockStatus::Offline));
        assert!(!disk.is_failed());
        disk.write_at(&[2; 4096], 4096).expect("another range");
        if done[0].durable_point > 0 {
            let error = disk.flush().expect_err("the write may be lost");
            assert_eq!(error, IoError::Ended(BlockStatus::Io));
            assert!(disk.acknowledge_loss().is_some());
            disk.flush().expect("the loss is acknowledged");
        }
        await_completion(begin, disk);
        // The context that has the request reaps its completion.
        queue.reap(0, 9, &mut done);
        let mut page = [0; 4096];
        disk.read_at(&mut page, 0).expect("the write has completed");
        assert!(page == [1; 4096] || !moves_data(disk));
    });
}

#[test]
fn range_of_a_given_up_write_is_blocked_for_other_disks_and_after_close() {
    let HungDisk { spec, scratch } = file_disk(&slow("write"), false);
    let begin = Instant::now();
    let disk = open(&spec);
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    submit(&mut queue, Io::write(Buf::from(&[1; 4096][..]), 0));
    queue.reap(1, 1, &mut done);
    assert_early(&done[0]);
    let other = open(&scratch.spec(""));
    let check = |other: &Disk| {
        let error = other.write_at(&[2; 4096], 0).expect_err("the first write may still happen");
        assert_eq!(error, IoError::Ended(BlockStatus::Offline));
        other.write_at(&[2; 4096], 4096).expect("another range");
    };
    check(&other);
    drop((queue, disk, other));
    assert!(begin.elapsed() < SLOW / 2);
    // The file stays claimed, with its range.
    check(&open(&scratch.spec("")));
}

#[test]
fn hanging_flush_ends_after_the_grace_period() {
    on_each(&format!("rule=flush:delay={}s", SLOW.as_secs()), |disk| {
        let spec = &disk.info().spec;
        disk.write_at(&[1; 4096], 0).expect("no fault");
        let begin = Instant::now();
        let error = disk.flush().expect_err("it hangs");
        assert_took(begin, LIMIT + GRACE, disk);
        assert_eq!(error, IoError::Ended(BlockStatus::Timeout), "{spec}");
        assert!(disk.lost_writes().is_some(), "{spec}");
        disk.revive();
        disk.acknowledge_loss();
        disk.write_at(&[1; 4096], 0).expect("no fault");
        disk.flush().expect_err("the other flush is still at the device");
        await_completion(begin, disk);
        disk.acknowledge_loss();
        // The rule delays it for as long as the first.
        let error = disk.flush().expect_err("it hangs");
        assert_eq!(error, IoError::Ended(BlockStatus::Timeout), "{spec}");
    });
}

/// Calls `act` in a thread in which system calls with this number wait, as in threads that it
/// starts. Returns the result, which must come before the calls end.
fn under_hanging_call<T: Send>(call: i64, spec: &str, act: impl FnOnce() -> T + Send) -> T {
    let (to_test, from_thread) = channel();
    let (hold, held) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            hold.send(held_calls::hold(call).expect("a filter")).expect("the test waits");
            to_test.send(act()).expect("the test waits");
        });
        let held = held.recv().expect("a filter");
        let ended = from_thread.recv_timeout(SLOW);
        // From here on the system call fails.
        drop(held);
        ended.unwrap_or_else(|_| panic!("{spec}: it does not end"))
    })
}

#[test]
fn blocking_flush_ends_although_its_system_call_hangs() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync"] {
        let keys = format!("nr_hw_queues=1&{}", limits());
        let disk = open(&format!("{driver}:{}", scratch.spec(&keys)));
        disk.write_at(&[1; 4096], 0).expect("no fault");
        let result = under_hanging_call(libc::SYS_fdatasync, driver, || disk.flush());
        let late = Err(IoError::Ended(BlockStatus::Timeout));
        // A kernel that syncs for a ring or an AIO context is not held.
        assert!(result == late || result.is_ok() && driver != "psync", "{driver}: {result:?}");
    }
}

#[test]
fn owned_io_of_a_queue_ends_although_its_system_call_hangs() {
    let scratch = Scratch::new(1 << 20);
    for nr in [1, 2] {
        let spec = format!("psync:{}", scratch.spec(&format!("nr_hw_queues={nr}&{}", limits())));
        let disk = open(&spec);
        let done = under_hanging_call(libc::SYS_pread64, &spec, || {
            let (mut queue, mut done) = (disk.queue(), Vec::new());
            submit(&mut queue, read());
            queue.reap(1, 1, &mut done);
            done.remove(0)
        });
        assert_early(&done);
    }
}

#[test]
fn tags_of_a_disk_that_is_closed_with_late_requests_return_to_the_set() {
    let file = file_disk(&format!("{}&tag_set=late&queue_depth=2", slow("read")), false);
    let dead = open(&file.spec);
    let other = open("ram:1M?tag_set=late&queue_depth=2");
    let (mut queue, mut done) = (dead.queue(), Vec::new());
    for _ in 0..2 {
        submit(&mut queue, read());
    }
    thread::scope(|scope| {
        // It waits for one of the two tags, of a disk that lives.
        let waiter = scope.spawn(|| other.read_at(&mut [0; 4096], 0));
        queue.reap(2, 2, &mut done);
        done.iter().for_each(assert_early);
        drop((queue, dead));
        assert_eq!(waiter.join().expect("no panic"), Ok(4096));
    });
}

#[test]
fn disk_closes_while_buffers_are_in_quarantine() {
    for HungDisk { spec, scratch: _scratch } in disks(&slow("read")) {
        let (nr_leaked, name) = (leaked_bufs(), spec.clone());
        // The threads end before the disk is closed, and drain their contexts.
        thread::spawn(move || {
            let disk = open(&spec);
            let begin = Instant::now();
            let (mut queue, mut done) = (disk.queue(), Vec::new());
            submit(&mut queue, read());
            queue.reap(1, 1, &mut done);
            assert_early(&done[0]);
            drop((queue, disk));
            assert!(begin.elapsed() < SLOW / 2, "{spec}");
        })
        .join()
        .expect("no panic");
        assert!(leaked_bufs() > nr_leaked, "{name}");
    }
}

#[test]
fn disk_closes_while_io_of_dropped_futures_and_queues_hangs() {
    on_each(&slow("write"), |disk| {
        // A disk of its own: `on_each` keeps the other one open.
        let disk = open(&disk.info().spec);
        let begin = Instant::now();
        let write = || Io::write(Buf::from(&[1; 4096][..]), 0);
        let mut future = Box::pin(disk.start(write()));
        let waker = std::task::Waker::noop();
        assert!(future.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        drop(future);
        let mut queue = disk.queue();
        submit(&mut queue, write());
        drop(queue);
        assert_took(begin, LIMIT + GRACE, &disk);
        drop(disk);
        assert!(begin.elapsed() < SLOW / 2);
    });
}

#[test]
fn nbd_server_that_never_answers_is_given_up() {
    let server = NbdServer::scripted(export(1 << 20), &[], |reader, _| {
        std::io::copy(reader, &mut std::io::sink()).map(drop)
    });
    for keys in ["nr_hw_queues=1", "nr_hw_queues=2"] {
        let disk = open(&format!("{}&{keys}&{}", server.uri(), limits()));
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        let begin = Instant::now();
        submit(&mut queue, read());
        submit(&mut queue, Io::write(Buf::from(&[1; 4096][..]), 8192));
        submit(&mut queue, Io::discard(0, 4096));
        queue.reap(3, 3, &mut done);
        assert_took(begin, LIMIT + GRACE, &disk);
        done.iter().for_each(assert_early);
        assert_eq!((disk.stats().queue.timeouts, disk.stats().queue.early_ends), (3, 3));
        assert_eq!(disk.failure().expect("a reason"), "a request has not completed within 300 ms");
        let error = disk.flush().expect_err("the device is gone");
        assert!(matches!(error, IoError::Ended(BlockStatus::Offline | BlockStatus::Io)));
        drop((queue, disk));
        assert!(begin.elapsed() < SLOW / 2, "the disk closes");
    }
}

#[test]
fn borrowed_memory_is_kept_until_the_driver_is_done() {
    on_each(&slow("read"), |disk| {
        thread::scope(|scope| {
            let begin = Instant::now();
            let lent = scope.spawn(|| disk.read_at(&mut [0; 4096], 0));
            await_issues(disk, 1);
            let (mut queue, mut done) = (disk.queue(), Vec::new());
            submit(&mut queue, read());
            queue.reap(1, 1, &mut done);
            assert_took(begin, LIMIT + GRACE, disk);
            assert_early(&done[0]);
            assert!(!lent.is_finished());
            assert_eq!(lent.join().expect("no panic").expect("it succeeds late"), 4096);
            assert!(begin.elapsed() >= SLOW);
        });
    });
}
