//! Many threads on one disk.

use crate::common::Scratch;
use forebay::{Buf, Completion, Disk, Io};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Returns the content of a thread's page in a round.
fn page(thread: u64, round: u64) -> Vec<u8> {
    let word = (thread << 32 | round).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word.to_le_bytes().repeat(512)
}

fn disks(file: &str) -> Vec<String> {
    [
        "ram:4M",
        "ram:4M?nr_hw_queues=1",
        "ram:4M?nr_hw_queues=3&queue_depth=2",
        "ram:4M?req_ns=20000&nr_hw_queues=1",
        "ram:4M?run_queue=always",
        "ram:4M?req_ns=20000&nr_hw_queues=2&queue_depth=2&run_queue=always",
        "fault:ram:4M?rule=any:short=1k:nth=3&rule=any:busy:nth=7&nr_hw_queues=2",
    ]
    .map(String::from)
    .into_iter()
    .chain(
        ["direct=on", "direct=on&nr_hw_queues=1&queue_depth=4", "nr_hw_queues=4"]
            .map(|keys| format!("{file}?{keys}")),
    )
    .chain(
        ["direct=on&nr_hw_queues=1&queue_depth=4", "direct=on&nr_hw_queues=3"]
            .into_iter()
            .flat_map(|keys| ["aio", "psync"].map(|driver| format!("{driver}:{file}?{keys}"))),
    )
    .chain(
        ["file", "aio", "psync"]
            .map(|driver| format!("{driver}:{file}?queue_depth=4&run_queue=always")),
    )
    .collect()
}

#[test]
fn handles_go_from_thread_to_thread() {
    fn assert_shared<T: Send + Sync + Clone>() {}
    assert_shared::<Disk>();
}

#[test]
fn blocking_call_costs_one_system_call() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync"] {
        let path = scratch.path.display();
        let disk = Disk::open(&format!("{driver}:{path}?direct=on")).expect("a disk");
        let mut buf = Buf::new(4096);
        for _ in 0..50 {
            let before = disk.stats().nr_syscalls;
            assert_eq!(disk.read_at(&mut buf, 4096), Ok(4096));
            assert_eq!(disk.write_at(&buf, 8192), Ok(4096));
            assert_eq!(disk.flush(), Ok(()));
            assert_eq!(disk.stats().nr_syscalls, before + 3, "{driver}");
        }
    }
}

#[test]
fn time_limit_of_blocking_calls_costs_no_system_call_for_each() {
    const NR: u64 = 200;
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync"] {
        let path = scratch.path.display();
        let spec = format!("{driver}:{path}?direct=on&io_timeout_ms=30000");
        let disk = Disk::open(&spec).expect("a disk");
        let mut buf = Buf::new(4096);
        for _ in 0..NR {
            assert_eq!(disk.read_at(&mut buf, 4096), Ok(4096));
        }
        // The thread of the disk waits for the limit, with a few calls.
        let nr = disk.stats().nr_syscalls;
        assert!((NR..NR + NR / 4).contains(&nr), "{driver}: {nr}");
    }
}

#[test]
fn blocking_calls_of_many_threads_get_their_own_data() {
    let scratch = Scratch::new(4 << 20);
    for spec in disks(&scratch.path.display().to_string()) {
        let disk = Disk::open(&spec).expect("a disk");
        std::thread::scope(|scope| {
            for thread in 0..24 {
                let disk = &disk;
                scope.spawn(move || {
                    let mut buf = Buf::new(4096);
                    for round in 0..40 {
                        let at = (thread * 40 + round) * 4096;
                        buf.copy_from_slice(&page(thread, round));
                        assert_eq!(disk.write_at(&buf, at).expect("a write"), 4096);
                        buf.fill(0);
                        assert_eq!(disk.read_at(&mut buf, at).expect("a read"), 4096);
                        assert!(*buf == *page(thread, round), "{}", disk.info().spec);
                    }
                });
            }
        });
    }
}

