//! A tokio runtime drives disks.

use crate::common::{Scratch, open};
use crate::futures::{block_on, specs, use_disk, without_threads};
use crate::nbd_server::{NbdServer, export};
use forebay::{Buf, Io, Op, plugged};
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, spawn_local};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_io().build().expect("a runtime")
}

#[test]
fn a_runtime_drives_every_driver_without_a_thread() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in specs(&scratch, &server) {
        let disk = open(&spec);
        without_threads(|| {
            current_thread().block_on(async {
                let driver = tokio::spawn(disk.drive());
                use_disk(&disk, 0, 50, !spec.starts_with("null")).await;
                assert!(!driver.is_finished(), "{spec}");
                drop(disk);
                driver.await.expect("no panic").unwrap_or_else(|error| panic!("{spec}: {error}"));
            });
        });
    }
}

#[test]
fn a_runtime_drives_a_disk_with_a_thread_of_its_own() {
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("direct=on&service=on"));
    current_thread().block_on(async {
        let driver = tokio::spawn(disk.drive());
        use_disk(&disk, 0, 50, true).await;
        drop(disk);
        driver.await.expect("no panic").expect("a driver");
    });
}

/// The runtime polls the disks, and wakes tasks of its own and of other executors.
#[test]
fn a_runtime_drives_disks_for_tasks_on_other_threads() {
    let scratch = Scratch::new(1 << 20);
    let disks = ["direct=on", "nr_requests=2&direct=on", "engine=aio&direct=on"];
    let disks = disks.map(|keys| open(&scratch.spec(keys)));
    thread::scope(|scope| {
        let tasks = (0..6).map(|n| {
            let disk = &disks[n as usize % 3];
            scope.spawn(move || block_on(use_disk(disk, n << 16, 30, true), "another thread"))
        });
        let mut tasks: Vec<_> = tasks.collect();
        current_thread().block_on(async {
            let drivers = disks.each_ref().map(|disk| tokio::spawn(disk.drive()));
            for n in 6..9 {
                use_disk(&disks[n as usize % 3], n << 16, 30, true).await;
            }
            while tasks.iter().any(|task| !task.is_finished()) {
                tokio::task::yield_now().await;
            }
            assert!(drivers.iter().all(|driver| !driver.is_finished()));
        });
        tasks.drain(..).for_each(|task| task.join().expect("no panic"));
    });
}

/// Blocking calls of other threads lead, and complete I/O of the tasks.
#[test]
fn a_runtime_drives_a_disk_beside_blocking_calls() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync"] {
        let disk = open(&format!("{driver}:{}", scratch.spec("direct=on")));
        thread::scope(|scope| {
            let reads = scope.spawn(|| {
                for n in 0..200 {
                    disk.read_at(&mut Buf::new(4096), (128 + n % 8) * 4096).expect("a read");
                }
            });
            current_thread().block_on(async {
                let driver = tokio::spawn(disk.drive());
                use_disk(&disk, 0, 100, true).await;
                driver.abort();
            });
            reads.join().expect("no panic");
        });
    }
}

#[test]
fn a_thread_takes_over_when_the_runtime_ends() {
    let scratch = Scratch::new(1 << 20);
    for spec in [scratch.spec("direct=on"), "ram:1M?req_ns=1000000".into()] {
        let disk = open(&spec);
        let runtime = current_thread();
        let mut read = pin!(disk.start(Io::read(Buf::new(4096), 0)));
        runtime.block_on(async {
            tokio::spawn(disk.drive());
            tokio::task::yield_now().await;
        });
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(runtime);
        assert_eq!(block_on(read, &spec).expect("a good I/O").result, Ok(4096));
    }
}

