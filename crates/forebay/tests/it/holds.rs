//! Freeze, quiesce and stop; device failure; fork.

use crate::common::{Scratch, open, submit};
use crate::event_loop::is_readable;
use crate::forked::in_child;
use forebay::{
    BioQueue, BlockStatus, Buf, Disk, FreezeError, Hold, Io, IoError, Op, SubmitErrorKind,
};
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Returns how many requests a disk has issued to its driver.
fn nr_issued(disk: &Disk) -> u64 {
    disk.stats().queue.issued
}

/// Freezes a disk that has no other hold.
pub(crate) fn freeze(disk: &Disk) -> Hold {
    disk.freeze().expect("no other hold")
}

#[test]
fn a_quiesced_disk_hands_nothing_over_until_let_go() {
    let specs = ["ram:1M", "ram:1M?run_queue=always"];
    for (hold, spec) in [Disk::quiesce, Disk::stop].into_iter().flat_map(|h| specs.map(|s| (h, s)))
    {
        let disk = open(spec);
        let mut queue = disk.queue();
        let held = (hold(&disk), hold(&disk));
        submit(&mut queue, Io::write(Buf::new(4096), 0));
        submit(&mut queue, Io::read(Buf::new(4096), 0).nowait().user_data(1));
        let mut done = Vec::new();
        queue.reap(1, 8, &mut done);
        assert_eq!((done[0].user_data, done[0].result), (1, Err(BlockStatus::Again)));
        drop(held.0);
        queue.reap(0, 8, &mut done);
        assert_eq!(nr_issued(&disk), 0, "the other hold is still there");
        drop(held.1);
        queue.reap(1, 8, &mut done);
        assert_eq!((done[1].user_data, done[1].result), (0, Ok(4096)));
    }
}

#[test]
fn blocking_calls_go_on_when_a_hold_is_let_go() {
    for spec in ["ram:1M?nr_hw_queues=1", "ram:1M?nr_hw_queues=3", "ram:1M?run_queue=always"] {
        let disk = open(spec);
        for hold in [Disk::quiesce, Disk::stop, freeze] {
            let held = hold(&disk);
            let nr_done = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for n in 0..4 {
                    let (disk, nr_done) = (&disk, &nr_done);
                    scope.spawn(move || {
                        disk.write_at(&[1; 512], n * 512).expect("a write");
                        nr_done.fetch_add(1, Ordering::Relaxed);
                    });
                }
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(nr_done.load(Ordering::Relaxed), 0);
                drop(held);
            });
            assert_eq!(nr_done.into_inner(), 4);
        }
    }
}

#[test]
fn a_freeze_waits_for_entered_bios_and_admits_no_more() {
    let scratch = Scratch::new(1 << 20);
    for keys in ["direct=on&nr_hw_queues=1&queue_depth=4", "direct=on&nr_hw_queues=2"] {
        let disk = open(&scratch.spec(keys));
        let mut queue = disk.queue();
        for n in 0..32 {
            submit(&mut queue, Io::write(Buf::new(4096), n * 4096));
        }
        let frozen = disk.freeze().expect("no other hold");
        let issued = nr_issued(&disk);
        assert_eq!(issued, 32, "what was in has gone, and ended");
        submit(&mut queue, Io::write(Buf::new(4096), 0));
        submit(&mut queue, Io::write(Buf::new(4096), 0).nowait());
        let mut done = Vec::new();
        queue.reap(33, 99, &mut done);
        assert_eq!(done.len(), 33);
        assert_eq!(done[32].result, Err(BlockStatus::Again));
        assert_eq!(nr_issued(&disk), issued);
        drop(frozen);
        queue.reap(1, 9, &mut done);
        assert_eq!(nr_issued(&disk), 33);
    }
}

#[test]
fn a_freeze_ends_beside_a_flush_of_a_thread_with_requests_in_flight() {
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("nr_hw_queues=2"));
    let issued = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut queue = disk.queue();
            submit(&mut queue, Io::read(Buf::new(4096), 0));
            issued.wait();
            // By then the freeze waits for the read, which only this thread can reap.
            std::thread::sleep(Duration::from_millis(50));
            disk.flush().expect("the disk works");
            assert_eq!(queue.reap(1, 9, &mut Vec::new()), 1);
        });
        issued.wait();
        let frozen = disk.freeze_timeout(Duration::from_secs(30));
        drop(frozen.expect("the flush reaps the read first"));
    });
}

