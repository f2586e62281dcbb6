//! Event loops with I/O that a gate or a busy driver holds back. The descriptor of each queue wakes
//! its loop once the I/O can continue, whichever turn met the gate or the driver.

use crate::common::{Scratch, open, submit};
use crate::event_loop::{await_readable, is_readable};
use crate::holds::freeze;
use crate::seccomp;
use forebay::{BioQueue, Buf, Completion, Disk, Hold, Io, PollMode};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

const MODES: [PollMode; 2] = [PollMode::AnyTime, PollMode::AfterReap];

type MakeHold = fn(&Disk) -> Hold;
const HOLDS: [(&str, MakeHold); 3] =
    [("quiesce", Disk::quiesce), ("stop", Disk::stop), ("freeze", freeze)];

/// Returns specs with an owned and with a shared context, for each driver with a descriptor, for
/// two that complete by the clock, and for one without a descriptor.
fn specs(scratch: &Scratch) -> Vec<String> {
    let files = ["file", "aio", "psync"].into_iter().flat_map(|driver| {
        ["direct=on&nr_hw_queues=1", "direct=on&nr_hw_queues=2", "nr_hw_queues=2"]
            .map(|keys| format!("{driver}:{}", scratch.spec(keys)))
    });
    let others = ["ram:1M?", "ram:1M?req_ns=50000&", "model:nvme?size=1M&service=off&"];
    let others = others.into_iter().flat_map(|driver| {
        ["nr_hw_queues=1", "nr_hw_queues=2"].map(|keys| format!("{driver}{keys}"))
    });
    files.chain(others).collect()
}

/// Reaps until the descriptor is no longer readable.
fn settle(queue: &mut BioQueue, mode: PollMode, done: &mut Vec<Completion>, whose: &str) {
    let handle = queue.poll_handle(mode).expect("a descriptor");
    let mut nr_looks = 0;
    while is_readable(handle.as_fd()) {
        reap_reported(queue, mode, done);
        nr_looks += 1;
        assert!(nr_looks < 100, "{whose}: the descriptor stays readable");
    }
}

/// Empties the queue, and waits at the descriptor only.
fn drain(queue: &mut BioQueue, mode: PollMode, done: &mut Vec<Completion>, whose: &str) {
    let handle = queue.poll_handle(mode).expect("a descriptor");
    while !queue.is_empty() {
        if mode == PollMode::AfterReap && queue.wants_reap() {
            queue.reap(0, usize::MAX, done);
            continue;
        }
        await_readable(handle.as_fd(), whose);
        reap_reported(queue, mode, done);
    }
}

/// Reaps after a wait has reported the descriptor.
fn reap_reported(queue: &mut BioQueue, mode: PollMode, done: &mut Vec<Completion>) {
    if mode == PollMode::AfterReap {
        queue.ack_poll();
    }
    queue.reap(0, usize::MAX, done);
}

fn submit_four(queue: &mut BioQueue) {
    for n in 0..4 {
        submit(queue, Io::read(Buf::new(4096), n * 8192));
    }
}

#[test]
fn a_plug_that_ends_behind_a_gate_wakes_the_loop_when_the_gate_opens() {
    let scratch = Scratch::new(1 << 20);
    for spec in specs(&scratch) {
        for (mode, (name, hold)) in MODES.iter().flat_map(|m| HOLDS.map(|hold| (*m, hold))) {
            let whose = format!("{spec}, {name}");
            let disk = open(&spec);
            let (mut queue, mut done) = (disk.queue(), Vec::new());
            for _ in 0..3 {
                done.clear();
                settle(&mut queue, mode, &mut done, &whose);
                let held = hold(&disk);
                let plug = forebay::plug();
                submit_four(&mut queue);
                drop(plug);
                drop(held);
                drain(&mut queue, mode, &mut done, &whose);
                assert_eq!(done.len(), 4, "{whose}");
            }
        }
    }
}

