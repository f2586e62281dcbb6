//! Tests of waits beside all drivers of files, whatever engine does the I/O, and beside a modelled
//! device, which completes by the clock: no completion and no kick is missed.

use crate::buf::Buf;
use crate::driver::nbd_server::{NbdServer, export};
use crate::driver::skip::{skip, skip_always};
#[cfg(feature = "vhost-user")]
use crate::driver::storage_daemon::StorageDaemon;
use crate::driver::testing::{
    DEPTH, Numbers, data, device, forget, is_readable, issue, queue, reap,
};
use crate::driver::{DriverQueue, Mode};
use crate::sys::clock;
use forebay_core::{Bio, BlockStatus, Op};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A wait that nothing ends lasts this long; no other wait does.
pub(super) const LONG: Duration = Duration::from_secs(100);

const FILES: [&str; 3] = ["file", "aio", "psync"];

/// Drivers that have a poll descriptor.
const POLLED: [&str; 7] = ["file", "aio", "psync", "nbd", "model", "ram", "fault"];

/// Drivers that a thread waits for.
const ALL: [&str; 5] = ["file", "aio", "psync", "model", "nbd"];

/// The backing of a disk.
pub(super) struct Place {
    folder: tempfile::TempDir,
    _server: Option<NbdServer>,
    #[cfg(feature = "vhost-user")]
    _daemon: Option<StorageDaemon>,
}

impl Place {
    fn of(folder: tempfile::TempDir) -> Place {
        Place {
            folder,
            _server: None,
            #[cfg(feature = "vhost-user")]
            _daemon: None,
        }
    }
}

/// Returns these drivers, and `vhost-user` if this build and this machine can serve it.
pub(super) fn with_vhost_user<const N: usize>(drivers: [&'static str; N]) -> Vec<&'static str> {
    let can_serve = Command::new("qemu-storage-daemon").arg("--version").output();
    let test = thread::current().name().unwrap_or_default().to_owned();
    let mut drivers = drivers.to_vec();
    match can_serve {
        _ if !cfg!(feature = "vhost-user") => {
            skip_always(&test, "vhost-user: this build lacks the feature");
        }
        Err(error) => skip(&test, &format!("vhost-user: qemu-storage-daemon: {error}")),
        Ok(_) => drivers.push("vhost-user"),
    }
    drivers
}

/// Returns the spec of a new disk of 1 MiB on a driver, which may have keys, and the disk's
/// backing.
pub(super) fn scratch(driver: &str) -> (String, Place) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    if driver == "nbd" {
        let server = NbdServer::new(export(1 << 20), &[]);
        return (server.uri(), Place { _server: Some(server), ..Place::of(folder) });
    }
    #[cfg(feature = "vhost-user")]
    if driver == "vhost-user" {
        let path = folder.path().join("disk.img");
        std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
        let daemon = StorageDaemon::new(&path).expect("it was there before");
        let spec = format!("{}?nr_hw_queues=5", daemon.spec());
        return (spec, Place { _daemon: Some(daemon), ..Place::of(folder) });
    }
    let folder = Place::of(folder);
    let without_file = match driver {
        "model" => "model:nvme?size=1M&latency_ns=20000",
        "ram" => "ram:1M?req_ns=20000",
        "null" => "null:1M",
        "fault" => "fault:ram:1M?req_ns=20000&rule=any:delay=50us:nth=2",
        _ => "",
    };
    if !without_file.is_empty() {
        return (String::from(without_file), folder);
    }
    let path = folder.folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    let (driver, keys) = driver.split_once('?').unwrap_or((driver, ""));
    (format!("{driver}:{}?{keys}", path.display()), folder)
}

/// Returns a bio of any kind, on the tag's own 4 KiB.
fn any_bio(kind: u64, tag: usize, buf: &mut [u8]) -> Bio {
    let at = tag as u64 * 4096;
    match kind % 8 {
        0 => Bio::flush(),
        1 => Bio::range(Op::WriteZeroes, at, 4096),
        2 => Bio::range(Op::Discard, at, 4096),
        3 | 4 => data(Op::Write, at, buf, 512),
        _ => data(Op::Read, at, buf, 4096),
    }
}

#[test]
fn one_waits_while_others_submit_and_reap() {
    const NR: u64 = 3000;
    for driver in with_vhost_user(ALL) {
        let (spec, _folder) = scratch(driver);
        let DriverQueue { driver, waiter } = queue(&spec, Mode::Shared);
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
                    turn(Some(any_bio(numbers.below(8), 3, &mut buf)));
                    if numbers.below(3) == 0 {
                        turn(None);
                    }
                    // The only tag is free when its request was reaped, by either thread.
                    while nr_done.load(Ordering::Acquire) <= nth {
                        thread::yield_now();
                    }
                }
            });
            while nr_done.load(Ordering::Acquire) < NR {
                // The submitter may reap the last one itself, so this wait has a timeout.
                waiter.wait(Some(Duration::from_millis(20)));
                turn(None);
            }
        });
    }
}

