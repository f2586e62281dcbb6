//! Tests of rings that several threads use.

mod answers;
mod entries;
mod fixed;
mod limits;
mod sqpoll;

use crate::buf::Buf;
use crate::driver::testing::{DEPTH, Numbers, data, forget, is_readable, issue, queue, reap};
use crate::driver::{DriverQueue, Mode};
use crate::runtime::clock;
use forebay_core::{Bio, BlockStatus, Op};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Long enough that only a wait that nothing ends lasts as long.
const LONG: Duration = Duration::from_secs(100);

/// A queue on a new file of 1 MiB, and the folder that it is in.
fn scratch(keys: &str, mode: Mode) -> (DriverQueue, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    (queue(&format!("{}?{keys}", path.display()), mode), folder)
}

#[test]
fn one_waits_while_others_submit_and_reap() {
    const NR: u64 = 4000;
    let (DriverQueue { driver, waiter }, _folder) = scratch("", Mode::Shared);
    let driver = Mutex::new(driver);
    let nr_done = AtomicU64::new(0);
    let turn = |bio: Option<Bio>| {
        let mut driver = driver.lock().expect("no panic");
        let done = reap(&mut **driver);
        assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
        if let Some(bio) = bio {
            issue(&mut **driver, 0, bio);
            driver.commit_rqs();
        }
        nr_done.fetch_add(done.len() as u64, Ordering::AcqRel);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbers = Numbers(7);
            let mut buf = vec![1; 4096];
            for nth in 0..NR {
                turn(Some(data(Op::Write, numbers.below(256) * 4096, &mut buf, 4096)));
                if numbers.below(3) == 0 {
                    turn(None);
                }
                // The one tag is free when its request was reaped, by whomever.
                while nr_done.load(Ordering::Acquire) <= nth {
                    thread::yield_now();
                }
            }
        });
        while nr_done.load(Ordering::Acquire) < NR {
            // The submitter may take the last one itself: no wait without end.
            waiter.wait(Some(Duration::from_millis(20)));
            turn(None);
        }
    });
    assert!(waiter.nr_syscalls() > 0);
}

#[test]
fn a_wait_sees_what_was_complete_before_it_began() {
    for mode in [Mode::Owned, Mode::Shared] {
        let (DriverQueue { mut driver, waiter }, _folder) = scratch("", mode);
        for _ in 0..100 {
            issue(&mut *driver, 0, Bio::flush());
            driver.wait(1);
            let begin = clock::now_ns();
            waiter.wait(Some(LONG));
            assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
            assert_eq!(reap(&mut *driver).len(), 1);
        }
    }
}

#[test]
fn a_wait_ends_with_what_is_issued_meanwhile() {
    let (DriverQueue { mut driver, waiter }, _folder) = scratch("", Mode::Shared);
    for round in 0..500 {
        let begin = clock::now_ns();
        thread::scope(|scope| {
            scope.spawn(|| waiter.wait(Some(LONG)));
            if round % 2 == 0 {
                thread::sleep(Duration::from_micros(round));
            }
            issue(&mut *driver, 0, Bio::flush());
            driver.commit_rqs();
        });
        assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
        assert_eq!(reap(&mut *driver).len(), 1);
    }
}

#[test]
fn no_kick_is_missed() {
    let (DriverQueue { mut driver, waiter }, _folder) = scratch("", Mode::Shared);
    let mut numbers = Numbers(3);
    let nr_back = AtomicU64::new(0);
    let rounds = 5000u64;
    let begin = clock::now_ns();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                waiter.wait(Some(LONG));
                let round = nr_back.fetch_add(1, Ordering::AcqRel) + 1;
                // Until what ended it was reaped: it would end the next as well.
                while nr_back.load(Ordering::Acquire) == round {
                    std::hint::spin_loop();
                }
            }
        });
        for round in 0..rounds {
            // Before the wait, on its way into the kernel, and when it sleeps.
            for _ in 0..numbers.below(if round % 8 == 0 { 30_000 } else { 1000 }) {
                std::hint::spin_loop();
            }
            driver.kick();
            if numbers.below(4) == 0 {
                driver.kick();
            }
            while nr_back.load(Ordering::Acquire) != 2 * round + 1 {
                thread::yield_now();
            }
            assert!(reap(&mut *driver).is_empty(), "a kick is nobody's completion");
            nr_back.fetch_add(1, Ordering::AcqRel);
        }
    });
    assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
}

#[test]
fn a_kick_finds_room_in_a_ring_full_of_requests() {
    let (DriverQueue { mut driver, waiter }, _folder) = scratch("", Mode::Shared);
    for tag in 0..DEPTH as usize {
        issue(&mut *driver, tag, Bio::flush());
    }
    driver.kick();
    waiter.wait(None);
    let mut nr = 0;
    while nr < DEPTH as usize {
        driver.wait(1);
        nr += reap(&mut *driver).len();
    }
}

#[test]
fn a_wait_ends_in_time() {
    for mode in [Mode::Owned, Mode::Shared] {
        let (queue, _folder) = scratch("", mode);
        for timeout in [Duration::ZERO, Duration::from_millis(3)] {
            let begin = clock::now_ns();
            queue.waiter.wait(Some(timeout));
            let took = clock::now_ns() - begin;
            assert!(took >= timeout.as_nanos() as u64 && took < LONG.as_nanos() as u64);
        }
    }
}

#[test]
fn the_descriptor_is_readable_when_there_is_something_to_reap() {
    for mode in [Mode::Owned, Mode::Shared] {
        let (DriverQueue { mut driver, waiter }, _folder) = scratch("", mode);
        let fd = waiter.poll_fd().expect("a ring has a descriptor");
        // It may begin readable.
        assert!(reap(&mut *driver).is_empty());
        for _ in 0..200 {
            assert!(!is_readable(fd, 0));
            issue(&mut *driver, 0, Bio::flush());
            driver.commit_rqs();
            assert!(is_readable(fd, 100_000), "{mode:?}");
            assert_eq!(reap(&mut *driver).len(), 1, "{mode:?}");
        }
    }
}

#[test]
fn what_a_thread_leaves_behind_is_done() {
    for keys in ["", "direct=on"] {
        let (DriverQueue { mut driver, waiter }, folder) = scratch(keys, Mode::Shared);
        let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::new(4096)).collect();
        for round in 0..30 {
            // Reads of what is not in the page cache go on when it is, and who read is gone.
            forget(&folder.path().join("disk.img"));
            thread::scope(|scope| {
                scope.spawn(|| {
                    for (tag, buf) in bufs.iter_mut().enumerate() {
                        let at = tag as u64 * 4096;
                        let bio = match (tag + round) % 8 {
                            0 => Bio::flush(),
                            1 => Bio::range(Op::WriteZeroes, at, 4096),
                            2 => data(Op::Write, at, buf, 4096),
                            _ => data(Op::Read, at, buf, 4096),
                        };
                        issue(&mut *driver, tag, bio);
                    }
                    driver.commit_rqs();
                });
            });
            let mut nr = 0;
            while nr < DEPTH as usize {
                waiter.wait(Some(LONG));
                for done in reap(&mut *driver) {
                    // The file system may not zero ranges; everything else works.
                    let is_good = matches!(done.result, Ok(_) | Err(BlockStatus::NotSupported));
                    assert!(is_good, "{keys} {done:?}");
                    nr += 1;
                }
            }
        }
    }
}