/// A loop that reaps nothing while the gate is closed has acknowledged its descriptor by then.
#[test]
fn a_reap_behind_a_gate_wakes_the_loop_when_another_thread_opens_the_gate() {
    let scratch = Scratch::new(1 << 20);
    for spec in specs(&scratch) {
        for (name, hold) in HOLDS {
            let whose = format!("{spec}, {name}");
            let disk = open(&spec);
            let (mut queue, mut done) = (disk.queue(), Vec::new());
            settle(&mut queue, PollMode::AnyTime, &mut done, &whose);
            let held = hold(&disk);
            submit_four(&mut queue);
            queue.reap(0, 8, &mut done);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(5));
                    drop(held);
                });
                drain(&mut queue, PollMode::AnyTime, &mut done, &whose);
            });
            assert_eq!(done.len(), 4, "{whose}");
        }
    }
}

/// A loop that waits for a gate does not spin.
#[test]
fn a_descriptor_is_silent_while_a_gate_is_closed() {
    let scratch = Scratch::new(1 << 20);
    let specs = ["file", "aio", "psync"].into_iter().flat_map(|driver| {
        [1, 2].map(|nr| format!("{driver}:{}", scratch.spec(&format!("nr_hw_queues={nr}"))))
    });
    for spec in specs {
        for (name, hold) in HOLDS {
            let whose = format!("{spec}, {name}");
            let disk = open(&spec);
            let (mut queue, mut done) = (disk.queue(), Vec::new());
            settle(&mut queue, PollMode::AnyTime, &mut done, &whose);
            let held = hold(&disk);
            submit_four(&mut queue);
            settle(&mut queue, PollMode::AnyTime, &mut done, &whose);
            // Longer than the retry delay of a busy driver.
            std::thread::sleep(Duration::from_millis(10));
            let is_silent = !is_readable(queue.poll_fd().expect("a descriptor"));
            assert!(is_silent && done.is_empty(), "{whose}");
            drop(held);
            drain(&mut queue, PollMode::AnyTime, &mut done, &whose);
        }
    }
}

#[test]
fn a_plug_or_a_blocking_call_at_a_busy_driver_wakes_the_loop() {
    let scratch = Scratch::new(1 << 20);
    for inner in specs(&scratch) {
        let spec = format!("fault:{inner}&rule=read:busy:rate=0.8");
        for mode in MODES {
            let disk = open(&spec);
            let (mut queue, mut done) = (disk.queue(), Vec::new());
            for round in 0..6 {
                done.clear();
                settle(&mut queue, mode, &mut done, &spec);
                let plug = forebay::plug();
                submit_four(&mut queue);
                if round % 2 == 0 {
                    drop(plug);
                } else {
                    // This read also issues the plug's reads, and returns when its own read has
                    // ended.
                    disk.read_at(&mut Buf::new(4096), 1 << 19).expect("a read");
                    drop(plug);
                }
                drain(&mut queue, mode, &mut done, &spec);
                assert_eq!(done.len(), 4, "{spec}");
            }
        }
    }
}

/// Two queues of one thread share its context, so the turn of one may leave work for the other.
#[test]
fn a_turn_of_one_queue_wakes_the_loop_of_another() {
    let scratch = Scratch::new(1 << 20);
    for nr in [1, 2] {
        let keys = format!("nr_hw_queues={nr}&queue_depth=2&rule=read:busy:rate=0.8");
        let disk = open(&format!("fault:file:{}", scratch.spec(&keys)));
        let mut queues = [disk.queue(), disk.queue()];
        let mut done = Vec::new();
        for _ in 0..20 {
            done.clear();
            for queue in &mut queues {
                settle(queue, PollMode::AnyTime, &mut done, "one of two");
                submit_four(queue);
            }
            let [first, second] = &mut queues;
            drain(second, PollMode::AnyTime, &mut done, "the second");
            drain(first, PollMode::AnyTime, &mut done, "the first");
            assert_eq!(done.len(), 8);
        }
    }
}

