//! Tests of cancellations in a ring on a pipe. A read of an empty pipe does not complete by itself.

use super::LONG;
use crate::buf::Buf;
use crate::claim::QueueFile;
use crate::driver::file::commands::Commands;
use crate::driver::file::enter::Kernel;
use crate::driver::file::restrictions;
use crate::driver::file::uring::UringDriver;
use crate::driver::file::waiter::UringWaiter;
use crate::driver::testing::{DEPTH, data, issue, ranges, reap};
use crate::driver::{Mode, Waiter};
use crate::sys::clock;
use forebay_core::{BlockStatus, Completed, Driver, Op, QueueLimits, Tag};
use io_uring::IoUring;
use std::fs::File;
use std::io::{PipeWriter, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Returns a driver with a restricted ring on a pipe, its waiter, and the other end of the pipe.
fn on_a_pipe(mode: Mode) -> (UringDriver<Kernel>, UringWaiter, PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let file = Arc::new(QueueFile::new(File::from(OwnedFd::from(reader)), false));
    let mut builder = IoUring::builder();
    builder.setup_r_disabled();
    if mode == Mode::Owned {
        builder.setup_single_issuer();
    }
    let ring = builder.build(DEPTH).expect("a ring");
    ring.submitter().register_files(&[file.as_raw_fd()]).expect("a place for a file");
    restrictions::enable(&ring).expect("a ring that is enabled");
    let limits = QueueLimits::default().max_segments(8);
    let commands = Commands::new(&limits, DEPTH, None);
    let driver = UringDriver::new(ring, Kernel, None, mode, file, ranges(), commands);
    let left = Arc::clone(driver.left());
    let waiter = UringWaiter::new(driver.ring(), None, left, None).expect("a descriptor");
    (driver, waiter, writer)
}

/// Waits for one completion and reaps it.
fn reap_one(driver: &mut UringDriver<Kernel>) -> Completed {
    loop {
        driver.wait(1, Some(LONG));
        match reap(driver)[..] {
            [] => {}
            [done] => return done,
            [..] => panic!("one request ends"),
        }
    }
}

#[test]
fn cancelled_read_of_an_empty_pipe_completes_once() {
    for mode in [Mode::Owned, Mode::Shared] {
        let (mut driver, waiter, mut writer) = on_a_pipe(mode);
        let mut bufs = [0; 2].map(|_| Buf::new(4096));
        for (tag, buf) in bufs.iter_mut().enumerate() {
            issue(&mut driver, tag, data(Op::Read, 0, buf, 4096));
        }
        driver.commit_rqs();
        let begin = clock::now_ns();
        match mode {
            Mode::Owned => driver.wait(1, Some(Duration::from_millis(5))),
            Mode::Shared => waiter.wait(Some(Duration::from_millis(5))),
        }
        assert!(clock::now_ns() - begin >= 5_000_000, "requests in flight end no wait");
        assert!(reap(&mut driver).is_empty());
        assert!(driver.cancel(Tag::from_index(1)));
        let mut done = Vec::new();
        while done.is_empty() {
            match mode {
                Mode::Owned => driver.wait(1, Some(LONG)),
                Mode::Shared => waiter.wait(Some(LONG)),
            }
            done = reap(&mut driver);
        }
        assert_eq!(done.len(), 1);
        assert_eq!((done[0].tag.index(), done[0].result), (1, Err(BlockStatus::Timeout)));
        // The tag is used again. The pipe gives its bytes to one of the reads.
        issue(&mut driver, 1, data(Op::Read, 0, &mut bufs[1], 4096));
        driver.commit_rqs();
        writer.write_all(&[7; 100]).expect("room in the pipe");
        let first = reap_one(&mut driver);
        assert_eq!(first.result, Ok(100));
        let other = Tag::from_index(1 - first.tag.index());
        assert!(driver.cancel(other));
        let second = reap_one(&mut driver);
        assert_eq!((second.tag, second.result), (other, Err(BlockStatus::Timeout)));
        assert!(bufs[first.tag.index()][..100].iter().all(|byte| *byte == 7));
        assert!(bufs[other.index()].iter().all(|byte| *byte == 0), "nothing was read");
    }
}

#[test]
fn cancellation_of_a_request_that_is_not_committed_follows_it() {
    let (mut driver, _, _writer) = on_a_pipe(Mode::Owned);
    let mut buf = Buf::new(4096);
    issue(&mut driver, 3, data(Op::Read, 0, &mut buf, 4096));
    assert!(driver.cancel(Tag::from_index(3)));
    let done = reap_one(&mut driver);
    assert_eq!((done.tag.index(), done.result), (3, Err(BlockStatus::Timeout)));
}

#[test]
fn cancellations_leave_room_for_every_completion() {
    let (mut driver, _, mut writer) = on_a_pipe(Mode::Shared);
    let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::new(8)).collect();
    for (tag, buf) in bufs.iter_mut().enumerate() {
        issue(&mut driver, tag, data(Op::Read, 0, buf, 8));
    }
    driver.commit_rqs();
    // There is no request of tag 0 any more after the first one.
    let nr = (0..1000).take_while(|_| driver.cancel(Tag::from_index(0))).count();
    assert!((1..=DEPTH as usize).contains(&nr), "{nr} cancellations at once");
    driver.kick();
    writer.write_all(&vec![1; 8 * DEPTH as usize]).expect("room in the pipe");
    let (mut nr_done, mut nr_cancelled) = (0, 0);
    while nr_done < DEPTH as usize {
        driver.wait(1, Some(LONG));
        for done in reap(&mut driver) {
            nr_done += 1;
            nr_cancelled += usize::from(done.result == Err(BlockStatus::Timeout));
        }
    }
    assert_eq!(nr_cancelled, 1);
    assert!(reap(&mut driver).is_empty());
}