#[test]
fn queues_of_many_threads_get_their_own_completions() {
    let scratch = Scratch::new(4 << 20);
    for spec in disks(&scratch.path.display().to_string()) {
        let disk = Disk::open(&spec).expect("a disk");
        let nr_reaped = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (disk, nr_reaped) = (&disk, &nr_reaped);
                scope.spawn(move || {
                    let mut queue = disk.queue();
                    let mut done: Vec<Completion> = Vec::new();
                    for round in 0..30 {
                        let plug = (round % 2 == 0).then(forebay::plug);
                        for n in 0..16 {
                            let at = thread * 16 + n;
                            let io = Io::write(Buf::from(&page(at, round)[..]), at * 4096);
                            queue.submit(io.user_data(n)).expect("room");
                        }
                        drop(plug);
                        queue.reap(16, 16, &mut done);
                        assert_eq!(done.len(), 16);
                        for n in 0..16 {
                            let at = thread * 16 + n;
                            let io = Io::read(Buf::new(4096), at * 4096);
                            queue.submit(io.user_data(n)).expect("room");
                        }
                        while !queue.is_empty() {
                            queue.reap(1, 5, &mut done);
                        }
                        for read in done.drain(..).skip(16) {
                            let at = thread * 16 + read.user_data;
                            assert_eq!(read.result, Ok(4096));
                            assert!(*read.buf.expect("its buffer") == *page(at, round));
                            nr_reaped.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(nr_reaped.into_inner(), 6 * 30 * 16, "{spec}");
        let bios: u64 = forebay::Op::ALL.iter().map(|&op| disk.stats().queue.op(op).bios).sum();
        assert_eq!(bios, 2 * 6 * 30 * 16, "{spec}");
    }
}

#[test]
fn contexts_go_from_a_thread_that_ends_to_one_that_begins() {
    let scratch = Scratch::new(1 << 20);
    let disk = Disk::open(&format!("{}?nr_hw_queues=3", scratch.path.display())).expect("a disk");
    for round in 0..20 {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let disk = &disk;
                scope.spawn(move || {
                    let at = thread * 4096;
                    disk.write_at(&page(thread, round), at).expect("a write");
                    let mut queue = disk.queue();
                    queue.submit(Io::read(Buf::new(4096), at)).expect("room");
                    // The queue is dropped with this read in flight.
                });
            }
        });
    }
    let mut buf = Buf::new(4096);
    disk.read_at(&mut buf, 4096).expect("a read");
    assert!(*buf == *page(1, 19));
}

#[test]
fn a_plug_that_is_open_on_a_thread_that_ends_loses_nothing() {
    let disk = Disk::open("ram:1M").expect("a disk");
    let same = disk.clone();
    // Joining this thread, unlike a scoped one, waits for its thread-local destructors.
    let thread = std::thread::spawn(move || {
        std::mem::forget(forebay::plug());
        let mut queue = same.queue();
        queue.submit(Io::write(Buf::from(&[9; 4096][..]), 0)).expect("room");
        std::mem::forget(queue);
    });
    thread.join().expect("no panic");
    let mut buf = [0; 4096];
    disk.read_at(&mut buf, 0).expect("a read");
    assert!(buf == [9; 4096]);
}

#[test]
fn a_thousand_threads_finish() {
    let scratch = Scratch::new(4 << 20);
    let disk = Disk::open(&format!("{}?direct=on&queue_depth=32", scratch.path.display()))
        .expect("a disk");
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..1000u64 {
            let disk = &disk;
            let work = move || {
                let mut buf = Buf::new(4096);
                for round in 0..10 {
                    let at = (thread * 7 + round * 13) % 1024 * 4096;
                    assert_eq!(disk.read_at(&mut buf, at).expect("a read"), 4096);
                }
            };
            std::thread::Builder::new()
                .stack_size(128 * 1024)
                .spawn_scoped(scope, work)
                .expect("a thread");
        }
    });
    // This is not a measurement: a lost wake-up would wait forever.
    assert!(started.elapsed() < Duration::from_secs(300));
    assert_eq!(disk.stats().queue.op(forebay::Op::Read).bios, 10_000);
}

/// The layer must not mistake the leader of one disk for a follower of a disk it waited for before.
#[test]
fn threads_go_from_disk_to_disk() {
    let spec = "ram:1M?req_ns=20000&nr_hw_queues=1";
    let disks = [spec, spec].map(|spec| Disk::open(spec).expect("a disk"));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let disks = &disks;
            scope.spawn(move || {
                let mut buf = [0; 512];
                for round in 0..500 {
                    let disk = &disks[(thread + round) % 2];
                    assert_eq!(disk.read_at(&mut buf, 0).expect("a read"), 512);
                }
            });
        }
    });
}
