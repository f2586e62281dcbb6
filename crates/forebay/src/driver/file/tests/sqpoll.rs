//! Tests of rings that a kernel thread empties: `sqpoll=on`.

use super::{LONG, scratch};
use crate::driver::testing::{DEPTH, data, issue, reap};
use crate::driver::{DriverQueue, Mode};
use crate::sys::clock;
use crate::{Disk, Io};
use forebay_core::{Bio, Op};
use std::thread;
use std::time::Duration;

/// The kernel's thread sleeps after a millisecond, or never: so batches find it in both states.
const KEYS: [&str; 2] = ["sqpoll=on&sqpoll_idle_ms=1", "sqpoll=on&sqpoll_idle_ms=600000"];

#[test]
fn the_kernels_thread_is_woken_when_it_sleeps() {
    for keys in KEYS {
        for mode in [Mode::Owned, Mode::Shared] {
            let (DriverQueue { mut driver, waiter }, _folder) = scratch(keys, mode);
            let begin = clock::now_ns();
            for round in 0..60 {
                if round % 3 == 0 {
                    thread::sleep(Duration::from_micros(round * 100));
                }
                issue(&mut *driver, 0, Bio::flush());
                match (mode, round % 2) {
                    (Mode::Owned, 0) => driver.wait(1, None),
                    _ => {
                        driver.commit_rqs();
                        waiter.wait(Some(LONG));
                    }
                }
                while reap(&mut *driver).is_empty() {
                    waiter.wait(Some(LONG));
                }
            }
            assert!(clock::now_ns() - begin < LONG.as_nanos() as u64, "{keys} {mode:?}");
        }
    }
}

#[test]
fn tags_are_used_again_before_the_ring_says_that_it_is_empty() {
    for keys in KEYS {
        let (DriverQueue { mut driver, waiter }, _folder) = scratch(keys, Mode::Shared);
        let mut bufs: Vec<_> = (0..DEPTH).map(|_| vec![0; 512]).collect();
        let mut nr_left = 5000;
        let mut free: Vec<usize> = (0..DEPTH as usize).collect();
        let mut nr_at_driver = 0;
        while nr_left + nr_at_driver > 0 {
            for tag in free.drain(..) {
                if nr_left > 0 {
                    nr_left -= 1;
                    nr_at_driver += 1;
                    let at = (nr_left % 2048) as u64 * 512;
                    issue(&mut *driver, tag, data(Op::Read, at, &mut bufs[tag], 512));
                }
            }
            driver.commit_rqs();
            let done = reap(&mut *driver);
            if done.is_empty() && nr_at_driver > 0 {
                waiter.wait(Some(LONG));
            }
            for done in done {
                assert_eq!(done.result, Ok(512));
                nr_at_driver -= 1;
                free.push(done.tag.index());
            }
        }
    }
}

#[test]
fn a_kick_ends_a_wait_whether_the_kernels_thread_sleeps_or_not() {
    for keys in KEYS {
        let (DriverQueue { mut driver, waiter }, _folder) = scratch(keys, Mode::Shared);
        for round in 0..100 {
            let begin = clock::now_ns();
            thread::scope(|scope| {
                scope.spawn(|| waiter.wait(Some(LONG)));
                thread::sleep(Duration::from_micros(round % 4 * 700));
                driver.kick();
            });
            assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
            assert!(reap(&mut *driver).is_empty(), "a kick is nobody's completion");
        }
    }
}

/// Returns the system calls of 1000 reads that are submitted one by one and reaped by polling.
fn nr_syscalls(keys: &str) -> u64 {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    let disk = Disk::open(&format!("{}?{keys}", path.display())).expect("a disk");
    let mut queue = disk.queue();
    let mut done = Vec::new();
    for nth in 0..1000 {
        queue.submit(Io::read(disk.buf(4096), nth % 256 * 4096)).expect("a good I/O");
        while queue.reap(0, 1, &mut done) == 0 {
            thread::yield_now();
        }
    }
    assert!(done.iter().all(|done| done.result == Ok(4096)));
    drop(queue);
    disk.stats().nr_syscalls
}

#[test]
fn submitting_takes_no_system_call_while_the_kernels_thread_is_awake() {
    assert!(nr_syscalls("") >= 1000);
    assert!(nr_syscalls(KEYS[1]) <= 10);
}

#[test]
fn threads_of_a_disk_share_one_thread_of_the_kernel() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    let disk = Disk::open(&format!("{}?sqpoll=on&nr_hw_queues=4", path.display())).expect("a disk");
    thread::scope(|scope| {
        for thread in 0..6_u64 {
            let disk = &disk;
            scope.spawn(move || {
                let mut queue = disk.queue();
                let mut done = Vec::new();
                for nth in 0..200 {
                    let at = (thread * 40 + nth % 40) * 4096;
                    let mut buf = disk.buf(4096);
                    buf.fill(thread as u8 + 1);
                    queue.submit(Io::write(buf, at)).expect("a good I/O");
                    queue.reap(1, 1, &mut done);
                    let mut read = vec![0; 4096];
                    assert_eq!(disk.read_at(&mut read, at), Ok(4096));
                    assert!(read.iter().all(|byte| *byte == thread as u8 + 1));
                }
                assert!(done.iter().all(|done| done.result == Ok(4096)));
            });
        }
    });
}
