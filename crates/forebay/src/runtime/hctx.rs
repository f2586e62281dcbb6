//! A hardware context at run time: the token, the inbox, and what only the token's holder touches.
// The token gives access to a cell.
#![allow(unsafe_code)]

use crate::driver::{DriverQueue, Waiter};
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::clock;
use crate::runtime::fork::Origin;
use crate::runtime::mailbox::{Delivered, Mailbox, Wake};
use crate::runtime::primitive::{Mutex, Ordering, UnsafeCell, lock};
use crate::runtime::ready::Ready;
use crate::runtime::stack::BioStack;
use crate::runtime::thread;
use forebay_core::{
    Commit, Driver, HardwareContext, QueuedBio, RunCounters, RunState, SoftwareQueue, Turned,
};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
// For counts, from which nothing is concluded: models need not look at them.
use std::sync::atomic::{AtomicBool, AtomicU64};

/// One of a disk's hardware contexts.
///
/// The first of a disk is *shared*: any thread may hold its token, and one more may wait in the
/// driver meanwhile. The others are *owned*: by one thread at a time from its first use of the disk
/// to its end, which alone takes their token, pushes into their inbox, and waits in their driver.
pub(crate) struct Hctx {
    pub(crate) run: RunState,
    pub(crate) is_shared: bool,
    /// Whether turns are given the time.
    iostats: bool,
    inbox: BioStack,
    pub(crate) counters: Arc<RunCounters>,
    /// Runs that found the token taken, and left them to its holder.
    nr_skipped: AtomicU64,
    origin: Origin,
    /// Somebody waits for a descriptor: turns leave nothing that it would not tell of.
    pub(crate) is_polled: AtomicBool,
    /// Whether the last turn left nothing in it that was let in.
    is_drained: AtomicBool,
    /// System calls of its drivers until the last turn: of those that are gone, and of all.
    nr_old_syscalls: AtomicU64,
    nr_syscalls: AtomicU64,
    /// Those that wait for bios of this context, and would lead.
    followers: Mutex<Vec<Arc<Mailbox>>>,
    inner: UnsafeCell<Option<Inner>>,
}

// SAFETY: `inner` is reached through the token alone, which one thread holds at a time and hands
// over with the ordering of the run word; and through `&mut`. All of it is `Send`. The rest is
// `Sync` by itself.
unsafe impl Sync for Hctx {}

/// What the holder of the token has.
pub(crate) struct Inner {
    pub(crate) core: HardwareContext,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) waiter: Arc<dyn Waiter>,
    /// What the last turn ended; empty between turns.
    ended: Vec<Box<QueuedBio>>,
    /// A waiting thread was kicked, and is not back yet.
    is_kicked: bool,
}

impl Inner {
    pub(crate) fn new(core: HardwareContext, queue: DriverQueue) -> Inner {
        let DriverQueue { driver, waiter } = queue;
        Inner { core, driver, waiter, ended: Vec::new(), is_kicked: false }
    }
}

impl Hctx {
    pub(crate) fn new(is_shared: bool, iostats: bool, origin: Origin) -> Hctx {
        Hctx {
            origin,
            is_polled: AtomicBool::new(false),
            run: RunState::new(),
            is_shared,
            iostats,
            inbox: BioStack::new(),
            counters: Arc::default(),
            nr_skipped: AtomicU64::new(0),
            is_drained: AtomicBool::new(true),
            nr_old_syscalls: AtomicU64::new(0),
            nr_syscalls: AtomicU64::new(0),
            followers: Mutex::new(Vec::new()),
            inner: UnsafeCell::new(None),
        }
    }

    /// Puts the inner part in place, or takes it away. The caller owns the context, or is the only
    /// one that knows of it.
    pub(crate) fn set_inner(&self, inner: Option<Inner>) -> Option<Inner> {
        let token = self.try_take().expect("nobody else is at a context without an inner part");
        // Relaxed, here and where it is read: a count.
        self.nr_old_syscalls.store(self.nr_syscalls(), Ordering::Relaxed);
        // SAFETY: we hold the token.
        let before = self.inner.with_mut(|place| unsafe { std::mem::replace(&mut *place, inner) });
        assert!(token.release().is_none(), "nobody else is at a context without an inner part");
        before
    }

    /// Asks for a turn after something was published; see [`RunState::run`].
    #[inline]
    pub(crate) fn run(&self) -> Option<Token<'_>> {
        // In a child of a fork nobody gets a token: what it stands for is the parent's.
        if self.origin.is_elsewhere() {
            return None;
        }
        if self.run.run() {
            return Some(Token::of(self));
        }
        // Relaxed: a count.
        self.nr_skipped.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Asks for a turn, and makes it, unless it is left to the holder of the token.
    pub(crate) fn run_turn(&self) {
        if let Some(mut token) = self.run() {
            token.turn(now_ns(self.iostats), Commit::Now, None, None);
            token.finish();
        }
    }

