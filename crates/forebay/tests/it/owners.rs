//! Owners: limits and weights by every way of submission, and changes under load.
//!
//! A time is only compared with a lower bound: a limit may let I/O go late on a busy machine, and
//! never early.

use crate::common::{Numbers, open, submit};
use crate::event_loop::await_readable;
use crate::futures::block_on;
use forebay::{BlockStatus, Buf, CostModel, Disk, Io, Limits, OwnerError, Rate, WeightBy};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns a limit of this many I/Os per second, without a burst.
fn iops(per_s: u64) -> Limits {
    let mut limits = Limits::default();
    limits.both.iops = Rate { per_s, burst: Some(0) };
    limits
}

/// Returns a latency goal in microseconds.
fn goal(latency_target_us: u64) -> Limits {
    let mut limits = Limits::default();
    limits.latency_target_us = latency_target_us;
    limits
}

/// Checks that 6 I/Os took as long as 5 intervals of 10 ms.
#[track_caller]
fn check_paced(began: Instant) {
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(50), "{took:?}");
}

#[test]
fn limit_paces_blocking_calls() {
    let disk = open("ram:1M");
    let owner = disk.owner("a").expect("a new owner");
    owner.set_limits(&iops(100)).expect("good limits");
    let (began, mut buf) = (Instant::now(), [0; 4096]);
    for nth in 0..3 {
        assert_eq!(owner.write_at(&buf, nth * 4096), Ok(4096));
        assert_eq!(owner.read_at(&mut buf, nth * 4096), Ok(4096));
    }
    check_paced(began);
    let stats = owner.stats();
    assert_eq!((stats.ios, stats.bytes), (6, 6 * 4096));
    assert!(stats.limit_waits >= 1, "{stats:?}");
    assert_eq!(disk.stats().queue.limit_waits, stats.limit_waits);
}

#[test]
fn all_blocking_calls_count() {
    let disk = open("ram:1M");
    let owner = disk.owner("a").expect("a new owner");
    let (header, body) = ([7; 512], [8; 3584]);
    let parts = [IoSlice::new(&header), IoSlice::new(&body)];
    assert_eq!(owner.write_vectored_at(&parts, 8192), Ok(4096));
    let (mut first, mut rest) = ([0; 1024], [0; 3072]);
    let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut rest)];
    assert_eq!(owner.read_vectored_at(&mut parts, 8192), Ok(4096));
    assert_eq!((&first[..512], &first[512..], rest), (&header[..], &[8; 512][..], [8; 3072]));
    assert_eq!(owner.write_zeroes(8192, 4096), Ok(()));
    assert_eq!(owner.read_at(&mut first, 8192), Ok(1024));
    assert_eq!(first, [0; 1024]);
    assert_eq!(owner.discard(0, 4096), Ok(()));
    let stats = owner.stats();
    assert_eq!((stats.ios, stats.bytes), (5, 4 * 4096 + 1024));
    assert!(owner.read_vectored_at(&mut [IoSliceMut::new(&mut rest)], 1 << 20).is_err());
}

#[test]
fn limit_paces_a_queue_on_a_shared_and_on_an_owned_context() {
    for spec in ["ram:1M", "ram:1M?nr_hw_queues=2", "ram:1M?iostats=off"] {
        let disk = open(spec);
        let owner = disk.owner("a").expect("a new owner");
        owner.set_limits(&iops(100)).expect("good limits");
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        let began = Instant::now();
        for nth in 0..6 {
            queue.submit_for(&owner, Io::read(Buf::new(4096), 8192 * nth)).expect("room");
        }
        // I/O without an owner passes.
        submit(&mut queue, Io::read(Buf::new(4096), 0).user_data(7));
        queue.reap(2, 7, &mut done);
        assert!(done.iter().any(|done| done.user_data == 7), "{spec}");
        queue.reap(7 - done.len(), 7, &mut done);
        check_paced(began);
        assert!(done.iter().all(|done| done.result == Ok(4096)), "{spec}");
    }
}

