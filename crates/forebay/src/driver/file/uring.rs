//! Driving a file through io_uring.
//!
//! One ring for each queue. Each request is one submission entry, so a ring of as many entries as
//! there are tags is never full, and its completion queue, which has room for every tag and a kick,
//! never overflows. Entries are made and published at the commit, all at once, and submitted with
//! one system call; waiting submits and waits in one. (A ring that is full all the same is emptied
//! first: a kernel's thread that takes the entries, `sqpoll=on`, tells of it late.) Some writes
//! have no entry: the driver makes them itself (see [`inline`](super::inline)).
//!
//! A pushed entry may be taken by the kernel even if the call that submits it fails, so a request
//! is over only when its completion was seen.
//!
//! Only who uses the driver touches the ring; who waits beside it does not (see
//! [`waiter`](super::waiter)), but may submit what was left to it. A kick is an entry that does
//! nothing: its completion ends the wait.
// It hands addresses to the kernel.
#![allow(unsafe_code)]

use super::commands::Commands;
use super::enter::{Enter, Kernel};
use super::event::{self, Event};
use super::forbidden::{self, Forbidden};
use super::inline::Inline;
use super::waiter::Left;
use crate::driver::Mode;
use crate::driver::zeroing::{self, Ranges};
use forebay_core::{BlockStatus, Completions, Driver, Issue, IssuedRequest, Look, Op, Tag};
use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// What a kick's entry is called; requests have their tags' numbers.
const KICK: u64 = u64::MAX;

pub(super) struct UringDriver<E: Enter = Kernel> {
    ring: IoUring,
    kernel: E,
    /// What tells of completions, where the kernel defers them and somebody asked.
    event: Option<Arc<Event>>,
    /// Completions came, or may have, of which that does not tell.
    has_missed: bool,
    mode: Mode,
    /// A thread of the kernel takes what is published.
    polls: bool,
    /// Completions arrive within the system call alone.
    defers: bool,
    /// How ranges are changed, as far as is known by now.
    pub(super) ranges: Ranges,
    commands: Commands,
    /// Off at first.
    pub(super) inline: Inline,
    /// What was queued since the last commit; its entries are not in the ring yet.
    queued: Vec<Tag>,
    nr_in_flight: u32,
    /// A kick's entry is in the ring, on either side.
    kicked: bool,
    /// How many entries are left in the ring for the next wait beside the driver to submit.
    left: Arc<Left>,
    /// The end of the ring.
    pub(super) forbidden: Forbidden,
    nr_syscalls: u64,
    /// Kept open for the ring, too.
    file: Arc<File>,
}

impl<E: Enter> UringDriver<E> {
    /// A driver for a ring in whose table of files is `file` alone.
    ///
    /// # Panics
    /// If the completions of all tags, and a kick's, have no room in the ring.
    pub(super) fn new(
        ring: IoUring,
        kernel: E,
        event: Option<Arc<Event>>,
        mode: Mode,
        file: Arc<File>,
        ranges: Ranges,
        commands: Commands,
    ) -> UringDriver<E> {
        let depth = commands.depth();
        assert!(ring.params().cq_entries() > depth, "the ring has room for every completion");
        UringDriver {
            polls: ring.params().is_setup_sqpoll(),
            defers: event.is_some(),
            ring,
            kernel,
            event,
            has_missed: false,
            mode,
            ranges,
            commands,
            inline: Inline::off(),
            queued: Vec::with_capacity(depth as usize),
            nr_in_flight: 0,
            kicked: false,
            left: Arc::default(),
            forbidden: Forbidden::default(),
            nr_syscalls: 0,
            file,
        }
    }

    /// How to do an operation on a range, at first.
    fn range_mode(&self, op: Op) -> i32 {
        match op {
            Op::WriteZeroes => zeroing::first(self.ranges.grows, self.ranges.way),
            Op::Discard => self.ranges.discard,
            Op::Read | Op::Write | Op::Flush => 0,
        }
    }