#[test]
fn a_wait_returns_earlier_completions() {
    for driver in with_vhost_user(ALL) {
        let (spec, _folder) = scratch(driver);
        let DriverQueue { mut driver, waiter } = queue(&spec, Mode::Shared);
        let begin = clock::now_ns();
        for _ in 0..100 {
            issue(&mut *driver, 0, Bio::flush());
            driver.commit_rqs();
            // The first wait may clear a signal; a completion that is not reaped ends all later
            // ones.
            (0..3).for_each(|_| waiter.wait(Some(LONG)));
            assert_eq!(reap(&mut *driver).len(), 1);
        }
        assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
    }
}

#[test]
fn a_wait_ends_with_requests_issued_meanwhile() {
    for driver in with_vhost_user(ALL) {
        let (spec, _folder) = scratch(driver);
        let DriverQueue { mut driver, waiter } = queue(&spec, Mode::Shared);
        let mut buf = Buf::new(4096);
        for round in 0..500u64 {
            let begin = clock::now_ns();
            thread::scope(|scope| {
                scope.spawn(|| waiter.wait(Some(LONG)));
                if round % 2 == 0 {
                    thread::sleep(Duration::from_micros(round));
                }
                issue(&mut *driver, 0, any_bio(round, 0, &mut buf));
                driver.commit_rqs();
            });
            assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
            // A signal that an earlier wait did not need may have ended this one early.
            let mut nr = reap(&mut *driver).len();
            while nr == 0 {
                waiter.wait(Some(LONG));
                nr = reap(&mut *driver).len();
            }
            assert_eq!(nr, 1);
        }
    }
}

#[test]
fn no_kick_is_missed() {
    for driver in with_vhost_user(ALL) {
        let (spec, _folder) = scratch(driver);
        let DriverQueue { mut driver, waiter } = queue(&spec, Mode::Shared);
        let mut numbers = Numbers(3);
        let nr_back = AtomicU64::new(0);
        let rounds = 3000u64;
        let begin = clock::now_ns();
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    waiter.wait(Some(LONG));
                    let round = nr_back.fetch_add(1, Ordering::AcqRel) + 1;
                    // Waits until the completion was reaped, which would end the next wait as well.
                    while nr_back.load(Ordering::Acquire) == round {
                        thread::yield_now();
                    }
                }
            });
            for round in 0..rounds {
                // The kick comes before the wait, on its way into the kernel, or when the thread
                // sleeps.
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
}

#[test]
fn several_kicks_are_one_and_a_wait_without_a_reason_lasts() {
    for driver in with_vhost_user(ALL) {
        let (spec, _folder) = scratch(driver);
        let DriverQueue { mut driver, waiter } = queue(&spec, Mode::Shared);
        driver.kick();
        driver.kick();
        waiter.wait(Some(LONG));
        assert!(reap(&mut *driver).is_empty(), "a kick is nobody's completion");
        for timeout in [Duration::ZERO, Duration::from_millis(3)] {
            let begin = clock::now_ns();
            waiter.wait(Some(timeout));
            let took = clock::now_ns() - begin;
            assert!(took >= timeout.as_nanos() as u64 && took < LONG.as_nanos() as u64, "{spec}");
        }
    }
}

