//! Tests with scripted results of the system call: entries that the kernel refuses at first
//! complete in the end, exactly once.
// It makes a system call with numbers of its own.
#![allow(unsafe_code)]

use super::LONG;
use crate::buf::Buf;
use crate::claim::QueueFile;
use crate::driver::file::commands::Commands;
use crate::driver::file::enter::{Enter, Kernel};
use crate::driver::file::forbidden::{Forbidden, Verdict};
use crate::driver::file::inline::{Inline, Writes};
use crate::driver::file::uring::UringDriver;
use crate::driver::file::waiter::UringWaiter;
use crate::driver::testing::{DEPTH, data, issue, ranges, reap};
use crate::driver::zeroing::{self, Ranges, Way};
use crate::driver::{Mode, Waiter};
use crate::sys::clock;
use forebay_core::{
    Bio, BlockStatus, Completions, Driver, Issue, IssuedRequest, Op, QueueLimits, Reap, Tag,
};
use io_uring::IoUring;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The result of one call.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// The kernel takes at most this many entries and does not wait.
    Takes(u32),
    /// The kernel takes nothing and fails.
    Fails(i32),
    /// The kernel takes everything and fails nevertheless: a signal came.
    TakesAndFails(i32),
}

/// The results still to be returned; after them the kernel returns its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Script(Arc<Mutex<VecDeque<Answer>>>);

impl Script {
    fn then(&self, answers: &[Answer]) {
        self.0.lock().expect("no panic").extend(answers);
    }

    fn is_over(&self) -> bool {
        self.0.lock().expect("no panic").is_empty()
    }
}