#[test]
fn limit_paces_futures() {
    let disk = open("ram:1M");
    let owner = disk.owner("a").expect("a new owner");
    owner.set_limits(&iops(100)).expect("good limits");
    let began = Instant::now();
    let reads = (0..6).map(|nth| owner.start(Io::read(Buf::new(4096), 8192 * nth)));
    for read in reads.collect::<Vec<_>>() {
        assert_eq!(block_on(read, "limits").expect("good I/O").result, Ok(4096));
    }
    check_paced(began);
    // The disk closes although I/O of a dropped future waits for a limit.
    owner.set_limits(&iops(1)).expect("good limits");
    for nth in 0..2 {
        let mut future = Box::pin(owner.start(Io::read(Buf::new(4096), 8192 * nth)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        _ = future.as_mut().poll(&mut context);
    }
}

#[test]
fn nowait_io_is_refused_by_a_limit() {
    let disk = open("ram:1M");
    let owner = disk.owner("a").expect("a new owner");
    owner.set_limits(&iops(1)).expect("good limits");
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    for nth in 0..2 {
        queue.submit_for(&owner, Io::read(Buf::new(4096), nth * 8192).nowait()).expect("room");
    }
    queue.reap(2, 2, &mut done);
    let results: Vec<_> = done.iter().map(|done| done.result).collect();
    assert_eq!(results, [Ok(4096), Err(BlockStatus::Again)]);
}

#[test]
fn freeze_does_not_wait_for_io_that_a_limit_holds_back() {
    let disk = open("ram:1M");
    let owner = disk.owner("a").expect("a new owner");
    owner.set_limits(&iops(1)).expect("good limits");
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    for nth in 0..3 {
        queue.submit_for(&owner, Io::read(Buf::new(4096), nth * 8192)).expect("room");
    }
    let frozen = disk.freeze_timeout(Duration::from_secs(60)).expect("nothing is admitted");
    assert_eq!(queue.reap(0, 3, &mut done), 1);
    drop(frozen);
    // A higher limit lets the others go, without a wait for the lower one.
    owner.set_limits(&Limits::default()).expect("good limits");
    queue.reap(2, 2, &mut done);
}

/// Without the wake-up, the loop would sleep for the 40 s of the former limit.
#[test]
fn higher_limit_wakes_an_event_loop_on_an_owned_context() {
    let disk = open("ram:1M?nr_hw_queues=2&req_ns=1000");
    let owner = disk.owner("a").expect("a new owner");
    let mut limits = Limits::default();
    limits.both.bps = Rate { per_s: 100, burst: Some(0) };
    owner.set_limits(&limits).expect("good limits");
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    for nth in 0..2 {
        queue.submit_for(&owner, Io::read(Buf::new(4096), nth * 8192)).expect("room");
    }
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        owner.set_limits(&Limits::default()).expect("good limits");
    });
    while done.len() < 2 {
        await_readable(queue.poll_fd().expect("a descriptor"), "a lifted limit");
        queue.reap(0, 2, &mut done);
    }
    other.join().expect("no panic");
}

/// A loop that spins would come round some thousand times.
#[test]
fn event_loop_sleeps_while_a_limit_holds_io_back() {
    for spec in ["null:1M?nr_hw_queues=1", "null:1M?nr_hw_queues=2", "ram:1M?nr_hw_queues=2"] {
        let disk = open(spec);
        let owner = disk.owner("a").expect("a new owner");
        owner.set_limits(&iops(100)).expect("good limits");
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        for nth in 0..6 {
            queue.submit_for(&owner, Io::read(Buf::new(4096), 8192 * nth)).expect("room");
        }
        let mut nr_rounds = 0;
        while done.len() < 6 {
            await_readable(queue.poll_fd().expect("a descriptor"), spec);
            queue.reap(0, 6, &mut done);
            nr_rounds += 1;
        }
        // Each I/O wakes the loop, and its alarm may expire a moment early.
        assert!(nr_rounds <= 30, "{spec}: {nr_rounds}");
    }
}

#[test]
fn owners_are_found_by_their_names() {
    let disk = open("ram:1M");
    let a = disk.owner("a").expect("a new owner");
    let b = a.child("b").expect("a new owner");
    assert_eq!(disk.owner("a"), Ok(a.clone()));
    assert_eq!(a.child("b"), Ok(b.clone()));
    assert_eq!((b.name(), b.parent()), ("b", Some(a.clone())));
    assert_eq!(disk.owners(), [a.clone(), b.clone()]);
    let error = disk.owner("b").expect_err("it is a child");
    let text = "owner b not added, because one with this name exists: choose another name";
    assert_eq!(error.to_string(), text);
    let error = a.clone().remove().expect_err("it has a child");
    assert!(error.to_string().contains("has children"), "{error}");
    b.clone().remove().expect("it exists");
    let error = b.child("c").expect_err("its parent is gone").to_string();
    assert_eq!(error, "owner c not added, because its parent b was removed");
    assert_eq!(b.remove(), Err(OwnerError::Removed { owner: "b".into() }));
    assert_eq!(a.remove(), Ok(()));
    assert_eq!(disk.owners(), []);
}

#[test]
fn bad_owners_limits_and_weights_are_refused() {
    let disk = open("ram:1M?nr_hw_queues=2");
    let owner = disk.owner("a").expect("a new owner");
    let mut limits = Limits::default();
    limits.read.bps.burst = Some(5);
    let texts = [
        owner.set_limits(&limits).expect_err("no rate").to_string(),
        owner.set_weight(0).expect_err("too low").to_string(),
        owner.set_weight(10_001).expect_err("too high").to_string(),
        owner.set_weight(50).expect_err("two contexts").to_string(),
        disk.owner("").expect_err("no name").to_string(),
        open("ram:1M?wake=single").owner("a").expect_err("threads wait").to_string(),
    ];
    let expected = [
        "limits not set: read_bps_burst=5: expected read_bps above 0 beside it: set that too",
        "owner a: weight 0 not set: expected a number from 1 to 10000",
        "owner a: weight 10001 not set: expected a number from 1 to 10000",
        "ram:1M?nr_hw_queues=2: weight not set: weights need one hardware context, and the disk \
         has 2; open it with nr_hw_queues=1",
        "ram:1M?nr_hw_queues=2: no owner added, because its name is empty: name it",
        "ram:1M?wake=single: no owner added, because the disk emulates an earlier system, which \
         has none: remove its keys (wake, run_queue, kick)",
    ];
    assert_eq!(texts, expected);
    assert_eq!((owner.weight(), owner.limits()), (100, Limits::default()));
}

