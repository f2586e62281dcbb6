//! Driving a file through io_uring.
//!
//! One ring for each queue. Each request is one submission entry, so a ring of as many entries as
//! there are tags is never full, and its completion queue, twice as long, never overflows. What was
//! queued is submitted with one system call per batch, and waiting submits and waits in one.
//!
//! A pushed entry may be taken by the kernel even if the call that submits it fails, so a request
//! is over only when its completion was seen.
//!
//! Only who uses the driver touches the ring; who waits beside it does not (see
//! [`waiter`](super::waiter)). A kick is an entry that does nothing: its completion ends the wait.
// It hands addresses to the kernel.
#![allow(unsafe_code)]

use super::commands::{Commands, GROW, PUNCH_HOLE, ZERO_AND_GROW, ZERO_RANGE};
use super::event::Event;
use crate::driver::Mode;
use crate::errno;
use forebay_core::{Completions, Driver, Issue, IssuedRequest, Look, Op, QueueLimits, Tag};
use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode};
use std::fs::File;
use std::sync::Arc;

/// What a kick's entry is called; requests have their tags' numbers.
const KICK: u64 = u64::MAX;

pub(super) struct UringDriver {
    ring: IoUring,
    /// What tells of completions, where the kernel defers them and somebody asked.
    event: Option<Arc<Event>>,
    mode: Mode,
    limits: QueueLimits,
    commands: Commands,
    nr_in_flight: u32,
    /// Entries that were pushed since the last commit.
    nr_uncommitted: u32,
    /// A kick's entry is in the ring, on either side.
    kicked: bool,
    /// The file system cannot zero a range.
    no_zero_range: bool,
    nr_syscalls: u64,
    /// Kept open for the ring.
    _file: Arc<File>,
}

impl UringDriver {
    /// A driver for a ring of at least `depth` entries, and one for kicks where it is shared, in
    /// whose table of files is `file` alone.
    pub(super) fn new(
        ring: IoUring,
        event: Option<Arc<Event>>,
        mode: Mode,
        file: Arc<File>,
        limits: QueueLimits,
        depth: u32,
    ) -> UringDriver {
        UringDriver {
            ring,
            event,
            mode,
            limits,
            commands: Commands::new(&limits, depth),
            nr_in_flight: 0,
            nr_uncommitted: 0,
            kicked: false,
            no_zero_range: false,
            nr_syscalls: 0,
            _file: file,
        }
    }

    /// How to do an operation on a range, at first. Zeroes behind the end of a file that grows make
    /// it grow, as a write would; a punched hole cannot.
    fn range_mode(&self, op: Op) -> i32 {
        match op {
            Op::WriteZeroes => match (self.limits.capacity_bytes, self.no_zero_range) {
                (None, false) => ZERO_AND_GROW,
                (None, true) => GROW,
                (Some(_), false) => ZERO_RANGE,
                (Some(_), true) => PUNCH_HOLE,
            },
            Op::Discard => PUNCH_HOLE,
            Op::Read | Op::Write | Op::Flush => 0,
        }
    }

    /// Pushes the entry for what a tag is doing.
    #[inline]
    fn push(&mut self, tag: Tag) {
        self.push_entry(self.commands.entry(tag).user_data(tag.index() as u64));
    }

    #[inline]
    fn push_entry(&mut self, entry: Entry) {
        // SAFETY: the memory of the segments stays valid until the completion was reaped (K2), and
        // the vectors live as long as the ring, a tag's part of them unchanged while it is in
        // flight. A kick has no memory.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has an entry for every tag");
    }