impl Enter for Script {
    fn submit_and_wait(
        &mut self,
        ring: &IoUring,
        nr_to_wait_for: u32,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let next = self.0.lock().expect("no panic").pop_front();
        match next {
            None => Kernel.submit_and_wait(ring, nr_to_wait_for, timeout),
            // SAFETY: numbers only; the entries in the ring may be submitted.
            Some(Answer::Takes(nr)) => unsafe {
                ring.submitter().enter::<libc::sigset_t>(nr, 0, 0, None)
            },
            Some(Answer::Fails(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Answer::TakesAndFails(errno)) => {
                ring.submit()?;
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }
}

/// Returns a driver with a ring of `entries` on a file of ascending bytes, and its waiter.
pub(super) fn scripted(
    entries: u32,
    mode: Mode,
) -> (UringDriver<Script>, UringWaiter, Script, File) {
    let ring = IoUring::builder().setup_cqsize(2 * DEPTH).build(entries).expect("a ring");
    let file = tempfile::tempfile().expect("a scratch file");
    let bytes: Vec<u8> = (0..1 << 16).map(|at: u32| (at / 256) as u8).collect();
    file.write_all_at(&bytes, 0).expect("a scratch file");
    ring.submitter().register_files(&[file.as_raw_fd()]).expect("a place for a file");
    let script = Script::default();
    let limits = QueueLimits::default()
        .capacity_bytes(Some(1 << 16))
        .logical_block_size(1)
        .volatile_cache(true)
        .max_segments(8);
    let kept = Arc::new(QueueFile::new(file.try_clone().expect("a descriptor"), false));
    let commands = Commands::new(&limits, DEPTH, None);
    let driver = UringDriver::new(ring, script.clone(), None, mode, kept, ranges(), commands);
    let left = Arc::clone(driver.left());
    let waiter = UringWaiter::new(driver.ring(), None, left, None).expect("a descriptor");
    (driver, waiter, script, file)
}

/// Returns the bio of a tag, with a length of its own: reads, writes that change nothing, flushes.
fn bio_of(tag: usize, buf: &mut [u8]) -> (Bio, u64) {
    let (start, len) = (256 * tag, tag + 1);
    match tag % 4 {
        3 => (Bio::flush(), 0),
        2 => {
            buf.fill(tag as u8);
            (data(Op::Write, start as u64, &mut buf[..len], 16), len as u64)
        }
        _ => {
            buf.fill(!0);
            (data(Op::Read, start as u64, &mut buf[..len], len), len as u64)
        }
    }
}

/// Issues `nr` requests, commits them as one batch, and reaps until each has ended exactly once
/// with its own result and bytes. Waits in between as `mode` permits.
fn run_batch(driver: &mut UringDriver<Script>, waiter: &UringWaiter, mode: Mode, nr: usize) {
    let mut bufs: Vec<Buf> = (0..nr).map(|_| Buf::new(256)).collect();
    let mut expected = vec![None; nr];
    for (tag, buf) in bufs.iter_mut().enumerate() {
        let (bio, len) = bio_of(tag, buf);
        expected[tag] = Some(len);
        issue(driver, tag, bio);
    }
    driver.commit_rqs();
    let begin = clock::now_ns();
    while expected.iter().any(Option::is_some) {
        for done in reap(driver) {
            let tag = done.tag.index();
            let expected = expected[tag].take();
            assert_eq!(done.result.ok(), expected, "tag {tag} ends once, with its own length");
            let len = expected.unwrap_or(0) as usize;
            assert!(tag % 4 == 3 || bufs[tag][..len].iter().all(|byte| *byte == tag as u8));
        }
        if expected.iter().any(Option::is_some) {
            match mode {
                Mode::Owned => driver.wait(1, None),
                Mode::Shared => waiter.wait(Some(LONG)),
            }
        }
    }
    assert!(clock::now_ns() - begin < LONG.as_nanos() as u64, "no wait was for nothing");
}

const ANSWERS: [Answer; 10] = [
    Answer::Takes(0),
    Answer::Takes(1),
    Answer::Takes(5),
    Answer::Fails(libc::EAGAIN),
    Answer::Fails(libc::EBUSY),
    Answer::Fails(libc::ENOMEM),
    Answer::Fails(libc::EINTR),
    Answer::TakesAndFails(libc::EINTR),
    Answer::TakesAndFails(libc::EAGAIN),
    Answer::TakesAndFails(libc::EBUSY),
];

#[test]
fn shortage_of_the_kernel_does_not_outlast_the_timeout_of_a_wait() {
    for errno in [libc::EAGAIN, libc::EBUSY, libc::ENOMEM] {
        let (mut driver, _, script, _file) = scripted(DEPTH, Mode::Owned);
        let mut buf = Buf::new(256);
        issue(&mut driver, 0, bio_of(0, &mut buf).0);
        script.then(&vec![Answer::Fails(errno); 1_000_000]);
        let begin = clock::now_ns();
        driver.wait(1, Some(Duration::from_millis(5)));
        assert!(clock::now_ns() - begin >= 5_000_000);
        assert!(!script.is_over(), "it still fails");
        script.0.lock().expect("no panic").clear();
        driver.wait(1, None);
        assert_eq!(reap(&mut driver)[0].result, Ok(1), "the entry is still in the ring");
    }
}

#[test]
fn each_request_ends_once_with_its_own_result_for_any_kernel_answer() {
    for (mode, writes) in [
        (Mode::Owned, Writes::Ring("")),
        (Mode::Owned, Writes::Inline(1)),
        (Mode::Shared, Writes::Ring("")),
    ] {
        let (mut driver, waiter, script, _file) = scripted(DEPTH + 1, mode);
        driver.inline = Inline::new(writes, mode, DEPTH);
        for first in ANSWERS {
            for second in ANSWERS {
                script.then(&[first, second, first]);
                run_batch(&mut driver, &waiter, mode, 12);
                if mode == Mode::Shared {
                    // A kick gets the rest of the script.
                    driver.kick();
                    waiter.wait(Some(LONG));
                    assert!(reap(&mut driver).is_empty(), "a kick is nobody's completion");
                }
                while !script.is_over() {
                    driver.commit_rqs();
                }
            }
        }
    }
}

/// The kernel may want completions reaped first. A leader that waits beside the driver would then
/// wait forever for entries left in the ring.
#[test]
fn entries_left_in_the_ring_are_submitted_by_the_next_reap() {
    for errno in [libc::EAGAIN, libc::EBUSY, libc::ENOMEM] {
        let (mut driver, waiter, script, _file) = scripted(DEPTH + 1, Mode::Shared);
        issue(&mut driver, 0, Bio::flush());
        driver.commit_rqs();
        waiter.wait(Some(LONG));
        issue(&mut driver, 1, Bio::flush());
        script.then(&[Answer::Fails(errno)]);
        driver.commit_rqs();
        assert!(script.is_over());
        assert_eq!(reap(&mut driver).len(), 1, "the first has ended");
        let begin = clock::now_ns();
        waiter.wait(Some(LONG));
        assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
        assert_eq!(reap(&mut driver).len(), 1, "the second was submitted");
    }
}

#[test]
fn a_ring_that_is_smaller_than_a_batch_is_emptied_first() {
    for mode in [Mode::Owned, Mode::Shared] {
        for entries in [1, 2, 4, 32] {
            let (mut driver, waiter, script, _file) = scripted(entries, mode);
            run_batch(&mut driver, &waiter, mode, DEPTH as usize);
            script.then(&[Answer::Takes(1), Answer::Fails(libc::EINTR), Answer::Takes(0)]);
            run_batch(&mut driver, &waiter, mode, DEPTH as usize);
        }
    }
}

#[test]
fn a_kick_finds_room_where_the_ring_is_full() {
    let (mut driver, waiter, script, _file) = scripted(1, Mode::Shared);
    issue(&mut driver, 0, Bio::flush());
    // The entry stays in the ring, because a completion must be reaped first.
    driver.commit_rqs();
    waiter.wait(Some(LONG));
    issue(&mut driver, 1, Bio::flush());
    script.then(&[Answer::Fails(libc::EBUSY)]);
    driver.commit_rqs();
    driver.kick();
    waiter.wait(Some(LONG));
    let mut nr = 0;
    while nr < 2 {
        nr += reap(&mut driver).len();
    }
}

#[test]
#[should_panic(expected = "the ring has room for every completion")]
fn a_ring_whose_completions_could_overflow_is_refused() {
    let ring = IoUring::builder().setup_cqsize(DEPTH).build(1).expect("a ring");
    let file = Arc::new(QueueFile::new(tempfile::tempfile().expect("a scratch file"), false));
    let limits = QueueLimits::default().max_segments(8);
    let commands = Commands::new(&limits, DEPTH, None);
    UringDriver::new(ring, Script::default(), None, Mode::Shared, file, ranges(), commands);
}

#[test]
fn a_ring_is_filled_to_the_last_completion_and_loses_none() {
    let (mut driver, waiter, _, _file) = scripted(DEPTH + 1, Mode::Shared);
    for _ in 0..20 {
        for tag in 0..DEPTH as usize {
            issue(&mut driver, tag, Bio::flush());
        }
        driver.commit_rqs();
        driver.kick();
        let mut nr = 0;
        while nr < DEPTH as usize {
            waiter.wait(Some(LONG));
            nr += reap(&mut driver).len();
        }
    }
}

#[test]
fn requests_left_to_a_wait_are_submitted_with_one_call() {
    let (mut driver, waiter, _, _file) = scripted(DEPTH + 1, Mode::Shared);
    for round in 1..100 {
        issue(&mut driver, 0, Bio::flush());
        driver.leave_to_wait();
        waiter.wait(Some(LONG));
        assert_eq!(reap(&mut driver).len(), 1);
        assert_eq!((driver.nr_syscalls(), waiter.nr_syscalls()), (0, round));
    }
}

#[test]
fn requests_left_to_a_wait_are_not_lost_if_taken_back_or_committed() {
    let (mut driver, waiter, script, _file) = scripted(DEPTH + 1, Mode::Shared);
    for round in 0..100 {
        issue(&mut driver, 0, Bio::flush());
        driver.leave_to_wait();
        let mut nr_done = 0;
        match round % 3 {
            // No thread waits: the next reap submits it.
            0 => {
                assert!(waiter.take_back());
                nr_done += reap(&mut driver).len();
            }
            // Another thread commits first, so the wait has nothing to submit.
            1 => {
                issue(&mut driver, 1, Bio::flush());
                driver.commit_rqs();
                assert!(!waiter.take_back());
            }
            // The kernel refuses the commit at first. Here, too, the wait has nothing to submit.
            _ => {
                script.then(&[Answer::Fails(libc::EAGAIN)]);
                driver.commit_rqs();
            }
        }
        let nr = 1 + usize::from(round % 3 == 1);
        let begin = clock::now_ns();
        while nr_done < nr {
            waiter.wait(Some(LONG));
            nr_done += reap(&mut driver).len();
        }
        assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
        assert!(!waiter.take_back());
    }
}

/// A flush does not complete at once: a kernel worker makes it.
#[test]
fn a_thread_alone_submits_and_waits_with_one_call() {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    file.as_file().set_len(1 << 16).expect("a scratch file");
    let disk = crate::Disk::open(&file.path().display().to_string()).expect("a disk");
    let nr_before = disk.stats().nr_syscalls;
    (0..200).for_each(|_| disk.flush().expect("a good flush"));
    let nr = disk.stats().nr_syscalls - nr_before;
    // A wait may return early.
    assert!((200..300).contains(&nr), "{nr} system calls for 200 flushes");
}

#[test]
fn zeroes_are_written_where_the_file_system_has_no_other_way() {
    // One or several writes: their number depends on the maximum of segments.
    for len in [512, 1 << 16, (1 << 20) + 512] {
        for mode in [Mode::Owned, Mode::Shared] {
            let (mut driver, waiter, _, file) = scripted(DEPTH, mode);
            file.write_all_at(&vec![0xFF; 2 << 20], 0).expect("a scratch file");
            driver.ranges.way = Way::Write;
            issue(&mut driver, 3, Bio::range(Op::WriteZeroes, 512, len));
            driver.commit_rqs();
            let mut done = reap(&mut driver);
            while done.is_empty() {
                match mode {
                    Mode::Owned => driver.wait(1, None),
                    Mode::Shared => waiter.wait(None),
                }
                done = reap(&mut driver);
            }
            assert_eq!(done[0].result, Ok(len));
            let mut bytes = vec![1; 2 << 20];
            file.read_exact_at(&mut bytes, 0).expect("the file");
            let (before, rest) = bytes.split_at(512);
            let (zeroed, behind) = rest.split_at(len as usize);
            assert!(zeroed.iter().all(|byte| *byte == 0), "{len}");
            assert!(before.iter().chain(behind).all(|byte| *byte == 0xFF), "{len}");
        }
    }
}

#[test]
fn a_range_goes_from_way_to_way_until_one_is_there() {
    let limits = crate::driver::ideal_limits(1 << 30, 512).max_segments(8);
    let mut noted = Noted(Commands::new(&limits, DEPTH, None));
    let (tag, len) = (Tag::from_index(5), 3 << 16);
    issue(&mut noted, 5, Bio::range(Op::WriteZeroes, 0, len));
    let commands = &mut noted.0;
    let (discard, way) = (zeroing::PUNCH_HOLE, Way::ZeroRange);
    let mut ranges = Ranges { grows: false, discard, way, goes_on: true };
    for way in [Way::PunchHole, Way::Write] {
        assert_eq!(commands.ended(tag, -libc::EOPNOTSUPP), None);
        commands.of(tag).teach(&mut ranges);
        assert_eq!((ranges.way, ranges.discard), (way, discard));
    }
    // A partial write is continued; a write of no bytes fails.
    assert_eq!(commands.ended(tag, 1 << 16), None);
    assert_eq!(commands.ended(tag, 1 << 16), None);
    assert_eq!(commands.ended(tag, 1 << 16), Some(Ok(len)));
    issue(&mut noted, 5, Bio::range(Op::WriteZeroes, 0, len));
    let commands = &mut noted.0;
    assert_eq!(commands.ended(tag, -libc::ENOSPC), Some(Err(BlockStatus::NoSpace)));
}

#[test]
fn zeroes_are_not_gone_on_with_where_more_may_be_written_than_was_counted() {
    let limits = crate::driver::ideal_limits(1 << 30, 512).max_segments(2);
    let limits = limits.exact_counts(false);
    let mut noted = Noted(Commands::new(&limits, DEPTH, None));
    let (tag, len) = (Tag::from_index(5), 3 << 16);
    for (answers, end) in [([2 << 16, 1 << 16], Ok(len)), ([2 << 16, 512], Err(BlockStatus::Io))] {
        issue(&mut noted, 5, Bio::range(Op::WriteZeroes, 0, len));
        let commands = &mut noted.0;
        commands.ended(tag, -libc::EOPNOTSUPP);
        commands.ended(tag, -libc::EOPNOTSUPP);
        // A full write of both segments is not short: the next ones follow it.
        assert_eq!(commands.ended(tag, answers[0]), None);
        assert_eq!(commands.ended(tag, answers[1]), Some(end));
    }
}

/// Records a request as zeroing with one call.
struct Noted(Commands);

impl Driver for Noted {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _: bool) -> Issue {
        self.0.note(rq, zeroing::first(false, Way::ZeroRange));
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, _: &mut Completions, _: Reap) {}

    fn wait(&mut self, _: u32, _: Option<Duration>) {}
}

/// Issues a batch of `nr` requests and reaps until all have ended. Those that the kernel has taken
/// end with their own results, the others as `Offline`. Returns the number of the latter.
fn run_forbidden(
    driver: &mut UringDriver<Script>,
    waiter: &UringWaiter,
    mode: Mode,
    nr: usize,
) -> usize {
    let mut bufs: Vec<Buf> = (0..nr).map(|_| Buf::new(256)).collect();
    let mut expected = vec![None; nr];
    for (tag, buf) in bufs.iter_mut().enumerate() {
        let (bio, len) = bio_of(tag, buf);
        match issue(driver, tag, bio) {
            Issue::Queued => expected[tag] = Some(len),
            refused => assert_eq!(refused, Issue::Failed(BlockStatus::Offline)),
        }
    }
    let mut nr_offline = expected.iter().filter(|expected| expected.is_none()).count();
    driver.commit_rqs();
    while expected.iter().any(Option::is_some) {
        for done in reap(driver) {
            let own = expected[done.tag.index()].take().expect("each ends once");
            match done.result {
                Err(BlockStatus::Offline) => nr_offline += 1,
                result => assert_eq!(result, Ok(own), "tag {:?}", done.tag),
            }
        }
        match mode {
            _ if expected.iter().all(Option::is_none) => {}
            Mode::Owned => driver.wait(1, None),
            Mode::Shared => waiter.wait(Some(LONG)),
        }
    }
    nr_offline
}

/// A seccomp filter forbids the call after the disk was opened.
#[test]
fn a_forbidden_ring_ends_unsubmitted_requests_as_offline() {
    for (mode, writes) in [
        (Mode::Owned, Writes::Ring("")),
        (Mode::Owned, Writes::Inline(1)),
        (Mode::Shared, Writes::Ring("")),
    ] {
        for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
            for (first, nr_taken) in [(None, 0), (Some(Answer::Takes(5)), 5)] {
                let (mut driver, waiter, script, _file) = scripted(DEPTH + 1, mode);
                driver.inline = Inline::new(writes, mode, DEPTH);
                let verdict = Verdict::default();
                driver.forbidden = Forbidden::new(&verdict, 8);
                run_batch(&mut driver, &waiter, mode, 12);
                assert_eq!(verdict.text(), None);
                script.then(first.as_slice());
                script.then(&[Answer::Fails(errno)]);
                let nr_inline = if writes == Writes::Ring("") { 0 } else { 3 };
                let nr_offline = run_forbidden(&mut driver, &waiter, mode, 12);
                assert_eq!(nr_offline, 12 - nr_taken - nr_inline, "{mode:?}, errno {errno}");
                let text = verdict.text().expect("it is forbidden");
                assert!(text.contains("seccomp") && text.contains("engine=psync"), "{text}");
                driver.kick();
                waiter.wait(Some(Duration::ZERO));
                assert_eq!(run_forbidden(&mut driver, &waiter, mode, 12), 12);
            }
        }
    }
}

/// A waiting thread without the filter submits the entries left to it, while another thread has the
/// filter and cannot.
#[test]
fn request_that_a_wait_may_submit_is_not_ended_meanwhile() {
    let (mut driver, _waiter, script, _file) = scripted(DEPTH + 1, Mode::Shared);
    let mut buf = Buf::new(256);
    let (bio, len) = bio_of(1, &mut buf);
    issue(&mut driver, 1, bio);
    driver.leave_to_wait();
    let nr = driver.left().begin_submit();
    assert_eq!(nr, 1);
    issue(&mut driver, 3, Bio::flush());
    script.then(&[Answer::Fails(libc::EPERM)]);
    driver.commit_rqs();
    assert!(reap(&mut driver).is_empty(), "the kernel may take the first yet");
    // SAFETY: numbers only; the entries in the ring may be submitted.
    let taken = unsafe { driver.ring().submitter().enter::<libc::sigset_t>(nr, 1, 1, None) };
    assert_eq!(taken.expect("it may"), 1);
    driver.left().end_submit();
    let mut done: Vec<_> =
        reap(&mut driver).into_iter().map(|d| (d.tag.index(), d.result)).collect();
    done.sort_unstable_by_key(|(tag, _)| *tag);
    assert_eq!(done, [(1, Ok(len)), (3, Err(BlockStatus::Offline))]);
}