/// A reap that finds enough completions without a turn acknowledges the descriptor, but does not
/// detect the remaining work.
#[test]
fn a_reap_without_a_turn_loses_no_wake_up() {
    let scratch = Scratch::new(1 << 20);
    // From now on the file's pages are in the page cache.
    std::fs::read(&scratch.path).expect("the file");
    for spec in [1, 2].map(|nr| scratch.spec(&format!("nr_hw_queues={nr}"))) {
        let disk = open(&spec);
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        settle(&mut queue, PollMode::AnyTime, &mut done, &spec);
        for round in 1..=20 {
            // These reads complete immediately.
            submit_four(&mut queue);
            let held = disk.quiesce();
            let plug = forebay::plug();
            submit_four(&mut queue);
            drop(plug);
            assert_eq!(queue.reap(0, 4, &mut done), 4);
            drop(held);
            drain(&mut queue, PollMode::AnyTime, &mut done, &spec);
            assert_eq!(done.len(), 8 * round, "{spec}");
        }
    }
}

/// Completions that the closure did not receive stay in the queue, and the descriptor stays
/// readable.
#[test]
fn a_closure_that_panics_loses_no_wake_up() {
    let disk = open("ram:1M");
    for mode in MODES {
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        settle(&mut queue, mode, &mut done, "ram");
        submit_four(&mut queue);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            queue.reap_with(4, 4, |_| panic!("the closure panics at the first"));
        }));
        assert!(panicked.is_err() && queue.wants_reap());
        let handle = queue.poll_handle(mode).expect("a descriptor");
        assert!(is_readable(handle.as_fd()));
        queue.reap(0, 8, &mut done);
        assert_eq!((done.len(), queue.len()), (3, 0));
    }
}

/// Makes the calling thread unable to set a timer.
fn forbid_timers() {
    seccomp::refuse([(libc::SYS_timerfd_settime, libc::EPERM)]).expect("a filter");
}

/// Runs `body` in its own thread, in which it may install a filter.
fn in_a_thread(body: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(body).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn poll_fd_fails_where_a_filter_forbids_timers() {
    let scratch = Scratch::new(1 << 20);
    for spec in specs(&scratch) {
        let disk = open(&spec);
        in_a_thread(|| {
            forbid_timers();
            let mut queue = disk.queue();
            let error = queue.poll_fd().expect_err("there is no alarm").to_string();
            assert!(error.contains("timerfd_settime"), "{spec}: {error}");
            assert!(disk.poll_fd().is_err(), "{spec}");
            // The queue works without the descriptor.
            submit_four(&mut queue);
            let mut done = Vec::new();
            assert_eq!(queue.reap(4, 4, &mut done), 4, "{spec}");
        });
    }
}

/// The timer may be armed when the filter is installed. It then expires, and the thread can neither
/// stop nor set it.
#[test]
fn a_loop_is_woken_after_a_filter_has_forbidden_timers() {
    let scratch = Scratch::new(1 << 20);
    for inner in specs(&scratch) {
        let spec = &format!("fault:{inner}&rule=read:busy:rate=0.8");
        for mode in MODES {
            in_a_thread(|| {
                let disk = open(spec);
                let (mut queue, mut done) = (disk.queue(), Vec::new());
                for round in 0..6 {
                    done.clear();
                    settle(&mut queue, mode, &mut done, spec);
                    let held = (round % 3 == 2).then(|| disk.quiesce());
                    let plug = forebay::plug();
                    submit_four(&mut queue);
                    drop(plug);
                    if round == 0 {
                        forbid_timers();
                    }
                    drop(held);
                    drain(&mut queue, mode, &mut done, spec);
                    assert_eq!(done.len(), 4, "{spec}");
                }
                // Longer than the retry delay of a busy driver.
                thread::sleep(Duration::from_millis(10));
                settle(&mut queue, mode, &mut done, spec);
            });
        }
    }
}