#[test]
#[should_panic(expected = "is of another disk")]
fn submit_for_panics_for_an_owner_of_another_disk() {
    let disks = [open("ram:1M"), open("ram:1M")];
    let owner = disks[0].owner("a").expect("a new owner");
    _ = disks[1].queue().submit_for(&owner, Io::flush());
}

/// The goal cannot be kept, so a window misses it after 100 ms or more.
#[test]
fn missed_latency_goal_limits_other_owners_of_shared_and_owned_contexts() {
    for spec in ["ram:1M?nr_hw_queues=1&req_ns=1000000", "ram:1M?nr_hw_queues=3&req_ns=1000000"] {
        let disk = open(spec);
        let (owner, other) = (disk.owner("a").expect("new"), disk.owner("b").expect("new"));
        owner.set_limits(&goal(1)).expect("good limits");
        assert_eq!(owner.limits().latency_target_us, 1);
        let (mut queue, mut other_queue) = (disk.queue(), disk.queue());
        let mut done = Vec::new();
        let mut nr = 0;
        while other.stats().depth != Some(1) && nr < 100_000 {
            queue.submit_for(&owner, Io::read(Buf::new(4096), 0)).expect("room");
            other_queue.submit_for(&other, Io::read(Buf::new(4096), 8192)).expect("room");
            queue.reap(1, 1, &mut done);
            other_queue.reap(1, 1, &mut done);
            nr += 1;
        }
        assert_eq!((other.stats().depth, owner.stats().depth), (Some(1), None), "{spec}");
        assert!(owner.stats().missed_windows > 0, "{spec}");
        // All I/O ends, although a depth of 1 holds it back.
        let nr_before = done.len();
        for nth in 0..8 {
            other_queue.submit_for(&other, Io::read(Buf::new(4096), 8192 * nth)).expect("room");
        }
        other_queue.reap(8, 8, &mut done);
        assert_eq!(done.len(), nr_before + 8, "{spec}");
        assert!(other.stats().limit_waits > 0, "{spec}");
        owner.set_limits(&Limits::default()).expect("no limits are good limits");
        other.read_at(&mut [0; 4096], 0).expect("a good read");
        assert_eq!(other.stats().depth, None, "{spec}");
    }
}

/// Threads read for owners that come and go, and whose limits and weights change, while the disk is
/// frozen again and again.
#[test]
fn owners_change_under_load() {
    let disk = open("ram:4M?nr_hw_queues=1&queue_depth=4&req_ns=5000");
    let is_over = AtomicBool::new(false);
    let run = |nth: u64| {
        let (mut numbers, mut queue, mut done) = (Numbers(nth), disk.queue(), Vec::new());
        for _ in 0..150 {
            let Ok(owner) = disk.owner(&format!("{}", numbers.below(4))) else { continue };
            for _ in 0..4 {
                let io = Io::read(Buf::new(4096), numbers.below(1000) * 4096);
                queue.submit_for(&owner, io).expect("room");
            }
            queue.reap(4, 4, &mut done);
        }
        assert!(done.iter().all(|done| done.result == Ok(4096)));
        done.len()
    };
    let change = |disk: &Disk| {
        let mut numbers = Numbers(77);
        while !is_over.load(Ordering::Relaxed) {
            let owner = disk.owner(&format!("{}", numbers.below(4))).expect("few owners");
            match numbers.below(7) {
                0 => _ = owner.remove(),
                1 => owner.set_weight(1 + numbers.below(1000) as u32).expect("one context"),
                2 => owner.set_limits(&Limits::default()).expect("good limits"),
                3 => owner.set_limits(&iops(20_000)).expect("good limits"),
                4 => owner.set_limits(&goal(1 + numbers.below(100))).expect("good limits"),
                5 => {
                    let by = [WeightBy::Bytes, WeightBy::Ios, WeightBy::Cost];
                    disk.set_weight_by(by[numbers.below(3) as usize], CostModel::default());
                }
                _ => drop(disk.freeze().expect("no other hold")),
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|nth| scope.spawn(move || run(nth))).collect();
        let changer = scope.spawn(|| change(&disk));
        let nr: usize = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
        is_over.store(true, Ordering::Relaxed);
        changer.join().expect("no panic");
        assert_eq!(nr, 4 * 150 * 4);
    });
}
