//! A hardware context at run time: the token, the inbox, and what only the token's holder touches.
//! What that holder does is in [`token`].
// The token gives access to a cell.
#![allow(unsafe_code)]

mod pool;
mod tags;
mod token;

use crate::driver::{DriverQueue, Waiter};
use crate::runtime::alarm::Alarm;
use crate::runtime::clock;
use crate::runtime::event::AnyOf;
use crate::runtime::fork::Origin;
use crate::runtime::mailbox::Mailbox;
use crate::runtime::primitive::{Mutex, Ordering, UnsafeCell, lock};
use crate::runtime::run_queue::RunWork;
use crate::runtime::stack::BioStack;
use crate::runtime::wait::RESOURCE_DELAY;
use forebay_core::{
    Commit, Driver, HardwareContext, QueuedBio, RunCounters, RunState, RunTimer, SoftwareQueue,
    Turned,
};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
// For counts, from which nothing is concluded: models need not look at them.
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

pub(crate) use pool::PoolUser;
use tags::{TagCalls, TagLists};
pub(crate) use token::Token;

/// Capacity of the list of bios that one turn ends, before it grows.
const NR_ENDS_USUAL: usize = 256;
/// Capacity of the list of threads that follow a leader, before it grows.
const NR_FOLLOWERS_USUAL: usize = 32;

/// One of a disk's hardware contexts.
///
/// The first of a disk is *shared*: any thread may hold its token, and one more may wait in the
/// driver meanwhile. The others are *owned*: by one thread at a time from its first use of the disk
/// to its end, which alone takes their token, pushes into their inbox, and waits in their driver.
pub(crate) struct Hctx {
    pub(crate) run: RunState,
    pub(crate) is_shared: bool,
    /// The delayed run of a shared context at a busy driver: for whoever leads. Set by who holds
    /// the token.
    pub(crate) timer: RunTimer,
    /// Under `run_queue=always`, of a shared context.
    pub(crate) run_work: Option<Arc<RunWork>>,
    /// Whether turns are given the time.
    is_timed: bool,
    inbox: BioStack,
    pub(crate) counters: Arc<RunCounters>,
    /// Runs that found the token taken, and left them to its holder.
    nr_skipped: AtomicU64,
    origin: Origin,
    /// An event loop watches a descriptor: turns leave nothing that it would not tell of. Set by
    /// [`Hctx::watch`], and never cleared.
    is_polled: AtomicBool,
    pub(crate) alarm: Alarm,
    /// What the last turn left: [`DRAINED`], [`STUCK`], both or none.
    left: AtomicU8,
    /// System calls of its drivers until the last turn: of those that are gone, and of all.
    nr_old_syscalls: AtomicU64,
    nr_syscalls: AtomicU64,
    tags: TagCalls,
    /// Those that wait for bios of this context, and would lead.
    followers: Mutex<Vec<Arc<Mailbox>>>,
    inner: UnsafeCell<Option<Inner>>,
}

/// The last turn left no admitted request.
const DRAINED: u8 = 1 << 0;
/// The last turn left requests, and nothing in flight.
const STUCK: u8 = 1 << 1;

/// Returns whether a turn has left requests that no completion moves on: the driver was busy, or a
/// gate is closed.
#[inline]
fn is_stuck(turned: Turned) -> bool {
    turned.work_left && turned.nr_in_flight == 0
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
    /// Its share, if other disks use the same tags.
    pub(crate) pool: Option<PoolUser>,
    lists: TagLists,
}

impl Inner {
    pub(crate) fn new(core: HardwareContext, queue: DriverQueue) -> Inner {
        let DriverQueue { driver, waiter } = queue;
        let (ended, lists) = (Vec::with_capacity(NR_ENDS_USUAL), TagLists::new(core.has_lines()));
        Inner { core, driver, waiter, ended, is_kicked: false, pool: None, lists }
    }
}

impl Hctx {
    pub(crate) fn new(is_shared: bool, is_timed: bool, origin: Origin) -> Hctx {
        Hctx {
            origin,
            is_polled: AtomicBool::new(false),
            alarm: Alarm::new(),
            run: RunState::new(),
            is_shared,
            timer: RunTimer::new(),
            run_work: None,
            is_timed,
            inbox: BioStack::new(),
            counters: Arc::default(),
            nr_skipped: AtomicU64::new(0),
            left: AtomicU8::new(DRAINED),
            nr_old_syscalls: AtomicU64::new(0),
            nr_syscalls: AtomicU64::new(0),
            tags: TagCalls::default(),
            followers: Mutex::new(Vec::with_capacity(NR_FOLLOWERS_USUAL)),
            inner: UnsafeCell::new(None),
        }
    }

