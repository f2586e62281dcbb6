//! A seccomp filter that forbids `io_uring_enter` after a disk was opened: I/O ends with a status,
//! the disk reports the reason, and it can be closed.

use crate::common::{Scratch, open, reap_all, submit};
use crate::event_loop::await_readable;
use crate::futures::block_on;
use crate::seccomp;
use forebay::{BlockStatus, Buf, Disk, Io, IoError};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Calls `before`, installs the filter, and calls `after`, all in one new thread.
fn forbid(disk: &Disk, before: impl FnOnce() + Send, after: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let work = || {
            before();
            seccomp::refuse([(libc::SYS_io_uring_enter, libc::EPERM)]).expect("a filter");
            after();
            assert!(disk.is_failed());
            let failure = disk.failure().expect("the disk says why");
            assert!(failure.contains("io_uring_enter") && failure.contains("seccomp"), "{failure}");
        };
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    // Other threads cannot use the failed device either.
    let refused = disk.read_at(&mut Buf::new(4096), 0);
    assert_eq!(refused, Err(IoError::Ended(BlockStatus::Offline)));
}

/// Repeats I/O until all of it ends as offline. The thread of a disk with `service=on` has no
/// filter, and may issue I/O that it finds; I/O that this thread issues itself fails.
fn until_offline(keys: &str, io: impl Fn() -> Vec<Result<u64, BlockStatus>>) {
    let is_offline = |result: &Result<u64, BlockStatus>| *result == Err(BlockStatus::Offline);
    loop {
        let results = io();
        if results.iter().all(is_offline) {
            return;
        }
        assert!(keys.contains("service=on"), "{keys}: {results:?}");
    }
}

const KEYS: [&str; 4] = ["nr_hw_queues=1", "nr_hw_queues=2", "direct=on", "service=on&direct=on"];

#[test]
fn blocking_call_through_the_ring_ends_as_offline_and_reads_and_flushes_work() {
    let scratch = Scratch::new(1 << 20);
    for keys in KEYS {
        let disk = open(&scratch.spec(keys));
        let read = || disk.read_at(&mut Buf::new(4096), 0);
        let before = || assert_eq!(read(), Ok(4096));
        let zero = || {
            // The thread makes these calls itself.
            assert_eq!((read(), disk.flush()), (Ok(4096), Ok(())), "{keys}");
            until_offline(keys, || match disk.write_zeroes(0, 4096) {
                Ok(()) => vec![Ok(0)],
                Err(IoError::Ended(status)) => vec![Err(status)],
                Err(error) => panic!("{keys}: {error}"),
            });
        };
        forbid(&disk, before, zero);
        drop(disk);
    }
}

#[test]
fn a_queue_ends_as_offline_and_its_descriptor_says_so() {
    let scratch = Scratch::new(1 << 20);
    for keys in KEYS {
        let disk = open(&scratch.spec(keys));
        forbid(
            &disk,
            || {},
            || {
                until_offline(keys, || {
                    let mut queue = disk.queue();
                    for n in 0..4 {
                        submit(&mut queue, Io::read(Buf::new(4096), n * 8192));
                    }
                    reap_all(&mut queue).iter().map(|done| done.result).collect()
                });
            },
        );
        let disk = open(&scratch.spec(keys));
        forbid(
            &disk,
            || {},
            || {
                until_offline(keys, || {
                    let (mut queue, mut done) = (disk.queue(), Vec::new());
                    queue.poll_fd().expect("a descriptor");
                    let plug = forebay::plug();
                    for n in 0..4 {
                        submit(&mut queue, Io::write(Buf::new(4096), n * 8192).fua());
                    }
                    drop(plug);
                    while !queue.is_empty() {
                        await_readable(queue.poll_fd().expect("a descriptor"), keys);
                        queue.reap(0, 8, &mut done);
                    }
                    done.iter().map(|done| done.result).collect()
                });
            },
        );
    }
}

/// The disk's thread is already waiting in the kernel, in a call that nothing can interrupt any
/// more.
#[test]
fn a_future_ends_as_offline_and_the_disk_can_be_closed() {
    let scratch = Scratch::new(1 << 20);
    for keys in KEYS {
        let disk = open(&scratch.spec(keys));
        let read = || block_on(disk.start(Io::read(Buf::new(4096), 0)), keys).expect("taken");
        let flush = || block_on(disk.start(Io::flush()), keys).expect("taken").result;
        let before = || assert_eq!(read().result, Ok(4096));
        forbid(&disk, before, || until_offline(keys, || vec![flush()]));
        drop(disk);
    }
}

/// Runs `use_it` in another thread, and panics if it does not return in time.
fn within_time(disk: &Disk, use_it: impl FnOnce(&Disk) + Send + 'static, whose: &str) {
    let (disk, (end, ended)) = (disk.clone(), channel());
    let thread = thread::spawn(move || {
        use_it(&disk);
        drop(disk);
        end.send(()).expect("the test waits");
    });
    // A panic of the thread also closes the channel.
    let is_late = ended.recv_timeout(Duration::from_secs(20))
        == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
    assert!(!is_late, "{whose}: a call does not return");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// One context of a disk has an owner whose ring has failed. Another thread uses the shared
/// context, either before the owner reaps or after the owner has reaped and revived the disk.
fn read_beside_an_ended_ring(keys: &'static str, is_revived: bool) {
    let scratch = Scratch::new(1 << 20);
    let disk = &open(&scratch.spec(keys));
    let (to_owner, from_test) = channel();
    let (to_test, from_owner) = channel();
    // Both channel ends move into the threads, so a panic of one thread ends the other.
    thread::scope(move |scope| {
        scope.spawn(move || {
            let mut queue = disk.queue();
            seccomp::refuse([(libc::SYS_io_uring_enter, libc::EPERM)]).expect("a filter");
            submit(&mut queue, Io::read(Buf::new(4096), 0));
            if is_revived {
                let done = reap_all(&mut queue);
                assert_eq!(done[0].result, Err(BlockStatus::Offline));
                assert!(disk.is_failed());
                disk.revive();
            }
            to_test.send(()).expect("the test waits");
            from_test.recv().expect("the test goes on");
        });
        from_owner.recv().expect("the ring has ended");
        assert!(!disk.is_failed());
        let reads = |disk: &Disk| {
            for n in 0..4 {
                assert_eq!(disk.read_at(&mut Buf::new(4096), n * 4096), Ok(4096));
            }
            assert_eq!(disk.flush(), Ok(()));
        };
        within_time(disk, reads, keys);
        to_owner.send(()).expect("the owner waits");
    });
}

const OWNED_KEYS: [&str; 2] = ["nr_hw_queues=2&direct=on", "nr_hw_queues=2&direct=on&service=on"];

#[test]
fn blocking_calls_return_while_the_ring_of_another_context_has_ended() {
    OWNED_KEYS.into_iter().for_each(|keys| read_beside_an_ended_ring(keys, false));
}

#[test]
fn blocking_calls_return_after_a_disk_with_an_ended_ring_was_revived() {
    OWNED_KEYS.into_iter().for_each(|keys| read_beside_an_ended_ring(keys, true));
}