/// Calls `act` with a queue of the shared context and one of an owned context, of one thread.
///
/// Meanwhile it calls `beside`.
fn with_both_queues(
    disk: &Disk,
    act: impl FnOnce(BioQueue, BioQueue) + Send,
    beside: impl FnOnce(),
) {
    let (step, opened) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let (step, opened) = (&step, &opened);
        let owner = scope.spawn(move || {
            // The only context that a thread can own. This thread gives it up at its end.
            let queue = disk.queue();
            step.wait();
            step.wait();
            drop(queue);
        });
        step.wait();
        let reader = scope.spawn(move || {
            let shared = disk.queue();
            opened.wait();
            opened.wait();
            act(shared, disk.queue());
        });
        opened.wait();
        step.wait();
        owner.join().expect("it has only closed its queue");
        opened.wait();
        beside();
        reader.join().expect("no failed assertion");
    });
}

#[test]
fn a_freeze_ends_beside_a_thread_that_reaps_a_queue_of_the_shared_context_only() {
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("nr_hw_queues=2"));
    let issued = Barrier::new(2);
    let act = |mut shared: BioQueue, mut owned: BioQueue| {
        submit(&mut owned, Io::read(Buf::new(4096), 0));
        issued.wait();
        // By then the freeze waits for the read, which only this thread can reap.
        std::thread::sleep(Duration::from_millis(50));
        submit(&mut shared, Io::read(Buf::new(4096), 4096));
        assert_eq!(shared.reap(1, 9, &mut Vec::new()), 1);
        assert_eq!(owned.reap(1, 9, &mut Vec::new()), 1);
    };
    with_both_queues(&disk, act, || {
        issued.wait();
        let frozen = disk.freeze_timeout(Duration::from_secs(30));
        drop(frozen.expect("the thread reaps its own context before it waits in the other"));
    });
}

#[test]
fn a_reap_of_a_queue_of_the_shared_context_does_not_wait_for_the_owned_one() {
    let delays = "rule=read:delay=100ms:range=0+4096&rule=read:delay=3s:range=524288+4096";
    let disk = open(&format!("fault:ram:1M?nr_hw_queues=2&{delays}"));
    let act = |mut shared: BioQueue, mut owned: BioQueue| {
        submit(&mut owned, Io::read(Buf::new(4096), 524_288));
        submit(&mut shared, Io::read(Buf::new(4096), 0));
        let start = Instant::now();
        assert_eq!(shared.reap(1, 9, &mut Vec::new()), 1);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        assert_eq!(owned.reap(1, 9, &mut Vec::new()), 1);
        assert!(start.elapsed() > Duration::from_secs(2), "the read was not slow");
    };
    with_both_queues(&disk, act, || ());
}

#[test]
fn a_freeze_names_the_hold_that_keeps_admitted_io_from_ending() {
    for spec in ["ram:1M?nr_hw_queues=1", "ram:1M?nr_hw_queues=2", "ram:1M?run_queue=always"] {
        let disk = open(spec);
        let mut queue = disk.queue();
        for (is_quiesced, hold) in [(true, Disk::quiesce as fn(&Disk) -> Hold), (false, Disk::stop)]
        {
            let held = hold(&disk);
            let plug = forebay::plug();
            submit(&mut queue, Io::read(Buf::new(4096), 0));
            drop(freeze(&disk)); // plugged I/O was not admitted
            drop(plug);
            let error = disk.freeze().expect_err("the read cannot end");
            assert_eq!(matches!(error, FreezeError::Quiesced { .. }), is_quiesced, "{error}");
            assert_eq!(matches!(error, FreezeError::Stopped { .. }), !is_quiesced, "{error}");
            assert!(error.to_string().starts_with(&format!("{spec}: cannot freeze")), "{error}");
            let error = disk.freeze_timeout(Duration::from_secs(3600));
            assert!(!matches!(error, Ok(_) | Err(FreezeError::TimedOut { .. })), "{error:?}");
            drop(held);
            // None of these calls leaves the disk frozen.
            assert_eq!(queue.reap(1, 1, &mut Vec::new()), 1);
            drop(freeze(&disk));
        }
    }
}

/// One thread holds the disk, and the stranded I/O is in a context of another thread.
#[test]
fn a_freeze_gives_up_beside_the_hold_of_another_thread() {
    let disk = open("ram:1M?nr_hw_queues=2");
    let held = std::thread::scope(|scope| scope.spawn(|| disk.quiesce()).join().expect("a hold"));
    let (submitted, reap) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut queue = disk.queue();
            submit(&mut queue, Io::read(Buf::new(4096), 0));
            submitted.wait();
            reap.wait();
            queue.reap(1, 1, &mut Vec::new())
        });
        submitted.wait();
        assert!(matches!(disk.freeze(), Err(FreezeError::Quiesced { .. })));
        drop(held);
        reap.wait();
        drop(freeze(&disk));
        assert_eq!(owner.join().expect("no panic"), 1);
    });
}

