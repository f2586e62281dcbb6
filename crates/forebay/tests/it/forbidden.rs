//! A program that forbids `io_uring_enter` by a seccomp filter, after it has opened a disk: I/O
//! ends with a status, the disk says why, and it can be closed.

use crate::common::{Scratch, open, reap_all, submit};
use crate::futures::block_on;
use crate::progress::await_readable;
use crate::seccomp;
use forebay::{BlockStatus, Buf, Disk, Io, IoError};

/// Runs `use_it` in a thread, with and after a filter that forbids the call there.
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
    // No thread gets at a device that is gone.
    let refused = disk.read_at(&mut Buf::new(4096), 0);
    assert_eq!(refused, Err(IoError::Ended(BlockStatus::Offline)));
}

const KEYS: [&str; 4] = ["nr_hw_queues=1", "nr_hw_queues=2", "direct=on", "service=on&direct=on"];

#[test]
fn a_blocking_call_ends_as_offline() {
    let scratch = Scratch::new(1 << 20);
    for keys in KEYS {
        let disk = open(&scratch.spec(keys));
        let read = || disk.read_at(&mut Buf::new(4096), 0);
        let before = || assert_eq!(read(), Ok(4096));
        // Some kinds of rings read from the page cache without a call.
        let flush = || assert_eq!(disk.flush(), Err(IoError::Ended(BlockStatus::Offline)));
        forbid(&disk, before, flush);
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
                let mut queue = disk.queue();
                for n in 0..4 {
                    submit(&mut queue, Io::read(Buf::new(4096), n * 8192));
                }
                let done = reap_all(&mut queue);
                assert_eq!(done.len(), 4);
                assert!(done.iter().all(|done| done.result == Err(BlockStatus::Offline)));
            },
        );
        let disk = open(&scratch.spec(keys));
        forbid(
            &disk,
            || {},
            || {
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
                assert!(done.iter().all(|done| done.result == Err(BlockStatus::Offline)));
            },
        );
    }
}

/// The thread of the disk waits in the kernel already, by a call that nothing can end any more.
#[test]
fn a_future_ends_as_offline_and_the_disk_can_be_closed() {
    let scratch = Scratch::new(1 << 20);
    for keys in KEYS {
        let disk = open(&scratch.spec(keys));
        let read = || block_on(disk.start(Io::read(Buf::new(4096), 0)), keys).expect("taken");
        let flush = || block_on(disk.start(Io::flush()), keys).expect("taken").result;
        let before = || assert_eq!(read().result, Ok(4096));
        forbid(&disk, before, || assert_eq!(flush(), Err(BlockStatus::Offline)));
        drop(disk);
    }
}
