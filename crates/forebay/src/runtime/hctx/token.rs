//! Operations of a hardware context's token: the turn, and the ways to release the token.
// The token gives access to a cell, and vouches for the owners of mailboxes.
#![allow(unsafe_code)]

use super::{Hctx, Inner};
use crate::driver::own_call;
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::mailbox::{Delivered, Mailbox, Wake};
use crate::runtime::ready::Ready;
use crate::runtime::spare::{self, Owed};
use crate::sys::primitive::Ordering;
use crate::tag_pool::{self, Woken};
use forebay_core::wait::{self, Notice, RESOURCE_DELAY, Turning};
use forebay_core::{Commit, Gates, QueuedBio, RunState, SoftwareQueue, Turned};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Exclusive access to the inner part of a hardware context.
pub(crate) struct Token<'a> {
    pub(super) hctx: &'a Hctx,
    /// The inner part, so that the accesses of a turn do not each check whether it is there.
    pub(super) inner: NonNull<Inner>,
    /// The wake-ups that turns owe to others. They are made after the token is released: a woken
    /// thread takes the token next, and a waker is foreign code. `None` in most turns, and one
    /// word, because a token is moved several times.
    owed: Option<Box<Owed>>,
    /// Aborts if a turn panics: a lost token would block all other threads forever.
    abort: AbortOnUnwind,
}

impl Deref for Token<'_> {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        // For models, which check accesses.
        self.hctx.inner.with(|_| ());
        // SAFETY: there is one token at a time, and only its holder replaces the inner part.
        unsafe { self.inner.as_ref() }
    }
}

impl DerefMut for Token<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Inner {
        // For models, which check accesses.
        self.hctx.inner.with_mut(|_| ());
        // SAFETY: there is one token at a time, and only its holder replaces the inner part.
        unsafe { self.inner.as_mut() }
    }
}

