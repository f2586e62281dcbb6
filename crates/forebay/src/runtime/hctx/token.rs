//! Operations of a hardware context's token: the turn, and the ways to release the token.
// The token gives access to a cell, and vouches for the owners of mailboxes.
#![allow(unsafe_code)]

use super::{DRAINED, Hctx, Inner, STUCK, is_stuck, now_ns};
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::mailbox::{Delivered, Mailbox, Wake};
use crate::runtime::primitive::Ordering;
use crate::runtime::ready::Ready;
use crate::runtime::tag_pool::{self, Woken};
use crate::runtime::thread;
use crate::runtime::wait::RESOURCE_DELAY;
use forebay_core::{Commit, Gates, QueuedBio, SoftwareQueue, Turned};
use std::ops::{Deref, DerefMut};

/// Exclusive access to the inner part of a hardware context.
pub(crate) struct Token<'a> {
    pub(super) hctx: &'a Hctx,
    /// Owners of bios that have ended. They are woken after the token is released: a woken thread
    /// takes the token next, and a waker is foreign code.
    wakes: Option<Vec<Wake>>,
    /// Disks for which tags are available now. Run after the token is released, for the same
    /// reason.
    pub(super) disks: Woken,
    /// Aborts if a turn panics: a lost token would block all other threads forever.
    abort: AbortOnUnwind,
}

impl Deref for Token<'_> {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        // SAFETY: there is one token at a time.
        let inner = self.hctx.inner.with(|place| unsafe { (*place).as_ref() });
        inner.expect("a context in use has an inner part")
    }
}

impl DerefMut for Token<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Inner {
        // SAFETY: there is one token at a time.
        let inner = self.hctx.inner.with_mut(|place| unsafe { (*place).as_mut() });
        inner.expect("a context in use has an inner part")
    }
}

impl<'a> Token<'a> {
    #[inline]
    pub(super) fn of(hctx: &'a Hctx) -> Token<'a> {
        hctx.counters.count_run();
        Token { hctx, wakes: None, disks: Woken::new(), abort: AbortOnUnwind::arm() }
    }

    /// Releases the token; or keeps it if something was published meanwhile: then a turn is due.
    #[inline]
    #[must_use]
    pub(crate) fn release(self) -> Option<Token<'a>> {
        self.promise_nothing();
        if !self.hctx.run.release() {
            return Some(self);
        }
        self.came_back();
        None
    }

    /// Withdraws this thread's offer of help before foreign code runs, which may block on anything.
    #[inline]
    fn promise_nothing(&self) {
        if self.wakes_tasks() {
            self.waiter.withdraw();
        }
    }

    /// Returns whether releasing the token runs wakers, or contexts of other disks, which may run
    /// some.
    pub(crate) fn wakes_tasks(&self) -> bool {
        let mut wakes = self.wakes.iter().flatten();
        !self.disks.is_empty() || wakes.any(|wake| matches!(wake, Wake::Task(_)))
    }

    /// After the token is released: wakes threads, then tasks, then runs disks.
    #[inline]
    fn came_back(self) {
        let disks = self.came_back_but_for_disks();
        if disks.capacity() > 0 {
            run_disks(disks);
        }
    }

    /// Same as [`Token::came_back`], but returns the disks that the caller has to run.
    #[inline]
    fn came_back_but_for_disks(self) -> Woken {
        let Token { wakes, disks, abort, .. } = self;
        if let Some(mut wakes) = wakes {
            // If a waker panics, the remaining ones do not run, and the process aborts. Threads
            // come first: a waker may wait for a lock that one of them holds.
            wakes.iter().for_each(Wake::fire_thread);
            wakes.drain(..).for_each(Wake::fire_task);
            thread::put_spare(wakes);
        }
        abort.disarm();
        disks
    }

    /// Same as [`Token::finish`], but adds the disks that are to be run to `woken`.
    pub(super) fn finish_into(mut self, woken: &mut Woken) {
        loop {
            self.promise_nothing();
            if self.hctx.run.release() {
                let mut disks = self.came_back_but_for_disks();
                woken.append(&mut disks);
                return tag_pool::keep_list(disks);
            }
            self.turn(now_ns(self.hctx.is_timed), Commit::Now, None, None);
        }
    }