#[test]
fn tasks_of_a_local_set_merge_under_a_plug() {
    let disk = open("ram:1M?req_ns=20000");
    current_thread().block_on(async {
        tokio::spawn(disk.drive());
        let tasks = LocalSet::new();
        for n in 0..16 {
            let disk = disk.clone();
            tasks.spawn_local(async move {
                // Two rounds: the tasks that end together go on together.
                for at in [n * 4096, (1 << 19) + n * 4096] {
                    let read = disk.start(Io::read(Buf::new(4096), at)).await;
                    assert_eq!(read.expect("a good I/O").result, Ok(4096));
                }
            });
        }
        plugged(tasks).await;
    });
    assert_eq!(disk.stats().queue.issued, 2);
    assert_eq!(disk.stats().queue.op(Op::Read).merges, 30);
}

#[test]
fn a_driver_outside_of_a_runtime_is_an_error() {
    let disk = open("ram:1M?req_ns=20000");
    assert!(block_on(disk.drive(), "no runtime").is_err());
    block_on(use_disk(&disk, 0, 3, true), "the thread of the disk");
}

#[test]
fn a_second_driver_of_a_disk_is_an_error() {
    let disk = open("ram:1M?req_ns=20000");
    let local = LocalSet::new();
    local.block_on(&current_thread(), async {
        let first = spawn_local(disk.drive());
        tokio::task::yield_now().await;
        let error = disk.drive().await.expect_err("the runtime has the descriptor");
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        use_disk(&disk, 0, 3, true).await;
        assert!(!first.is_finished());
    });
}

/// A driver that polls without need would use a processor.
#[test]
fn a_driver_sleeps_while_there_is_no_io() {
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("direct=on"));
    let runtime = current_thread();
    let nr_turns = || disk.stats().queue.turns;
    runtime.block_on(async {
        let driver = tokio::spawn(disk.drive());
        use_disk(&disk, 0, 3, true).await;
        let nr_before = nr_turns();
        // Ends the sleep of the runtime.
        let (done, ended) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let sleeper = thread::spawn(move || {
            thread::sleep(Duration::from_millis(60));
            drop(done);
        });
        ended.set_nonblocking(true).expect("a flag");
        let ended = tokio::net::UnixStream::from_std(ended).expect("a runtime");
        ended.readable().await.expect("the end");
        sleeper.join().expect("no panic");
        assert!(nr_turns() <= nr_before + 2, "{} more", nr_turns() - nr_before);
        driver.abort();
    });
}

/// The task that drives a disk, and the tasks that use it, move between the threads.
#[test]
fn a_runtime_of_several_threads_drives_every_driver() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    let runtime = Builder::new_multi_thread().worker_threads(3).enable_io().build();
    let runtime = runtime.expect("a runtime");
    for spec in specs(&scratch, &server) {
        let disk = open(&spec);
        let keeps_data = !spec.starts_with("null");
        runtime.block_on(async {
            let driver = tokio::spawn(disk.drive());
            let tasks = (0..6_u64).map(|n| {
                let disk = disk.clone();
                let task = async move { use_disk(&disk, n << 16, 30, keeps_data).await };
                tokio::spawn(plugged(task))
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap_or_else(|error| panic!("{spec}: {error}"));
            }
            drop(disk);
            driver.await.expect("no panic").unwrap_or_else(|error| panic!("{spec}: {error}"));
        });
    }
}

/// The runtime ends the task that drives the disk. A thread of the disk takes over.
#[test]
fn a_runtime_of_several_threads_that_shuts_down_leaves_the_disk_to_its_thread() {
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("direct=on"));
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_io().build();
    let runtime = runtime.expect("a runtime");
    let user = {
        let disk = disk.clone();
        runtime.spawn(disk.drive());
        thread::spawn(move || block_on(use_disk(&disk, 0, 200, true), "another thread"))
    };
    runtime.shutdown_timeout(Duration::from_secs(60));
    user.join().expect("no panic");
    block_on(use_disk(&disk, 1 << 16, 30, true), "after the runtime");
}

#[test]
fn guide_has_the_text_of_the_example() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path| std::fs::read_to_string(format!("{root}/{path}")).expect(path);
    let example = read("crates/forebay/examples/tokio.rs");
    let (_, program) = example.split_once("\n\n").expect("a description, and a program");
    assert!(read("docs/guide.md").contains(program), "copy the example into the guide");
}