    /// Puts the entries of all that was queued into the ring.
    #[inline]
    fn publish(&mut self) {
        let mut nr = 0;
        loop {
            if self.forbidden.is_over() {
                self.queued.drain(nr..).for_each(|tag| self.forbidden.fail(tag));
                return self.queued.clear();
            }
            let mut submission = self.ring.submission();
            self.forbidden.keep_last(submission.len());
            while let Some(tag) = self.queued.get(nr) {
                let entry = self.commands.entry(*tag).user_data(tag.index() as u64);
                // SAFETY: the memory of the segments stays valid until the completion was reaped
                // (K2), and the vectors live as long as the ring, a tag's part of them unchanged
                // while it is in flight.
                if unsafe { submission.push(&entry) }.is_err() {
                    break;
                }
                self.forbidden.pushed(tag.index() as u64);
                nr += 1;
            }
            drop(submission);
            if nr == self.queued.len() {
                return self.queued.clear();
            }
            self.make_room();
        }
    }

    /// The ring is full: has the kernel take what is in it.
    #[cold]
    fn make_room(&mut self) {
        self.enter(0);
        if self.ring.submission().is_full() {
            std::thread::yield_now();
        }
    }

    /// Puts a kick into the ring.
    fn push_kick(&mut self) {
        // Without a use for a file; but a ring that is restricted takes nothing that names none.
        let entry: Entry = opcode::Nop::new().build().flags(Flags::FIXED_FILE).user_data(KICK);
        // SAFETY: it has no memory.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.make_room();
            if self.forbidden.is_over() {
                return;
            }
        }
        let nr_before = self.ring.submission().len().saturating_sub(1);
        self.forbidden.keep_last(nr_before);
        self.forbidden.pushed(KICK);
    }

    /// Submits what is in the ring, all of it, and waits for `nr` completions. May return early: on
    /// a signal, or when there are completions that the kernel wants taken first; what is not
    /// submitted then stays in the ring, for the next call.
    fn enter(&mut self, nr: u32) {
        if self.forbidden.is_over() {
            return self.pause(nr);
        }
        match self.is_hushed() {
            true => self.enter_hushed(nr),
            false => self.enter_aloud(nr),
        }
    }

    /// Whether signals for what completes in a system call of ours are left out.
    #[inline]
    fn is_hushed(&self) -> bool {
        event::IS_HUSHED && self.event.as_ref().is_some_and(|event| event.is_used())
    }

    /// As `enter`, without signals; see [`event`].
    fn enter_hushed(&mut self, nr: u32) {
        self.ring.completion().disable_eventfd();
        self.enter_aloud(nr);
        self.ring.completion().enable_eventfd();
        fence(Ordering::SeqCst);
        self.has_missed = self.ring.submission().taskrun() || !self.ring.completion().is_empty();
    }

    fn enter_aloud(&mut self, nr: u32) {
        // Where a wait has it already, that finds fewer entries.
        self.left.leave(0);
        if self.polls && nr == 0 && !self.kernel_sleeps() {
            return;
        }
        loop {
            self.nr_syscalls += 1;
            match self.kernel.submit_and_wait(&self.ring, nr) {
                // The kernel may stop before the last entry, and then has not waited.
                Ok(_) if self.polls || self.ring.submission().is_empty() => return,
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
                    _ if forbidden::is_forbidden(&error) => return self.end_ring(&error),
                    _ => panic!("io_uring_enter on a ring of our own: {error}"),
                },
            }
        }
    }

    /// The system call is forbidden: the ring ends.
    #[cold]
    fn end_ring(&mut self, error: &io::Error) {
        self.forbidden.end(error);
        self.left.end_ring();
        self.end_entries();
        let nr_ended = self.forbidden.nr_failed() + self.inline.nr() + self.queued.len();
        let nr_left = (self.nr_in_flight as usize).saturating_sub(nr_ended);
        let is_lost = self.polls || self.defers && nr_left > self.ring.completion().len();
        assert!(!is_lost, "io_uring_enter with I/O in flight, which only it completes: {error}");
    }

    /// Ends what the kernel has not taken from a ring that has ended. If a wait is submitting, the
    /// turn that follows it does that: the kernel may still take some.
    #[cold]
    fn end_entries(&mut self) {
        self.left.take_back();
        if self.left.is_submitting() {
            return;
        }
        let nr = self.ring.submission().len();
        for name in self.forbidden.take_entries(nr) {
            match name {
                KICK => self.kicked = false,
                tag => self.forbidden.fail(Tag::from_index(tag as usize)),
            }
        }
    }

    /// In place of a system call that is forbidden: completions arrive by themselves.
    #[cold]
    fn pause(&mut self, nr: u32) {
        if nr > 0 && self.forbidden.nr_failed() == 0 && self.ring.completion().is_empty() {
            std::thread::sleep(forbidden::PAUSE);
        }
    }

    /// Whether the kernel's thread sleeps, and must be woken to see what was published.
    ///
    /// It says that it is going to sleep, then looks at the tail once more; we publish the tail,
    /// then look whether it has said so. Each is a store before a load of something else, which a
    /// processor may swap: release and acquire do not forbid that, a full fence does. There is one
    /// on its side, and one in `need_wakeup`, before the load. So one of us comes second.
    #[inline]
    fn kernel_sleeps(&mut self) -> bool {
        self.ring.submission().need_wakeup()
    }

    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// How many entries are left to the wait beside the driver; for that.
    pub(super) fn left(&self) -> &Arc<Left> {
        &self.left
    }

    /// Whether there is something that only a system call moves on, and nobody is about to make it.
    #[inline]
    fn needs_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || !submission.is_empty() && self.left.is_none()
    }

    /// Brings what only a system call moves on, where nothing is there: completions that the kernel
    /// has deferred, or entries that an early return left behind. Where somebody polls, it brings
    /// everything: the event tells once of what is deferred.
    #[inline]
    fn look_hard(&mut self) {
        match self.event.as_ref().is_some_and(|event| event.is_used()) {
            true => self.look_for_poll(),
            false if self.ring.completion().is_empty() && self.needs_enter() => self.enter(0),
            false => {}
        }
    }

    /// Clears the event if it was found readable, or if work is deferred, which has most likely
    /// signalled it. The event is cleared before the deferred work is fetched, so later work
    /// signals it again.
    ///
    /// Enters the kernel twice at most. The kernel sets its mark after it adds deferred work to its
    /// list. If the work is fetched in between, the mark stays set, with no work behind it, until
    /// more arrives; a loop until the mark is clear might never end. But the mark may also stand
    /// for work that arrived while signals were suppressed. So the second call does not suppress
    /// them, and later work signals the event.
    fn look_for_poll(&mut self) {
        let is_told = self.event.as_ref().is_some_and(|event| event.was_told());
        if is_told || self.ring.submission().taskrun() {
            self.clear_event();
        }
        if !self.needs_enter() {
            return;
        }
        self.enter(0);
        if self.needs_enter() {
            self.clear_event();
            self.enter_aloud(0);
        }
    }

    fn clear_event(&mut self) {
        if let Some(event) = &self.event {
            self.nr_syscalls += 1;
            event.clear();
        }
    }

    /// Makes the writes that have no entry, once what is in the ring was begun. That brings the
    /// completions that a commit is to bring, too.
    fn write_inline(&mut self) {
        if self.needs_enter() {
            self.enter(0);
        }
        self.inline.make(&self.commands, &self.file, &mut self.nr_syscalls);
    }

    /// Sends requests again, as the table has them now.
    #[cold]
    fn send_again(&mut self, tags: Vec<Tag>) {
        for tag in tags {
            self.commands.of(tag).teach(&mut self.ranges);
            self.queued.push(tag);
        }
        self.publish();
        self.enter(0);
    }
}