    /// Takes the token if it is free; see [`RunState::try_take`].
    #[inline]
    pub(crate) fn try_take(&self) -> Option<Token<'_>> {
        (!self.origin.is_elsewhere() && self.run.try_take()).then(|| Token::of(self))
    }

    /// Says that the leader, who does not hold the token, is going to wait beside the driver; or
    /// gives it the token, since nobody holds it any more, and a turn is due.
    pub(crate) fn block(&self) -> Option<Token<'_>> {
        self.run.block();
        // The mark comes after: the holder turns once more, and that turn finds us blocked. It may
        // leave nothing at the device that a wait would tell of, but work: a busy driver.
        let token = self.run();
        if token.is_some() {
            self.run.unblock();
        }
        token
    }

    /// Publishes requests for whoever holds the token. [`Hctx::run`] is due.
    pub(crate) fn push_outgoing(&self, ctx: &mut SoftwareQueue) {
        self.inbox.push_all(ctx.outgoing().map(forebay_core::Request::into_bios));
    }

    /// Whether the last turn left nothing in it that was let in. Asked when no turn is under way:
    /// that was found by a load that acquires what the turn did.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Relaxed)
    }

    /// How many system calls its drivers have made, until the last turn.
    pub(crate) fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls.load(Ordering::Relaxed)
    }

    /// How many runs were left to a holder of the token.
    pub(crate) fn nr_skipped(&self) -> u64 {
        self.nr_skipped.load(Ordering::Relaxed)
    }

    /// Notes that the owner of a mailbox is about to park, and would lead if asked. It looks for a
    /// leader after this (W2).
    pub(crate) fn list_follower(&self, mailbox: &Arc<Mailbox>) {
        // AcqRel: if it is on the list, or was until a moment ago, who takes it off does so in a
        // later change of this flag, and sees that its owner is parked.
        if !mailbox.is_listed.swap(true, Ordering::AcqRel) {
            let mut followers = lock(&self.followers);
            if followers.len() == followers.capacity() {
                // Those of threads that have ended are nobody's any more.
                followers.retain(|follower| Arc::strong_count(follower) > 1);
            }
            followers.push(Arc::clone(mailbox));
        }
    }

    /// Makes a follower the leader in place of the caller; without one, there is no leader then.
    pub(crate) fn hand_off(&self) {
        loop {
            let next = lock(&self.followers).pop();
            if let Some(follower) = next {
                follower.is_listed.swap(false, Ordering::AcqRel);
                if follower.give_baton() {
                    return;
                }
                continue;
            }
            self.run.resign();
            // Who announced itself before that did not see us gone: look once more (W2).
            if lock(&self.followers).is_empty() || !self.run.try_lead() {
                return;
            }
        }
    }
}

impl fmt::Debug for Hctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hctx").field("run", &self.run).finish_non_exhaustive()
    }
}