    /// Puts the inner part in place, or takes it away. The caller owns the context, or is the only
    /// one that knows of it.
    pub(crate) fn set_inner(&self, inner: Option<Inner>) -> Option<Inner> {
        if inner.as_ref().is_some_and(|inner| inner.core.has_lines()) {
            self.tags.reserve();
        }
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
            token.turn(now_ns(self.is_timed), Commit::Now, None, None);
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

    /// A turn has left work at a busy driver with nothing in flight: another is due after a while.
    fn delay_run(&self) {
        self.timer.delay(clock::now_ns() + RESOURCE_DELAY.as_nanos() as u64);
    }

    /// How long a leader waits at most: until the delayed run, if one is due.
    pub(crate) fn delay_left(&self) -> Option<Duration> {
        // Nobody is told of a mark that is set after this look: who sets one kicks the leader.
        let left_ns = || self.timer.left_ns(clock::now_ns());
        self.timer.is_set().then(left_ns).flatten().map(Duration::from_nanos)
    }

    /// Returns a descriptor for an event loop: readable when a descriptor of `fds` is, or the alarm
    /// of this context. The descriptors stay open as long as the result.
    ///
    /// A turn is due afterwards: earlier turns have set no alarm.
    ///
    /// # Errors
    /// The system's error if it has no room for a descriptor.
    pub(crate) fn watch<'a>(
        &'a self,
        fds: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<AnyOf> {
        let any = AnyOf::new(fds.into_iter().chain(self.alarm.fds()?))?;
        // Relaxed: the change of the run word that asks for the turn publishes it.
        self.is_polled.store(true, Ordering::Relaxed);
        Ok(any)
    }

    /// Wakes the event loops of the context, which turn it. (Other waits of the owner of a context
    /// end by themselves, after [`RESOURCE_DELAY`].)
    pub(crate) fn wake_loops(&self) {
        if !self.origin.is_elsewhere() {
            self.alarm.fire();
        }
    }

    /// The context was stopped or quiesced: nothing that was to be run later is (R4).
    pub(crate) fn cancel_runs(&self) {
        self.timer.cancel();
        // In a child of a fork nobody may hold the lock any more, and nobody give it back.
        if let Some(work) = &self.run_work
            && !self.origin.is_elsewhere()
        {
            work.cancel();
        }
    }

    /// Publishes requests for whoever holds the token. [`Hctx::run`] is due.
    pub(crate) fn push_outgoing(&self, ctx: &mut SoftwareQueue) {
        self.inbox.push_all(ctx.outgoing().map(forebay_core::Request::into_bios));
    }

    /// Returns whether the last turn left no admitted request in it. The caller has found that no
    /// turn is under way, by a load that acquires what the turn did.
    pub(crate) fn is_drained(&self) -> bool {
        self.left.load(Ordering::Relaxed) & DRAINED != 0
    }

    /// Returns whether the last turn left admitted requests, none of them at the driver: no
    /// completion moves them on. Called as [`Hctx::is_drained`].
    pub(crate) fn is_stranded(&self) -> bool {
        self.left.load(Ordering::Relaxed) == STUCK
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
    /// Returns whether another thread leads, which owes a turn (W6).
    pub(crate) fn hand_off(&self) -> bool {
        loop {
            let next = lock(&self.followers).pop();
            if let Some(follower) = next {
                follower.is_listed.swap(false, Ordering::AcqRel);
                if follower.give_baton() {
                    return true;
                }
                continue;
            }
            self.run.resign();
            // Who announced itself before that did not see us gone: look once more (W2).
            if lock(&self.followers).is_empty() {
                return false;
            }
            if !self.run.try_lead() {
                return true;
            }
        }
    }
}

impl fmt::Debug for Hctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hctx").field("run", &self.run).finish_non_exhaustive()
    }
}

/// The time of a turn, for stamps and for how long flushes wait; 0 where neither is needed.
#[inline]
pub(crate) fn now_ns(is_timed: bool) -> u64 {
    if is_timed { clock::now_ns() } else { 0 }
}

#[cfg(test)]
#[path = "hctx_models.rs"]
mod models;