#[test]
fn an_owner_waits_for_as_many_as_it_asks_for() {
    for driver in with_vhost_user(ALL) {
        let (spec, _folder) = scratch(driver);
        let mut driver = queue(&spec, Mode::Owned).driver;
        let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::new(4096)).collect();
        for round in 1..200u64 {
            let nr = (round % u64::from(DEPTH)) as usize + 1;
            for (tag, buf) in bufs.iter_mut().enumerate().take(nr) {
                issue(&mut *driver, tag, any_bio(round + tag as u64 % 3, tag, buf));
            }
            if round % 3 == 0 {
                driver.commit_rqs();
            }
            let mut nr_done = 0;
            while nr_done < nr {
                driver.wait((nr - nr_done) as u32, None);
                nr_done += reap(&mut *driver).len();
            }
            assert_eq!(nr_done, nr);
        }
    }
}

#[test]
fn descriptor_signals_every_completion() {
    for driver in with_vhost_user(POLLED) {
        for mode in [Mode::Owned, Mode::Shared] {
            let (spec, _folder) = scratch(driver);
            let DriverQueue { mut driver, waiter } = queue(&spec, mode);
            let mut buf = Buf::new(4096);
            // This request precedes the descriptor, which must become readable for it as well.
            issue(&mut *driver, 9, Bio::flush());
            driver.commit_rqs();
            let fd = waiter.poll_fd().expect("no error").expect("a descriptor");
            let mut nr = 0;
            while nr == 0 {
                assert!(is_readable(fd, 100_000), "{spec} {mode:?}");
                waiter.ack_poll();
                nr = reap(&mut *driver).len();
            }
            assert!(reap(&mut *driver).is_empty());
            for kind in 0..200 {
                // A signal may come late, after its completions were reaped.
                let mut nr_late = 0;
                while is_readable(fd, 0) {
                    waiter.ack_poll();
                    assert!(reap(&mut *driver).is_empty());
                    nr_late += 1;
                    assert!(nr_late < 3, "{spec} {mode:?} {kind}");
                }
                issue(&mut *driver, 0, any_bio(kind, 0, &mut buf));
                driver.commit_rqs();
                let mut nr = 0;
                while nr == 0 {
                    // The layer checks `has_ready` after a commit.
                    if !driver.has_ready() {
                        assert!(is_readable(fd, 100_000), "{spec} {mode:?} {kind}");
                        waiter.ack_poll();
                    }
                    nr = reap(&mut *driver).len();
                }
            }
        }
    }
}

#[test]
fn requests_of_an_ended_thread_complete() {
    for driver in FILES {
        for keys in ["", "&direct=on"] {
            let (spec, folder) = scratch(driver);
            let DriverQueue { mut driver, waiter } = queue(&(spec.clone() + keys), Mode::Shared);
            let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::new(4096)).collect();
            for round in 0..30 {
                // Reads of uncached data continue in the kernel after the reading thread has ended.
                forget(&folder.folder.path().join("disk.img"));
                thread::scope(|scope| {
                    scope.spawn(|| {
                        for (tag, buf) in bufs.iter_mut().enumerate() {
                            let kind = tag + round;
                            let kind = if kind % 8 == 3 { 5 } else { kind as u64 };
                            let bio = match kind % 8 {
                                4 => data(Op::Write, tag as u64 * 4096, buf, 4096),
                                _ => any_bio(kind, tag, buf),
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
                        // The file system may be unable to zero ranges; everything else works.
                        let is_good = matches!(done.result, Ok(_) | Err(BlockStatus::NotSupported));
                        assert!(is_good, "{spec}{keys} {done:?}");
                        nr += 1;
                    }
                }
            }
        }
    }
}

#[test]
fn queues_of_one_device_do_not_starve_each_other() {
    for driver in with_vhost_user(ALL) {
        let (spec, _folder) = scratch(driver);
        let keys = if driver == "psync" { "&nr_threads=1" } else { "" };
        let device = device(&(spec + keys));
        thread::scope(|scope| {
            for thread in 0..4u64 {
                let device = &device;
                scope.spawn(move || {
                    let mut driver = device.open_queue(DEPTH, Mode::Owned).expect("a queue").driver;
                    let mut bufs: Vec<Buf> = (0..8).map(|_| Buf::new(4096)).collect();
                    for round in 0..100 {
                        for (tag, buf) in bufs.iter_mut().enumerate() {
                            issue(&mut *driver, tag, any_bio(round + thread, tag, buf));
                        }
                        let mut nr = 0;
                        while nr < 8 {
                            driver.wait(8 - nr as u32, None);
                            nr += reap(&mut *driver).len();
                        }
                    }
                });
            }
        });
    }
}
