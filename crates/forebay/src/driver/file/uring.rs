//! Driver for a file through io_uring.
//!
//! Each queue has one ring. Each request is one submission entry. The ring has at least as many
//! entries as there are tags, so it is never full. Its completion queue has room for every tag and
//! a kick, so it never overflows. A commit makes and publishes all entries at once and submits them
//! with one system call; a wait submits and waits in one call. (With `sqpoll=on` a kernel thread
//! takes the entries and updates the head late. If the ring seems to be full, the driver waits
//! until the kernel has taken entries.) Some writes have no entry: the driver makes them itself
//! (see [`inline`](super::inline)).
//!
//! The kernel may take a pushed entry even if the call that submits it fails. So a request ends
//! only when its completion is seen.
//!
//! Only the thread that uses the driver touches the ring. A thread that waits beside it does not
//! (see [`waiter`](super::waiter)), but it may submit the entries that the driver has left to it. A
//! kick is an entry that does nothing: its completion ends the wait.
// It hands addresses to the kernel.
#![allow(unsafe_code)]

use super::cancel::{CANCEL, Cancels};
use super::commands::Commands;
use super::enter::{Enter, Kernel};
use super::event::{self, Event};
use super::forbidden::{self, Forbidden};
use super::inline::Inline;
use super::registered::RingMemory;
use super::waiter::Left;
use crate::claim::QueueFile;
use crate::driver::Mode;
use crate::driver::deadline::Deadline;
use crate::driver::own_call::{self, OwnCalls};
use crate::driver::zeroing::{self, Ranges};
use forebay_core::{BlockStatus, Completions, Driver, Issue, IssuedRequest, Op, Reap, Tag};
use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The user data of a kick's entry. A request's user data is the number of its tag.
const KICK: u64 = u64::MAX;

pub(super) struct UringDriver<E: Enter = Kernel> {
    ring: IoUring,
    kernel: E,
    /// Eventfd for deferred completions. `None` if the kernel does not defer any.
    event: Option<Arc<Event>>,
    /// Completions have arrived, or may have, that the eventfd does not signal.
    has_missed: bool,
    mode: Mode,
    /// A kernel thread takes published entries (`sqpoll=on`).
    polls: bool,
    /// Completions arrive only within a system call.
    defers: bool,
    /// The ways to change ranges, as far as they are known by now.
    pub(super) ranges: Ranges,
    commands: Commands,
    /// The writes that have no entry; off at first.
    pub(super) inline: Inline,
    /// Tags queued since the last commit; their entries are not in the ring yet.
    queued: Vec<Tag>,
    nr_in_flight: u32,
    /// Results of the requests that threads make themselves, which `nr_in_flight` does not count.
    pub(super) own: Option<Arc<OwnCalls>>,
    nr_own: u32,
    /// A kick's entry is in the submission or completion queue.
    kicked: bool,
    cancels: Cancels,
    /// The number of entries left in the ring for the next wait beside the driver to submit.
    left: Arc<Left>,
    /// State of a ring that has ended because its system call is forbidden.
    pub(super) forbidden: Forbidden,
    nr_syscalls: u64,
    /// The file, also kept open for the ring.
    file: Arc<QueueFile>,
}