/// Requests that the driver has already taken end under any hold, so a freeze waits for them.
#[test]
fn a_freeze_beside_another_hold_waits_for_io_in_flight() {
    for spec in ["ram:1M?req_ns=20000000&nr_hw_queues=1", "ram:1M?req_ns=20000000&nr_hw_queues=2"] {
        let disk = open(spec);
        let mut queue = disk.queue();
        submit(&mut queue, Io::read(Buf::new(4096), 0));
        let held = disk.quiesce();
        drop(freeze(&disk));
        assert_eq!(queue.reap(1, 1, &mut Vec::new()), 1);
        drop(held);
    }
}

#[test]
fn a_freeze_with_a_timeout_gives_up_and_leaves_the_disk_open() {
    let disk = open("ram:1M?req_ns=1000000&nr_hw_queues=2");
    let (submitted, reap) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut queue = disk.queue();
            submit(&mut queue, Io::read(Buf::new(4096), 0));
            submitted.wait();
            reap.wait();
            queue.reap(1, 1, &mut Vec::new())
        });
        submitted.wait();
        for timeout in [Duration::ZERO, Duration::from_millis(5)] {
            let error = disk.freeze_timeout(timeout).expect_err("the owner does not reap");
            assert!(matches!(error, FreezeError::TimedOut { timeout: t, .. } if t == timeout));
            disk.read_at(&mut Buf::new(512), 0).expect("the disk admits I/O again");
        }
        reap.wait();
        drop(disk.freeze_timeout(Duration::from_secs(3600)).expect("the owner reaps"));
        assert_eq!(owner.join().expect("no panic"), 1);
    });
}

/// Bios that the worker has not yet admitted when the gate closes stay outside, like bios that
/// another thread has published.
#[test]
fn a_freeze_beside_a_worker_lets_nothing_in_and_loses_nothing() {
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("direct=on&run_queue=always"));
    let mut queue = disk.queue();
    for _ in 0..20 {
        for n in 0..32 {
            submit(&mut queue, Io::write(Buf::new(4096), n * 4096));
        }
        let frozen = disk.freeze().expect("no other hold");
        let issued = nr_issued(&disk);
        submit(&mut queue, Io::write(Buf::new(4096), 0));
        disk.poll();
        assert_eq!(nr_issued(&disk), issued);
        drop(frozen);
        let mut done = Vec::new();
        queue.reap(33, 99, &mut done);
        assert!(done.len() == 33 && done.iter().all(|done| done.result == Ok(4096)));
    }
}

#[test]
fn freezes_under_load_lose_nothing() {
    let disk = open("ram:1M?queue_depth=8");
    let stop = AtomicBool::new(false);
    let nr_submitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (disk, stop, nr_submitted) = (&disk, &stop, &nr_submitted);
            scope.spawn(move || {
                let mut buf = [0; 512];
                let mut queue = disk.queue();
                let mut done = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    disk.read_at(&mut buf, thread * 512).expect("a read");
                    for n in 0..8 {
                        submit(&mut queue, Io::read(Buf::new(512), n * 512));
                    }
                    queue.reap(8, 8, &mut done);
                    done.clear();
                    nr_submitted.fetch_add(9, Ordering::Relaxed);
                }
            });
        }
        for round in 0..60 {
            let hold = match round % 3 {
                0 => disk.freeze().expect("no other hold"),
                1 => disk.quiesce(),
                _ => disk.stop(),
            };
            if round % 3 < 2 {
                let issued = nr_issued(&disk);
                std::thread::sleep(Duration::from_micros(300));
                assert_eq!(nr_issued(&disk), issued, "round {round}");
            }
            drop(hold);
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(disk.stats().queue.op(Op::Read).bios, nr_submitted.into_inner());
}

