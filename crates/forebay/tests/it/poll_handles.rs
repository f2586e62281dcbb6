//! Owned descriptors for event loops that drive futures.

use crate::common::{Scratch, open};
use crate::event_loop::{EventFd, await_any, is_readable, run};
use crate::futures::{block_on, specs, use_disk, without_threads};
use crate::nbd_server::{NbdServer, export};
use crate::seccomp;
use forebay::{Buf, Disk, DiskPoll, Io, PollMode};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

/// Specs of all drivers, with and without a thread of the disk.
fn all_specs(scratch: &Scratch, server: &NbdServer) -> Vec<String> {
    let specs = specs(scratch, server);
    let with_service = |spec: &String| match spec.strip_suffix("service=off") {
        Some(model) => format!("{model}service=on"),
        None if spec.contains('?') => format!("{spec}&service=on"),
        None => format!("{spec}?service=on"),
    };
    let served: Vec<_> = specs.iter().map(with_service).collect();
    specs.into_iter().chain(served).collect()
}

/// Runs a task, and polls the disk whenever the descriptor is readable.
fn drive<F: Future>(task: F, handle: &DiskPoll, whose: &str) -> F::Output {
    // A thread may end the I/O of the task, and then calls the task's waker.
    let woken = Arc::new(EventFd::new());
    let waker = Waker::from(Arc::clone(&woken));
    let mut task = pin!(task);
    loop {
        if let std::task::Poll::Ready(output) = task.as_mut().poll(&mut Context::from_waker(&waker))
        {
            return output;
        }
        let ready = [handle.as_fd(), woken.as_fd()];
        await_any(&ready, whose);
        woken.clear();
        assert!(handle.poll(), "the disk is open");
    }
}

#[test]
fn a_handle_drives_futures_on_every_driver() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in all_specs(&scratch, &server) {
        let disk = open(&spec);
        let handle = disk.poll_handle().unwrap_or_else(|error| panic!("{spec}: {error}"));
        without_threads(|| {
            drive(use_disk(&disk, 0, 9, !spec.starts_with("null")), &handle, &spec);
        });
    }
}

#[test]
fn the_descriptor_is_readable_only_if_a_poll_is_due() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in specs(&scratch, &server) {
        let disk = open(&spec);
        let handle = disk.poll_handle().expect("a descriptor");
        assert!(is_readable(handle.as_fd()), "{spec}: at first");
        drive(use_disk(&disk, 0, 3, !spec.starts_with("null")), &handle, &spec);
        // A timer that was set for a request may expire once in vain.
        thread::sleep(Duration::from_millis(2));
        assert!(handle.poll() && handle.poll());
        assert!(!is_readable(handle.as_fd()), "{spec}: nothing is due");
    }
}

#[test]
fn a_thread_takes_over_when_the_last_handle_is_dropped() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in all_specs(&scratch, &server) {
        let keeps_data = !spec.starts_with("null");
        let disk = open(&spec);
        for round in 0..4 {
            let handles = [disk.poll_handle(), disk.poll_handle()].map(|made| made.expect("one"));
            let mut task = Box::pin(use_disk(&disk, 0, 4, keeps_data));
            let is_over = task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            let [first, last] = handles;
            drop(first);
            if round % 2 == 0 {
                drop(last);
            } else {
                thread::spawn(|| drop(last)).join().expect("no panic");
            }
            if !is_over {
                block_on(task, &spec);
            }
            block_on(use_disk(&disk, 1 << 16, 4, keeps_data), &spec);
        }
    }
}

/// The handles come and go while tasks run, and sleep on the wakers alone.
/// No thread of the library commits later.
#[test]
fn a_plugged_poll_commits_although_commits_wait_for_the_end_of_a_loop() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio"] {
        let disk = open(&format!("{driver}:{}", scratch.spec("direct=on&kick=loop-end")));
        let handle = disk.poll_handle().expect("a handle");
        let read = disk.start(Io::read(Buf::new(4096), 0));
        let read = drive(forebay::plugged(read), &handle, driver).expect("a good I/O");
        assert_eq!(read.result, Ok(4096));
    }
}

/// V5: the service thread follows a thread that waits for its own read, so it cannot step down.
#[test]
fn a_handle_that_is_dropped_beside_a_leader_leaves_the_service_thread() {
    let disk = open("ram:1M?nr_hw_queues=1&req_ns=300000000");
    let leader = disk.clone();
    let read = thread::spawn(move || leader.read_at(&mut Buf::new(4096), 0).expect("a read"));
    while disk.stats().queue.issued == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let mut future = Box::pin(disk.start(Io::read(Buf::new(4096), 4096)));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(disk.poll_handle().expect("a handle"));
    let last = disk.start(Io::read(Buf::new(4096), 8192));
    assert_eq!(block_on(last, "the last").expect("a thread serves the disk").result, Ok(4096));
    assert_eq!(block_on(future, "the first").expect("a good I/O").result, Ok(4096));
    read.join().expect("no panic");
}