/// The right to touch the inner part of a hardware context.
pub(crate) struct Token<'a> {
    hctx: &'a Hctx,
    /// Whose bios have ended. They are woken when the token was given back: a thread that is woken
    /// wants it next, and a waker is code of others, and may do as it likes.
    wakes: Option<Vec<Wake>>,
    /// A token that is lost, by a panic in a turn, would leave all others waiting for ever.
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
    fn of(hctx: &'a Hctx) -> Token<'a> {
        Token { hctx, wakes: None, abort: AbortOnUnwind::arm() }
    }

    /// Gives the token back; or keeps it, where something was published meanwhile: a turn is due.
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

    /// Code of others, which may wait for anything, keeps none of this thread's promises.
    #[inline]
    fn promise_nothing(&self) {
        if self.wakes_tasks() {
            self.waiter.withdraw();
        }
    }

    /// Whether giving it back runs wakers.
    pub(crate) fn wakes_tasks(&self) -> bool {
        self.wakes.iter().flatten().any(|wake| matches!(wake, Wake::Task(_)))
    }

    /// The token was given back: wakes whom it is about.
    #[inline]
    fn came_back(self) {
        let Token { wakes, abort, .. } = self;
        if let Some(mut wakes) = wakes {
            // If a waker panics, the others are not woken: then rather no process.
            wakes.drain(..).for_each(Wake::fire);
            thread::put_spare(wakes);
        }
        abort.disarm();
    }

    /// Turns, and gives the token back, until nothing was published meanwhile.
    pub(crate) fn finish(mut self) {
        while let Some(token) = self.release() {
            self = token;
            self.turn(now_ns(self.hctx.iostats), Commit::Now, None, None);
        }
    }

    /// Leaves what turns have issued and not committed to the wait beside the driver that follows.
    pub(crate) fn leave_to_wait(&mut self) {
        let inner = &mut **self;
        inner.core.leave_to_wait(&mut *inner.driver);
    }

    /// Commits what a turn has issued and not committed.
    pub(crate) fn commit(&mut self) {
        let inner = &mut **self;
        inner.core.commit(&mut *inner.driver);
    }

    /// Ends the wait of a thread beside the driver, now or when it next waits, and gives the token
    /// back.
    pub(crate) fn kick(mut self) {
        self.hctx.run.kick();
        let inner = &mut *self;
        inner.is_kicked = true;
        inner.driver.kick();
        self.finish();
    }

    /// Gives the token back and says that its holder, the leader, is going to wait beside the
    /// driver; or keeps it, where something was published meanwhile.
    #[must_use]
    pub(crate) fn release_to_wait(self) -> Option<Token<'a>> {
        self.promise_nothing();
        if !self.hctx.run.release_to_wait() {
            return Some(self);
        }
        self.came_back();
        None
    }

    /// Gives the token back and waits in the driver, for `nr` completions; or keeps it, where
    /// something was published meanwhile. Only the owner of an owned context may call this.
    pub(crate) fn wait_as_owner(self, nr: u32) -> Option<Token<'a>> {
        assert!(!self.hctx.is_shared);
        if !self.hctx.run.release_to_wait() {
            return Some(self);
        }
        let hctx = self.hctx;
        self.came_back();
        // SAFETY: nobody but the owner, who is here, ever takes an owned context's token. That it
        // is given back is for those who only look whether it is held.
        let inner = hctx.inner.with_mut(|place| unsafe { (*place).as_mut() });
        inner.expect("a context in use has an inner part").driver.wait(nr);
        hctx.run.unblock();
        None
    }

    /// One turn: takes in what others have published and what `ctx` sends, does all that can be
    /// done, and delivers the ends: those of `own`, the caller's, to it, all others to their
    /// mailboxes.
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
        let gates = run.gates();
        let commit = match commit {
            // Without a leader in the driver nobody commits what is left.
            Commit::Unless(_) if !run.is_blocked() => Commit::Now,
            commit => commit,
        };
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
            // The one that was kicked is back: the driver may forget the kick.
            inner.is_kicked = false;
            inner.core.reap_kick();
        }
        let is_polled = hctx.is_polled.load(Ordering::Relaxed);
        if is_polled {
            // A descriptor may be readable for what was reaped already: the driver takes that back.
            inner.core.reap_kick();
        }
        let mut turned = inner.core.turn(&mut *inner.driver, now, gates, commit, &mut inner.ended);
        if hctx.is_shared || is_polled {
            // No wait beside the driver would tell of these.
            while gates.reap && inner.driver.has_ready() {
                turned = inner.core.turn(&mut *inner.driver, now, gates, commit, &mut inner.ended);
            }
        }
        hctx.nr_syscalls.store(
            hctx.nr_old_syscalls.load(Ordering::Relaxed) + inner.driver.nr_syscalls(),
            Ordering::Relaxed,
        );
        hctx.is_drained.store(turned.is_drained, Ordering::Relaxed);
        let mut kick = turned.work_left && turned.nr_in_flight == 0;
        if !inner.ended.is_empty() {
            let mut ended = std::mem::take(&mut inner.ended);
            kick |= self.deliver(&mut ended, own);
            self.ended = ended;
        }
        // A leader that waits in the driver is told of its own end (W4), and of what no completion
        // will move on.
        if kick && hctx.is_shared && run.kick() {
            self.is_kicked = true;
            self.driver.kick();
        }
        turned
    }

    /// Delivers what has ended. Says whether a leader must be told.
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
            // SAFETY: a mailbox outlives the deliveries of its bios, this one included.
            match unsafe { Mailbox::deliver(owner, same) } {
                Delivered::Quietly => {}
                Delivered::ToLeader => to_leader = true,
                Delivered::ToSleeper(wake) => {
                    self.wakes.get_or_insert_with(thread::take_spare).push(wake);
                }
            }
        }
        to_leader
    }
}

/// The time for stamps; none is needed where no latency is recorded.
#[inline]
pub(crate) fn now_ns(iostats: bool) -> u64 {
    if iostats { clock::now_ns() } else { 0 }
}

#[cfg(test)]
#[path = "hctx_models.rs"]
mod models;