    /// Releases the token; runs turns first as long as something is published meanwhile.
    pub(crate) fn finish(mut self) {
        while let Some(token) = self.release() {
            self = token;
            self.turn(now_ns(self.hctx.is_timed), Commit::Now, None, None);
        }
    }

    /// Leaves the requests that turns have issued and not committed to the wait beside the driver
    /// that follows. If the driver completes some at once, another turn ends them: the wait would
    /// not report them.
    pub(crate) fn leave_to_wait(&mut self, turned: &mut Turned) {
        let inner = &mut **self;
        inner.core.leave_to_wait(&mut *inner.driver);
        if inner.driver.has_ready() {
            *turned = self.turn(now_ns(self.hctx.is_timed), Commit::Now, None, None);
        }
    }

    /// Commits the requests that turns have issued and not committed. If the commit itself
    /// completes some, another turn ends them: neither a descriptor nor another thread's wait would
    /// report them. The owner of an owned context without a poll descriptor reaps them itself.
    pub(crate) fn commit(&mut self) {
        let inner = &mut **self;
        inner.core.commit(&mut *inner.driver);
        let is_watched = self.hctx.is_shared || self.hctx.is_polled.load(Ordering::Relaxed);
        if is_watched && self.driver.has_ready() {
            self.turn(now_ns(self.hctx.is_timed), Commit::Now, None, None);
        }
    }

    /// Ends the wait of a thread beside the driver, now or when it next waits, and releases the
    /// token.
    pub(crate) fn kick(mut self) {
        self.hctx.run.kick();
        let inner = &mut *self;
        inner.is_kicked = true;
        inner.driver.kick();
        self.finish();
    }