#[test]
fn a_device_that_goes_away_ends_each_of_a_thousand_bios_once() {
    let disk = open("fault:ram:8M?rule=any:offline:after=100&queue_depth=64&nr_hw_queues=3");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let disk = &disk;
            scope.spawn(move || {
                let mut queue = disk.queue();
                for n in 0..1000 {
                    submit(&mut queue, Io::read(Buf::new(4096), n * 8192).user_data(n));
                }
                let mut done = Vec::new();
                assert_eq!(queue.reap(1000, 1000, &mut done), 1000);
                let mut seen: Vec<_> = done.iter().map(|done| done.user_data).collect();
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..1000));
                let known = |result| matches!(result, Ok(4096) | Err(BlockStatus::Offline));
                assert!(done.iter().all(|done| known(done.result)));
            });
        }
    });
    assert!(disk.is_failed());
    let refused = disk.read_at(&mut [0; 512], 0);
    assert!(matches!(refused, Err(IoError::Ended(BlockStatus::Offline))), "{refused:?}");
    assert!(nr_issued(&disk) < 400, "nothing is handed to a device that is gone");
}

#[test]
fn a_child_of_a_fork_is_refused_and_the_parent_goes_on() {
    let scratch = Scratch::new(1 << 20);
    let files = ["file", "aio", "psync"].map(|driver| {
        [1, 2].map(|nr| format!("{driver}:{}", scratch.spec(&format!("nr_hw_queues={nr}"))))
    });
    // The worker runs in the parent, and may hold its lock at the time of the fork.
    let of_workers = [
        "ram:1M".to_owned(),
        "ram:1M?run_queue=always".to_owned(),
        scratch.spec("run_queue=always&service=on"),
    ];
    for spec in files.into_iter().flatten().chain(of_workers) {
        let disk = open(&spec);
        let mut queue = disk.queue();
        submit(&mut queue, Io::write(Buf::from(&[7; 4096][..]), 0));
        // The future may have started the disk's thread, which does not exist in the child.
        let future = disk.start(Io::write(Buf::from(&[8; 4096][..]), 4096));
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let is_ended = future.as_mut().poll(&mut context).is_ready();
        let ok = in_child(|| {
            let io = disk.read_at(&mut [0; 4096], 0);
            let submitted = queue.submit(Io::read(Buf::new(4096), 0));
            let refused = submitted.is_err_and(|error| error.kind == SubmitErrorKind::Forked);
            disk.poll();
            drop((disk.stop(), disk.freeze()));
            let no_fd = disk.poll_fd().is_err() && queue.poll_fd().is_err();
            let own = Disk::open("ram:1M").expect("a disk of the child's own");
            let fresh = own.write_at(&[1; 512], 0).is_ok() && disk.flush().is_err();
            let new = std::pin::pin!(disk.start(Io::flush())).poll(&mut context).is_ready();
            let old = is_ended || future.as_mut().poll(&mut context).is_ready();
            let no_future = new && old;
            refused
                && fresh
                && no_fd
                && no_future
                && matches!(io, Err(IoError::Refused(SubmitErrorKind::Forked)))
        });
        assert!(ok, "{spec}");
        let mut done = Vec::new();
        assert_eq!(queue.reap(1, 1, &mut done), 1);
        let mut buf = Buf::new(4096);
        disk.read_at(&mut buf, 0).expect("a read");
        assert!(*buf == [7; 4096]);
    }
}

/// Parent and child share the descriptor: if the child cleared it, the parent would miss the
/// signal.
#[test]
fn a_child_of_a_fork_takes_no_signal_from_its_parent() {
    let disk = open("ram:1M?req_ns=1000000");
    let mut queue = disk.queue();
    let fd = queue.poll_fd().expect("a descriptor").try_clone_to_owned().expect("a copy");
    submit(&mut queue, Io::read(Buf::new(512), 0));
    assert!(is_readable(fd.as_fd()));
    assert!(in_child(|| queue.reap(0, 1, &mut Vec::new()) == 0));
    assert!(is_readable(fd.as_fd()), "its bio is in the layer, and only this signals it");
    assert_eq!(queue.reap(1, 1, &mut Vec::new()), 1);
}

#[test]
fn a_child_of_a_fork_has_none_of_its_parents_sets_of_tags() {
    let spec = "ram:1M?tag_set=forked&queue_depth=1&req_ns=1000000000";
    let disk = open(spec);
    let mut queue = disk.queue();
    submit(&mut queue, Io::read(Buf::new(512), 0));
    // The disk's only tag is in use, and the child can never get it back.
    let ok = in_child(|| {
        let own = open("ram:1M?tag_set=forked&queue_depth=1");
        let other = Disk::open("ram:1M?tag_set=forked&queue_depth=2");
        own.write_at(&[1; 512], 0).is_ok() && other.is_err()
    });
    assert!(ok, "the child's set is its own");
    assert_eq!(queue.reap(1, 1, &mut Vec::new()), 1);
}