#[test]
fn handles_that_come_and_go_lose_no_wake_up() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in specs(&scratch, &server) {
        let disk = open(&spec);
        thread::scope(|scope| {
            let tasks = (0..2).map(|n| {
                let (disk, spec) = (&disk, &spec);
                let keeps_data = !spec.starts_with("null");
                scope.spawn(move || block_on(use_disk(disk, n << 16, 100, keeps_data), spec))
            });
            let tasks: Vec<_> = tasks.collect();
            while tasks.iter().any(|task| !task.is_finished()) {
                let handle = disk.poll_handle().expect("a descriptor");
                handle.poll();
                drop(handle);
                thread::yield_now();
            }
            tasks.into_iter().for_each(|task| task.join().expect("no panic"));
        });
    }
}

#[test]
fn a_handle_outlives_the_disk_and_reports_its_end() {
    let scratch = Scratch::new(1 << 20);
    for spec in [scratch.spec("direct=on"), "null:1M".into(), "ram:1M?req_ns=20000".into()] {
        let disk = open(&spec);
        let handle = disk.poll_handle().expect("a descriptor");
        drive(use_disk(&disk, 0, 3, spec != "null:1M"), &handle, &spec);
        drop(disk);
        assert!(is_readable(handle.as_fd()) && !handle.poll(), "{spec}");
        assert!(is_readable(handle.as_fd()), "{spec}: for other loops too");
    }
}

/// A future that waits keeps the disk open, so a loop that has only a handle ends it.
#[test]
fn a_loop_needs_no_disk_while_a_future_waits() {
    let scratch = Scratch::new(1 << 20);
    for spec in [scratch.spec("direct=on"), "ram:1M?req_ns=1000000".into()] {
        let disk = open(&spec);
        let handle = disk.poll_handle().expect("a descriptor");
        let read = disk.start_all([Io::read(Buf::new(4096), 0)]).pop().expect("one");
        drop(disk);
        let read = drive(read, &handle, &spec);
        assert_eq!(read.expect("a good I/O").result, Ok(4096));
        assert!(!handle.poll(), "{spec}: the future has closed the disk");
    }
}

/// A borrowed descriptor does not end: from then on, an event loop must drive the disk.
#[test]
fn the_end_of_a_handle_starts_no_thread_beside_a_borrowed_descriptor() {
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("direct=on"));
    disk.poll_fd().expect("a descriptor");
    drop(disk.poll_handle().expect("a descriptor"));
    without_threads(|| {
        run(use_disk(&disk, 0, 3, true), || {
            await_any(&[disk.poll_fd().expect("a descriptor")], "file");
            disk.poll();
        });
    });
}

#[test]
fn a_future_starts_the_thread_that_the_end_of_a_handle_could_not() {
    let scratch = Scratch::new(1 << 20);
    let disk: Disk = open(&scratch.spec("direct=on"));
    let handle = disk.poll_handle().expect("a descriptor");
    without_threads(|| drop(handle));
    block_on(use_disk(&disk, 0, 3, true), "file");
}

#[test]
fn a_handle_is_refused_where_a_filter_forbids_timers() {
    let disk = open("null:1M");
    thread::scope(|scope| {
        let refused = scope.spawn(|| {
            seccomp::refuse([(libc::SYS_timerfd_settime, libc::EPERM)]).expect("a filter");
            disk.poll_handle().expect_err("there is no alarm").to_string()
        });
        let error = refused.join().expect("no panic");
        assert!(error.contains("timerfd_settime"), "{error}");
    });
    block_on(use_disk(&disk, 0, 3, false), "null");
}

#[test]
fn the_mode_of_a_queue_does_not_change_while_a_handle_exists() {
    let disk = open("ram:1M?req_ns=20000");
    let mut queue = disk.queue();
    let handles = [(), ()].map(|()| queue.poll_handle(PollMode::AfterReap).expect("a handle"));
    let error = queue.poll_handle(PollMode::AnyTime).expect_err("its loop reaps by other rules");
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("PollMode::AfterReap"), "{error}");
    assert_eq!(queue.poll_fd().map(|_| ()).expect_err("the same").kind(), error.kind());
    let [first, last] = handles;
    drop(first);
    assert!(queue.poll_handle(PollMode::AnyTime).is_err());
    // The refused calls have left the rules as they were.
    assert!(queue.poll_handle(PollMode::AfterReap).is_ok());
    drop(last);
    drop(queue.poll_handle(PollMode::AnyTime).expect("no other handle is left"));
    queue.poll_fd().expect("a descriptor");
}