impl<'a> Token<'a> {
    #[inline(always)]
    pub(super) fn of(hctx: &'a Hctx) -> Token<'a> {
        let abort = AbortOnUnwind::arm();
        hctx.counters.count_run();
        // SAFETY: there is one token at a time.
        let inner = hctx.inner.with_mut(|place| unsafe { (*place).as_mut() });
        let inner = inner.expect("a context in use has an inner part");
        Token { hctx, inner: NonNull::from(inner), owed: None, abort }
    }

    /// Returns whether releasing the token runs wakers, or contexts of other disks, which may run
    /// some.
    #[inline]
    pub(crate) fn runs_wakers(&self) -> bool {
        self.owed.as_ref().is_some_and(|owed| owed.runs_wakers())
    }

    /// Wakes threads, then tasks, once the token is released. Returns the disks that the caller has
    /// to run ([`run_disks`]), if there are some.
    #[inline]
    pub(crate) fn wake_threads_and_tasks(self) -> Option<Woken> {
        let Token { owed, abort, .. } = self;
        // If a waker panics, the process aborts.
        let disks = owed.and_then(spare::wake_all);
        abort.disarm();
        disks
    }

    /// Leaves the requests that turns have issued and not committed to the wait beside the driver
    /// that follows. Returns whether the driver has completed some at once: the wait would not
    /// report them.
    pub(crate) fn leave_to_wait(&mut self) -> bool {
        let inner = &mut **self;
        inner.core.leave_to_wait(&mut *inner.driver);
        inner.driver.has_ready()
    }

    /// Commits, and returns whether the commit has completed requests that neither a descriptor nor
    /// another thread's wait reports. The owner of an owned context without a poll descriptor reaps
    /// them itself.
    pub(crate) fn commit_now(&mut self) -> bool {
        let inner = &mut **self;
        inner.core.commit(&mut *inner.driver);
        self.is_watched() && self.driver.has_ready()
    }

    /// Begins the request that was left to this thread in another way. Returns the same as
    /// [`commit_now`](Self::commit_now).
    #[cold]
    pub(crate) fn withdraw_own_call(&mut self) -> bool {
        self.driver.withdraw();
        self.is_watched() && self.driver.has_ready()
    }

    /// Returns whether other threads, or event loops, rely on the driver to report completions.
    #[inline]
    fn is_watched(&self) -> bool {
        self.hctx.is_shared || self.hctx.is_polled.load(Ordering::Relaxed)
    }

    /// Ends the wait of a thread beside the driver, if one has announced it (W4).
    pub(crate) fn kick(&mut self) {
        if self.hctx.run.kick() {
            self.kick_driver();
        }
    }

    fn kick_driver(&mut self) {
        self.core.note_kick();
        self.driver.kick();
    }

    /// Runs one turn, without requests or bios of the calling thread.
    pub(crate) fn turn(&mut self, now: u64, commit: Commit) -> Turned {
        self.turn_with(now, None, None, commit)
    }

    /// Runs one turn that also accepts the requests that `ctx` sends. Ended bios of `own`, the
    /// caller's queue, go to `own` directly. All others go to their mailboxes.
    #[inline(never)]
    pub(crate) fn turn_with(
        &mut self,
        now: u64,
        ctx: Option<&mut SoftwareQueue>,
        own: Option<&mut Ready>,
        commit: Commit,
    ) -> Turned {
        let is_polled = self.hctx.is_polled.load(Ordering::Relaxed);
        wait::turn(&mut TokenTurn { token: self, now, is_polled, ctx, own }, commit)
    }

    /// Returns the wake-ups that are owed, to add some.
    pub(super) fn owed(&mut self) -> &mut Owed {
        self.owed.get_or_insert_with(spare::take_spare)
    }

    /// Takes the disks that are owed a run.
    pub(super) fn take_disks(&mut self) -> Woken {
        self.owed.as_mut().map_or_else(Woken::new, |owed| std::mem::take(&mut owed.disks))
    }

    /// Records a wake-up to be made after the token is released.
    pub(super) fn add_wake(&mut self, wake: Wake) {
        self.owed().wakes.push(wake);
    }

    /// Passes the requests in the inbox to the context.
    #[inline]
    fn accept_inbox(&mut self, enter: bool) {
        if !self.hctx.inbox.is_empty() {
            self.take_inbox(enter);
        }
    }

    #[inline(never)]
    pub(super) fn take_inbox(&mut self, enter: bool) {
        for first in self.hctx.inbox.take_all() {
            self.core.accept_bios(first, enter);
        }
    }

    /// Has the failures of the disk emitted once the token is released.
    #[cold]
    pub(super) fn owe_failures(&mut self) {
        let failures = self.hctx.failures.clone();
        self.owed().failures = Some(failures);
    }

    /// Records the result of a turn for other threads.
    #[inline]
    fn record(&mut self, turned: Turned) {
        let hctx = self.hctx;
        if hctx.failures.are_pending() {
            self.owe_failures();
        }
        if self.counts_syscalls {
            self.count_syscalls();
        }
        hctx.set_last_turn(turned);
    }

    #[inline(never)]
    pub(super) fn count_syscalls(&mut self) {
        let nr = self.driver.nr_syscalls();
        let nr_old = self.hctx.nr_old_syscalls.load(Ordering::Relaxed);
        self.hctx.nr_syscalls.store(nr_old + nr, Ordering::Relaxed);
    }

    /// Delivers ended bios to their mailboxes, and those of `own` to it. Returns whether a leader
    /// must be kicked.
    #[inline(never)]
    pub(super) fn deliver_each(
        &mut self,
        ended: &mut Vec<Box<QueuedBio>>,
        own: Option<&mut Ready>,
    ) -> bool {
        let mut own = own;
        wait::deliver_each(ended, |owner, bios| {
            if let Some(own) = own.as_mut().filter(|own| own.owner() == owner) {
                bios.for_each(|bio| own.push(bio));
                return Notice::Nothing;
            }
            // SAFETY: a mailbox outlives the deliveries of its bios, including this one.
            match unsafe { Mailbox::deliver(owner, bios) } {
                Delivered::Quietly => Notice::Nothing,
                Delivered::ToLeader => Notice::Kick,
                Delivered::ToSleeper(wake) => {
                    self.add_wake(wake);
                    Notice::Wake
                }
            }
        })
    }
}

/// A turn of the token holder.
struct TokenTurn<'t, 'a, 'q> {
    token: &'t mut Token<'a>,
    now: u64,
    /// An event loop watches a descriptor of the context.
    is_polled: bool,
    /// The software queue whose requests the turn sends.
    ctx: Option<&'q mut SoftwareQueue>,
    /// The queue of the calling thread, which takes its ended bios directly.
    own: Option<&'q mut Ready>,
}