    /// Releases the token and announces that its holder, the leader, is about to wait beside the
    /// driver. Keeps the token if something was published meanwhile.
    #[must_use]
    pub(crate) fn release_to_wait(self) -> Option<Token<'a>> {
        self.promise_nothing();
        if !self.hctx.run.release_to_wait() {
            return Some(self);
        }
        self.came_back();
        None
    }

    /// Releases the token and waits in the driver for `nr` completions. Keeps the token if
    /// something was published meanwhile. Only the owner of an owned context may call this.
    pub(crate) fn wait_as_owner(self, nr: u32) -> Option<Token<'a>> {
        assert!(!self.hctx.is_shared);
        if !self.hctx.run.release_to_wait() {
            return Some(self);
        }
        let hctx = self.hctx;
        self.came_back();
        // SAFETY: only the owner, which is this thread, ever takes the token of an owned context.
        // It is released here only for threads that check whether it is held.
        let inner = hctx.inner.with_mut(|place| unsafe { (*place).as_mut() });
        inner.expect("a context in use has an inner part").driver.wait(nr);
        hctx.run.unblock();
        None
    }

    /// Runs one turn: accepts the requests in the inbox and those that `ctx` sends, makes all
    /// possible progress, and delivers the ended bios. Bios of `own`, the caller's queue, go to
    /// `own` directly. All others go to their mailboxes.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        now: u64,
        commit: Commit,
        ctx: Option<&mut SoftwareQueue>,
        own: Option<&mut Ready>,
    ) -> Turned {
        let hctx = self.hctx;
        let run = &hctx.run;
        let is_polled = hctx.is_polled.load(Ordering::Relaxed);
        if is_polled {
            // B1.
            hctx.alarm.clear();
        }
        let gates = run.gates();
        let commit = match commit {
            // Without a leader in the driver no thread would commit the remaining requests.
            Commit::Unless(_) if !run.is_blocked() => Commit::Now,
            commit => commit,
        };
        self.hear_of_tags();
        self.limit_tags();
        let inner = &mut **self;
        if !hctx.inbox.is_empty() {
            for first in hctx.inbox.take_all() {
                inner.core.accept_bios(first, gates.enter);
            }
        }
        if let Some(ctx) = ctx {
            inner.core.accept_from(ctx, gates.enter);
        }
        if inner.is_kicked && gates.reap {
            // The kicked leader is back: the driver may forget the kick.
            inner.is_kicked = false;
            inner.core.reap_kick();
        }
        if is_polled {
            // The descriptor may be readable for completions that were reaped already: the driver
            // clears it.
            inner.core.reap_kick();
        }
        let mut turned = inner.core.turn(&mut *inner.driver, now, gates, commit, &mut inner.ended);
        if hctx.is_shared || is_polled {
            // No wait beside the driver would report these.
            while gates.reap && inner.driver.has_ready() {
                turned = inner.core.turn(&mut *inner.driver, now, gates, commit, &mut inner.ended);
            }
        }
        let mut kick = false;
        if inner.core.has_lines() || inner.pool.is_some() {
            kick = self.after_turn(now, gates, commit, &mut turned);
        }
        let inner = &mut **self;
        hctx.nr_syscalls.store(
            hctx.nr_old_syscalls.load(Ordering::Relaxed) + inner.driver.nr_syscalls(),
            Ordering::Relaxed,
        );
        let is_stuck = is_stuck(turned);
        let left = (u8::from(turned.is_drained) * DRAINED) | (u8::from(is_stuck) * STUCK);
        hctx.left.store(left, Ordering::Relaxed);
        // B2. Requests that only a closed gate holds back are left to the thread that opens it.
        if is_stuck && is_polled && gates.dispatch && !turned.is_drained {
            hctx.alarm.set(RESOURCE_DELAY);
        }
        kick |= is_stuck;
        if !inner.ended.is_empty() {
            let mut ended = std::mem::take(&mut inner.ended);
            kick |= self.deliver(&mut ended, own);
            self.ended = ended;
        }
        // Kick a leader that waits in the driver: for its own bio (W4), and for requests that no
        // completion moves on.
        if kick && hctx.is_shared {
            self.tell_leader(turned);
        }
        turned
    }

    /// Hands freed tags on after a turn: to threads that wait for tags, or to other disks. Returns
    /// whether a leader must be kicked.
    #[cold]
    fn after_turn(&mut self, now: u64, gates: Gates, commit: Commit, turned: &mut Turned) -> bool {
        let mut to_leader = false;
        loop {
            to_leader |= self.tell_of_tags(now, gates, commit, turned);
            self.share_tags(now, gates, commit, turned);
            let inner = &mut **self;
            // Requests that were issued for the waiters may have completed where no wait reports
            // it.
            if !gates.reap || !inner.driver.has_ready() {
                return to_leader;
            }
            *turned = inner.core.turn(&mut *inner.driver, now, gates, commit, &mut inner.ended);
        }
    }

    /// Records a wake-up to be made after the token is released.
    pub(super) fn add_wake(&mut self, wake: Wake) {
        self.wakes.get_or_insert_with(thread::take_spare).push(wake);
    }

    #[inline(never)]
    fn tell_leader(&mut self, turned: Turned) {
        if is_stuck(turned) {
            // Armed before the kick: the woken leader reads the timer.
            self.hctx.delay_run();
        }
        if self.hctx.run.kick() {
            self.is_kicked = true;
            self.driver.kick();
        }
    }

    /// Delivers ended bios. Returns whether a leader must be kicked.
    #[inline]
    fn deliver(&mut self, ended: &mut Vec<Box<QueuedBio>>, mut own: Option<&mut Ready>) -> bool {
        if let Some(own) = &mut own
            && own.take_all(ended)
        {
            return false;
        }
        self.deliver_each(ended, own)
    }

    #[inline(never)]
    fn deliver_each(
        &mut self,
        ended: &mut Vec<Box<QueuedBio>>,
        mut own: Option<&mut Ready>,
    ) -> bool {
        let mut to_leader = false;
        let mut bios = ended.drain(..).peekable();
        while let Some(bio) = bios.next() {
            let others = match &mut own {
                Some(own) => own.take(bio),
                None => Some(bio),
            };
            let Some(bio) = others else { continue };
            let owner = bio.owner();
            let same = std::iter::from_fn(|| bios.next_if(|bio| bio.owner() == owner));
            let same = std::iter::once(bio).chain(same);
            // SAFETY: a mailbox outlives the deliveries of its bios, including this one.
            match unsafe { Mailbox::deliver(owner, same) } {
                Delivered::Quietly => {}
                Delivered::ToLeader => to_leader = true,
                Delivered::ToSleeper(wake) => self.add_wake(wake),
            }
        }
        to_leader
    }
}

/// Runs disks for which tags are available, and those that they wake in turn.
#[cold]
fn run_disks(mut disks: Woken) {
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