impl<E: Enter> Driver for UringDriver<E> {
    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        if self.forbidden.is_over() {
            return Issue::Failed(BlockStatus::Offline);
        }
        let mode = self.range_mode(rq.op);
        self.commands.note(rq, mode);
        self.inline.take(rq, &mut self.queued);
        self.nr_in_flight += 1;
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        self.publish();
        match self.inline.end_batch() {
            true => self.write_inline(),
            false => self.enter(0),
        }
    }

    fn reap(&mut self, done: &mut Completions, look: Look) {
        if self.nr_in_flight == 0 && !self.kicked && look == Look::Glance {
            return;
        }
        if look == Look::Hard {
            self.look_hard();
        }
        if self.forbidden.has_entries() {
            self.end_entries();
        }
        // A glance leaves what is deferred.
        self.has_missed &= look == Look::Glance && self.ring.submission().taskrun();
        let mut again = Vec::new();
        let UringDriver { ring, commands, inline, kicked, nr_in_flight, forbidden, .. } = self;
        let mut ended = |tag, answer| match commands.ended(tag, answer) {
            Some(result) => {
                *nr_in_flight -= 1;
                done.push(tag, result);
            }
            None => again.push(tag),
        };
        for entry in ring.completion() {
            if entry.user_data() == KICK {
                *kicked = false;
                continue;
            }
            ended(Tag::from_index(entry.user_data() as usize), entry.result());
        }
        inline.done().for_each(|(tag, answer)| ended(tag, answer));
        if forbidden.nr_failed() > 0 {
            forbidden.failed().for_each(|(tag, answer)| ended(tag, answer));
        }
        if !again.is_empty() {
            self.send_again(again);
        }
        // What an early return has left in the ring: it is not sure that somebody else comes.
        if look == Look::Hard && self.mode == Mode::Shared && self.needs_enter() {
            self.enter(0);
        }
    }

    fn leave_to_wait(&mut self) {
        if self.polls || self.mode == Mode::Owned {
            return self.commit_rqs();
        }
        self.publish();
        let nr = self.ring.submission().len();
        if !self.forbidden.is_over() {
            self.left.leave(nr as u32);
        }
    }

    fn wait(&mut self, nr_completions: u32) {
        self.publish();
        if self.inline.end_batch() {
            self.write_inline();
        }
        let nr_done = self.inline.nr_done() + self.forbidden.nr_failed();
        match nr_completions.saturating_sub(nr_done as u32) {
            0 if !self.needs_enter() => {}
            nr => self.enter(nr),
        }
    }

    /// The kick's completion stays in the ring until the waiting thread returns (K8), so it also
    /// ends a wait that has not reached the kernel yet. If the kernel accepts no entry now, the
    /// ring holds completions, which end the wait as well.
    fn kick(&mut self) {
        let is_done = self.kicked && self.ring.submission().is_empty();
        // The waits of a ring that has ended are short.
        if is_done || self.mode == Mode::Owned || self.forbidden.is_over() {
            return;
        }
        if !self.kicked {
            self.kicked = true;
            self.push_kick();
        }
        self.enter(0);
    }

    fn has_ready(&self) -> bool {
        self.has_missed || self.inline.nr_done() > 0 || self.forbidden.nr_failed() > 0
    }

    fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls
    }
}

impl<E: Enter> Drop for UringDriver<E> {
    /// The layer drains before it drops a driver: nothing is in flight whose memory could go away
    /// under the kernel.
    fn drop(&mut self) {
        assert!(self.nr_in_flight == 0 || std::thread::panicking(), "a driver is drained first");
        // The kernel takes a ring apart in its own time; the file is let go of now, and memory is
        // unlocked. If that fails, it is done then.
        if self.commands.has_arena() {
            let _ = self.ring.submitter().unregister_buffers();
        }
        let _ = self.ring.submitter().unregister_files();
    }
}