impl<E: Enter> UringDriver<E> {
    /// Creates a driver for a ring that has `file` as the only entry of its file table.
    ///
    /// # Panics
    /// Panics if the completion queue has no room for all tags and a kick.
    pub(super) fn new(
        ring: IoUring,
        kernel: E,
        event: Option<Arc<Event>>,
        mode: Mode,
        file: Arc<QueueFile>,
        ranges: Ranges,
        commands: Commands,
    ) -> UringDriver<E> {
        let depth = commands.depth();
        let nr_kicks = u32::from(mode == Mode::Shared);
        let room = ring.params().cq_entries().checked_sub(depth + nr_kicks);
        let room = room.expect("the ring has room for every completion");
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
            own: None,
            nr_own: 0,
            kicked: false,
            cancels: Cancels::new(room),
            left: Arc::default(),
            forbidden: Forbidden::default(),
            nr_syscalls: 0,
            file,
        }
    }

    /// Returns the first way to try for an operation on a range.
    fn range_mode(&self, op: Op) -> i32 {
        match op {
            Op::WriteZeroes => zeroing::first(self.ranges.grows, self.ranges.way),
            Op::Discard => self.ranges.discard,
            Op::Read | Op::Write | Op::Flush => 0,
        }
    }

    /// Pushes the entries of all queued requests into the ring.
    #[inline]
    fn publish(&mut self) {
        self.commands.follow_memory();
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
                // SAFETY: the memory of the segments stays valid until the completion is reaped
                // (K2). The vectors live as long as the ring, and a tag's vectors do not change
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

    /// Makes the kernel take entries from a full ring.
    #[cold]
    fn make_room(&mut self) {
        self.enter(0, Deadline::NEVER);
        if self.ring.submission().is_full() {
            std::thread::yield_now();
        }
    }

    /// Pushes a kick into the ring.
    fn push_kick(&mut self) {
        // A nop needs no file, but a restricted ring rejects entries without a fixed file.
        let entry: Entry = opcode::Nop::new().build().flags(Flags::FIXED_FILE).user_data(KICK);
        // SAFETY: the entry names no memory.
        unsafe { self.push_own(&entry, KICK) };
    }

    /// Pushes an entry of the driver's own into the ring. Returns false if the ring has ended.
    ///
    /// # Safety
    /// The entry names no memory.
    unsafe fn push_own(&mut self, entry: &Entry, name: u64) -> bool {
        // SAFETY: the caller guarantees it.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.make_room();
            if self.forbidden.is_over() {
                return false;
            }
        }
        let nr_before = self.ring.submission().len().saturating_sub(1);
        self.forbidden.keep_last(nr_before);
        self.forbidden.pushed(name);
        true
    }

    /// Submits all entries in the ring and waits for `nr` completions until the deadline. May
    /// return early on a signal, or if the kernel wants completions reaped first. Entries that were
    /// not submitted then stay in the ring for the next call.
    fn enter(&mut self, nr: u32, until: Deadline) {
        if self.forbidden.is_over() {
            return self.pause(nr, until);
        }
        match self.is_hushed() {
            true => self.enter_without_eventfd(nr, until),
            false => self.enter_aloud(nr, until),
        }
    }

    /// Returns whether signals are suppressed for completions within the driver's own system calls.
    #[inline]
    fn is_hushed(&self) -> bool {
        event::IS_HUSHED && self.event.as_ref().is_some_and(|event| event.is_used())
    }

    /// Enters the kernel as `enter` does, with signals suppressed; see [`event`].
    fn enter_without_eventfd(&mut self, nr: u32, until: Deadline) {
        self.ring.completion().disable_eventfd();
        self.enter_aloud(nr, until);
        self.ring.completion().enable_eventfd();
        fence(Ordering::SeqCst);
        self.has_missed = self.ring.submission().taskrun() || !self.ring.completion().is_empty();
    }

    fn enter_aloud(&mut self, nr: u32, until: Deadline) {
        // A wait that has already taken the old number finds fewer entries, which is harmless.
        self.left.leave(0);
        if self.polls && nr == 0 && !self.kernel_sleeps() {
            return;
        }
        loop {
            self.nr_syscalls += 1;
            match self.kernel.submit_and_wait(&self.ring, nr, until.left()) {
                // The kernel may stop before the last entry. Then it has not waited.
                Ok(_) if self.polls || self.ring.submission().is_empty() => return,
                Ok(_) => continue,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) if nr > 0 => return,
                    Some(libc::ETIME) => return,
                    Some(libc::EINTR) => {}
                    // A shortage of memory, or of room for completions: both pass.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                        if !self.ring.completion().is_empty() || until.is_over() {
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

    /// Ends the ring, because the system call is forbidden.
    #[cold]
    fn end_ring(&mut self, error: &io::Error) {
        self.forbidden.end(error);
        self.left.end_ring();
        self.end_entries();
        let nr_ended = self.forbidden.nr_failed() + self.inline.nr() + self.queued.len();
        let nr_left = (self.nr_in_flight as usize).saturating_sub(nr_ended);
        let nr_complete = self.ring.completion().len().saturating_sub(self.cancels.nr() as usize);
        let is_lost = self.polls || self.defers && nr_left > nr_complete;
        assert!(!is_lost, "io_uring_enter with I/O in flight, which only it completes: {error}");
    }

    /// Fails the entries that the kernel has not taken from a ring that has ended. If a wait is
    /// submitting, the next turn does this, because the kernel may still take some of them.
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
                CANCEL => self.cancels.end(),
                tag => self.forbidden.fail(Tag::from_index(tag as usize)),
            }
        }
    }

    /// Replaces a forbidden system call with short sleeps: completions arrive without the call.
    #[cold]
    fn pause(&mut self, nr: u32, until: Deadline) {
        while nr > 0 && self.forbidden.nr_failed() == 0 && self.ring.completion().is_empty() {
            let left = until.left();
            std::thread::sleep(left.map_or(forbidden::PAUSE, |left| left.min(forbidden::PAUSE)));
            // Without a limit the caller repeats the wait.
            if left.is_none() || until.is_over() {
                return;
            }
        }
    }

    /// Returns whether the kernel's thread sleeps and must be woken to see the published entries.
    ///
    /// The kernel's thread sets a flag before it sleeps, then reads the tail once more. The driver
    /// publishes the tail, then reads the flag. On each side a store precedes a load of another
    /// location. A processor may reorder these: release and acquire do not prevent that, a full
    /// fence does. The kernel has a fence there, and `need_wakeup` has one before its load. So the
    /// later side sees the other's store.
    #[inline]
    fn kernel_sleeps(&mut self) -> bool {
        self.ring.submission().need_wakeup()
    }

    /// Uses the memory that callers register with the ring.
    pub(super) fn set_memory(&mut self, memory: Arc<RingMemory>, has_vectored_fixed: bool) {
        self.commands.set_memory(memory, has_vectored_fixed);
    }

    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// Returns the number of entries left to the wait beside the driver, for the waiter to share.
    pub(super) fn left(&self) -> &Arc<Left> {
        &self.left
    }

    /// Returns whether work is pending that needs a system call, and no wait is about to make it.
    #[inline]
    fn needs_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || !submission.is_empty() && self.left.is_none()
    }

    /// Fetches completions that need a system call, if none are present: those that the kernel has
    /// deferred, or those of entries that an early return left in the ring. If a caller polls, it
    /// fetches all of them, because the kernel signals the eventfd only once for deferred work.
    #[inline]
    fn look_hard(&mut self) {
        match self.event.as_ref().is_some_and(|event| event.is_used()) {
            true => self.look_for_poll(),
            false if self.ring.completion().is_empty() && self.needs_enter() => {
                self.enter(0, Deadline::NEVER);
            }
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
        let is_signalled = self.event.as_ref().is_some_and(|event| event.take_signalled());
        if is_signalled || self.ring.submission().taskrun() {
            self.clear_event();
        }
        if !self.needs_enter() {
            return;
        }
        self.enter(0, Deadline::NEVER);
        if self.needs_enter() {
            self.clear_event();
            self.enter_aloud(0, Deadline::NEVER);
        }
    }

    fn clear_event(&mut self) {
        if let Some(event) = &self.event {
            self.nr_syscalls += 1;
            event.clear();
        }
    }

    /// Makes the writes that have no entry, after the entries in the ring are submitted. The
    /// submission also fetches the completions that a commit has to bring.
    fn write_inline(&mut self) {
        if self.needs_enter() {
            self.enter(0, Deadline::NEVER);
        }
        self.inline.make(&self.commands, &self.file, &mut self.nr_syscalls);
    }

    /// Resubmits requests as the table now describes them.
    #[cold]
    fn send_again(&mut self, tags: Vec<Tag>) {
        for tag in tags {
            self.commands.of(tag).teach(&mut self.ranges);
            self.queued.push(tag);
        }
        self.publish();
        self.enter(0, Deadline::NEVER);
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
        if self.own.as_ref().is_some_and(|own| own.leave(rq)) {
            self.commands.set_own(rq.tag, true);
            self.nr_own += 1;
            return Issue::Begun;
        }
        self.inline.take(rq, &mut self.queued);
        self.nr_in_flight += 1;
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        self.publish();
        match self.inline.end_batch() {
            true => self.write_inline(),
            false => self.enter(0, Deadline::NEVER),
        }
    }

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        if self.nr_in_flight + self.nr_own == 0 && !self.kicked && how == Reap::NoSyscall {
            return;
        }
        if how == Reap::Full {
            self.look_hard();
        }
        if self.forbidden.has_entries() {
            self.end_entries();
        }
        // A reap without a system call leaves deferred completions.
        self.has_missed &= how == Reap::NoSyscall && self.ring.submission().taskrun();
        let mut again = Vec::new();
        let UringDriver {
            ring,
            commands,
            inline,
            kicked,
            cancels,
            nr_in_flight,
            forbidden,
            own,
            nr_own,
            ..
        } = self;
        if let Some(own) = own
            && *nr_own > 0
        {
            own.take(&mut self.nr_syscalls, |tag, made| {
                *nr_own -= 1;
                match made.result() {
                    Some(result) => done.push(tag, result),
                    None => {
                        commands.set_own(tag, false);
                        again.push(tag);
                    }
                }
            });
            *nr_in_flight += again.len() as u32;
        }
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
            if entry.user_data() == CANCEL {
                cancels.end();
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
        // An early return may leave entries in the ring, and perhaps no other thread enters the
        // kernel.
        if how == Reap::Full && self.mode == Mode::Shared && self.needs_enter() {
            self.enter(0, Deadline::NEVER);
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

    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        let until = Deadline::after(timeout);
        self.publish();
        if self.inline.end_batch() {
            self.write_inline();
        }
        let nr_done = self.inline.nr_done() + self.forbidden.nr_failed();
        match nr_completions.saturating_sub(nr_done as u32) {
            0 if !self.needs_enter() => {}
            // Cancellations have completions of their own.
            nr => self.enter(nr + self.cancels.nr(), until),
        }
    }

    fn withdraw(&mut self) {
        if let Some(call) = own_call::end_offer() {
            self.commands.set_own(call.tag, false);
            self.nr_own -= 1;
            self.nr_in_flight += 1;
            self.queued.push(call.tag);
            self.commit_rqs();
        }
    }

    fn cancel(&mut self, tag: Tag) -> bool {
        self.publish();
        if self.forbidden.is_over() || self.commands.is_own(tag) {
            return false;
        }
        let Some(entry) = self.cancels.begin(tag) else { return false };
        self.commands.cancel(tag);
        // SAFETY: the entry names no memory.
        if !unsafe { self.push_own(&entry, CANCEL) } {
            self.cancels.end();
            return false;
        }
        self.enter(0, Deadline::NEVER);
        true
    }

    /// The kick's completion stays in the ring until the waiting thread returns (K8), so it also
    /// ends a wait that has not reached the kernel yet. If the kernel accepts no entry now, the
    /// ring holds completions, which end the wait as well.
    fn kick(&mut self) {
        let is_done = self.kicked && self.ring.submission().is_empty();
        // A wait on a ring that has ended is short.
        if is_done || self.mode == Mode::Owned || self.forbidden.is_over() {
            return;
        }
        if !self.kicked {
            self.kicked = true;
            self.push_kick();
        }
        self.enter(0, Deadline::NEVER);
    }

    fn has_ready(&self) -> bool {
        self.has_missed || self.inline.nr_done() > 0 || self.forbidden.nr_failed() > 0
    }

    fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls
    }
}

impl<E: Enter> Drop for UringDriver<E> {
    /// The layer drains a driver before it drops it. So no request is in flight, and no memory goes
    /// away that the kernel still uses.
    fn drop(&mut self) {
        assert!(
            self.nr_in_flight + self.nr_own == 0 || std::thread::panicking(),
            "a driver is drained before it is dropped"
        );
        // The kernel destroys a ring asynchronously. This closes the file and unlocks the memory
        // now. If it fails, the kernel does so later.
        if self.commands.has_arena() {
            let _ = self.ring.submitter().unregister_buffers();
        }
        let _ = self.ring.submitter().unregister_files();
    }
}