impl Turning for TokenTurn<'_, '_, '_> {
    #[inline]
    fn run_state(&self) -> &RunState {
        &self.token.hctx.run
    }

    #[inline]
    fn is_shared(&self) -> bool {
        self.token.hctx.is_shared
    }

    #[inline]
    fn begin(&mut self) {
        if self.is_polled {
            // B1.
            self.token.hctx.alarm.clear();
            self.token.core.reap_all();
        }
    }

    #[inline]
    fn apply_tag_calls(&mut self) {
        self.token.read_tag_calls();
        self.token.limit_tags();
    }

    #[inline]
    fn accept(&mut self, enter: bool) {
        self.token.accept_inbox(enter);
        if let Some(ctx) = &mut self.ctx {
            self.token.core.accept_from(ctx, enter);
        }
    }

    fn turn_core(&mut self, gates: Gates, commit: Commit) -> Turned {
        if self.token.hctx.is_shared {
            return self.turn_shared(gates, commit);
        }
        let inner = &mut **self.token;
        inner.core.turn(&mut *inner.driver, self.now, gates, commit, &mut inner.ended)
    }

    #[inline]
    fn takes_left_flush(&mut self) -> bool {
        self.token.core.take_left_flush()
    }

    #[cold]
    fn wake_for_flush(&mut self) -> bool {
        // SAFETY: these bios wait for the flush.
        let wake = self
            .token
            .core
            .waiters_of_flush()
            .find_map(|owner| unsafe { Mailbox::wake_for_flush(owner) });
        match wake {
            Some(wake) => self.token.add_wake(wake),
            None => return false,
        }
        true
    }

    #[inline]
    fn is_watched(&self) -> bool {
        self.token.hctx.is_shared || self.is_polled
    }

    #[inline]
    fn has_unreported(&self) -> bool {
        self.is_watched() && self.token.driver.has_ready()
    }

    #[inline]
    fn serves_tag_waits(&self) -> bool {
        self.token.serves_tag_waits
    }

    fn wake_for_tags(&mut self) -> bool {
        self.token.wake_for_tags()
    }

    fn retry_for_awake(&mut self) -> bool {
        self.token.retry_for_awake()
    }

    fn share_tags(&mut self, gates: Gates, commit: Commit, turned: &mut Turned) {
        self.token.share_tags(self.now, gates, commit, turned);
    }

    #[inline]
    fn record(&mut self, gates: Gates, turned: Turned) {
        self.token.record(turned);
        // B2. Requests that only a closed gate holds back are left to the thread that opens it.
        if turned.is_stuck() && self.is_polled && gates.dispatch && !turned.is_drained() {
            self.token.hctx.alarm.set(RESOURCE_DELAY);
        }
    }

    #[inline]
    fn deliver(&mut self) -> bool {
        if self.token.ended.is_empty() {
            return false;
        }
        if let Some(own) = &mut self.own
            && own.take_all(&mut self.token.ended)
        {
            return false;
        }
        let mut ended = std::mem::take(&mut self.token.ended);
        let kick = self.token.deliver_each(&mut ended, self.own.as_deref_mut());
        self.token.ended = ended;
        kick
    }

    fn arm_delayed_run(&mut self) {
        self.token.hctx.delay_run();
    }

    fn arm_deadline(&mut self, at_ns: u64) -> bool {
        let hctx = self.token.hctx;
        if self.is_polled {
            hctx.alarm.limit(at_ns);
        }
        hctx.is_shared && hctx.timers.arm_deadline(at_ns)
    }

    fn kick_driver(&mut self) {
        self.token.kick_driver();
    }
}

impl TokenTurn<'_, '_, '_> {
    /// Turns a shared context. The turn may leave a flush to a thread that waits for it.
    #[inline(never)]
    fn turn_shared(&mut self, gates: Gates, commit: Commit) -> Turned {
        let inner = &mut **self.token;
        inner.core.leave_flush(inner.leaves_own_calls && !own_call::offers_flush());
        let turned = inner.core.turn(&mut *inner.driver, self.now, gates, commit, &mut inner.ended);
        inner.core.leave_flush(false);
        turned
    }
}

/// Runs disks for which tags are available, and those that they wake in turn.
#[cold]
pub(crate) fn run_disks(mut disks: Woken) {
    let mut next = tag_pool::take_list();
    // A loop and no recursion: each disk may wake disks that this thread has run already.
    while !disks.is_empty() {
        for disk in disks.drain(..) {
            if let Some(shared) = disk.upgrade() {
                shared.run_for_tags(&mut next);
            }
        }
        std::mem::swap(&mut disks, &mut next);
    }
    tag_pool::keep_list(disks);
    tag_pool::keep_list(next);
}