    /// Submits what was pushed, all of it, and waits for `nr` completions. May return early: on a
    /// signal, or when there are completions that the kernel wants taken first; what is not
    /// submitted then stays in the ring, for the next call.
    fn enter(&mut self, nr: u32) {
        loop {
            self.nr_syscalls += 1;
            match self.ring.submit_and_wait(nr as usize) {
                // The kernel may stop before the last entry, and then has not waited.
                Ok(_) if self.ring.submission().is_empty() => return,
                Ok(_) => continue,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) if nr > 0 => return,
                    Some(libc::EINTR) => {}
                    // Short of memory, or of room for completions: both pass.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                        if !self.ring.completion().is_empty() {
                            return;
                        }
                        std::thread::yield_now();
                    }
                    _ => panic!("io_uring_enter on a ring of our own: {error}"),
                },
            }
        }
    }

    /// Whether there is something that only a system call moves on. Entries that were queued but
    /// not committed do not count: their commit comes.
    fn needs_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || self.nr_uncommitted == 0 && !submission.is_empty()
    }

    /// Brings what only a system call moves on, where nothing is there: completions that the kernel
    /// has deferred, or entries that an early return left behind. Where somebody polls, it brings
    /// everything, since what came before the event was cleared is told of no more.
    #[inline]
    fn look_hard(&mut self) {
        if self.ring.completion().is_empty() && self.needs_enter() {
            self.enter(0);
        }
        while self.event.as_ref().is_some_and(|event| event.clear()) {
            self.nr_syscalls += 1;
            if !self.needs_enter() {
                return;
            }
            self.enter(0);
        }
    }

    /// Sends requests again, as the table has them now.
    #[cold]
    fn send_again(&mut self, tags: &[Tag]) {
        for tag in tags {
            // It is of no use to try this again: there was an answer.
            self.no_zero_range |= self.commands.of(*tag).goes_around_zero_range();
            self.push(*tag);
        }
        self.enter(0);
    }
}

impl Driver for UringDriver {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let mode = self.range_mode(rq.op);
        self.commands.note(rq, mode);
        self.push(rq.tag);
        self.nr_in_flight += 1;
        self.nr_uncommitted += 1;
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        self.nr_uncommitted = 0;
        self.enter(0);
    }

    fn reap(&mut self, done: &mut Completions, look: Look) {
        if self.nr_in_flight == 0 && !self.kicked && look == Look::Glance {
            return;
        }
        if look == Look::Hard {
            self.look_hard();
        }
        let mut again = Vec::new();
        for entry in self.ring.completion() {
            if entry.user_data() == KICK {
                self.kicked = false;
                continue;
            }
            let tag = Tag::from_index(entry.user_data() as usize);
            if self.commands.is_sent_again(tag, entry.result()) {
                again.push(tag);
                continue;
            }
            let command = self.commands.of(tag);
            let result = match entry.result() {
                moved if moved >= 0 && command.op.moves_data() => Ok(moved as u64),
                success if success >= 0 => Ok(command.len),
                failure => Err(errno::to_status(-failure)),
            };
            self.nr_in_flight -= 1;
            done.push(tag, result);
        }
        if !again.is_empty() {
            self.send_again(&again);
        }
    }

    fn wait(&mut self, nr_completions: u32) {
        self.nr_uncommitted = 0;
        self.enter(nr_completions);
    }

    /// The kick's completion stays in the ring until the waiting thread is back (K8), so it does
    /// not matter whether that was asleep in the kernel already. Where the kernel takes no entry
    /// now, there are completions, which end the wait as well.
    fn kick(&mut self) {
        let is_done = self.kicked && self.ring.submission().is_empty();
        if is_done || self.mode == Mode::Owned {
            return;
        }
        if !self.kicked {
            self.kicked = true;
            self.push_entry(opcode::Nop::new().build().user_data(KICK));
        }
        self.enter(0);
    }

    fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls
    }
}

impl Drop for UringDriver {
    /// The layer drains before it drops a driver: nothing is in flight whose memory could go away
    /// under the kernel.
    fn drop(&mut self) {
        assert!(self.nr_in_flight == 0 || std::thread::panicking(), "a driver is drained first");
        // The kernel takes a ring apart in its own time; the file is let go of now. If that fails,
        // it is let go of then.
        let _ = self.ring.submitter().unregister_files();
    }
}
