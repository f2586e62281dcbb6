//! Hardware context at run time: the token, the inbox, and the state that only the token holder
//! accesses. The token's operations are in [`token`].
// The token gives access to a cell.
#![allow(unsafe_code)]

mod at;
mod own_turn;
mod tags;
mod token;

use crate::driver::{DriverQueue, Waiter};
use crate::runtime::alarm::Alarm;
use crate::runtime::failures::Failures;
use crate::runtime::mailbox::Mailbox;
use crate::runtime::owners::OwnerList;
use crate::runtime::stack::BioStack;
use crate::runtime::timed::Timed;
use crate::runtime::trace::DiskTrace;
use crate::sys::clock;
use crate::sys::event::AnyOf;
use crate::sys::fork::Origin;
use crate::sys::primitive::{Mutex, Ordering, UnsafeCell, lock};
use forebay_core::wait::{self, RESOURCE_DELAY, Timers};
use forebay_core::{
    Driver, HardwareContext, QueuedBio, RunCounters, RunState, SoftwareQueue, TraceWriter, Turned,
};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
// For counters that carry no synchronization: models need not see them.
use std::sync::atomic::{AtomicBool, AtomicU64};

pub(crate) use at::{At, HasMailbox, User, await_admitted, drain_owned, follow};
pub(crate) use tags::PoolUser;
use tags::{TagCalls, TagLists};
pub(crate) use token::{Token, run_disks};

/// The hardware context that threads share; the others are owned.
pub(crate) const SHARED: usize = 0;

/// Initial capacity of the list of bios that one turn ends.
const NR_ENDS_USUAL: usize = 256;
/// How often [`Hctx::await_token`] reads the run word. That takes as long as a few turns.
const NR_SPINS: u32 = 200;
/// Initial capacity of the list of followers.
const NR_FOLLOWERS_USUAL: usize = 32;

/// One of a disk's hardware contexts.
///
/// The first context of a disk is *shared*: any thread may hold its token, and one more may wait in
/// the driver meanwhile. The others are *owned*, by one thread at a time, from its first use of the
/// disk until the thread ends. Only the owner takes the token, pushes into the inbox, and waits in
/// the driver of its context.
pub(crate) struct Hctx {
    pub(crate) run: RunState,
    pub(crate) is_shared: bool,
    /// Delayed run of a shared context with a busy driver, and the deadline. Set by the token
    /// holder, and run by the leader.
    pub(crate) timers: Timers,
    /// Whether turns need the current time.
    timed: Timed,
    inbox: BioStack,
    pub(crate) counters: Arc<RunCounters>,
    origin: Origin,
    /// The owners of the disk, for turns that find them changed.
    owners: Arc<OwnerList>,
    /// The trace of the disk, for turns that find that one has begun.
    trace: Arc<DiskTrace>,
    /// The failures that turns of the disk have found, for events.
    failures: Failures,
    /// The index of the context.
    at: usize,
    /// Whether an event loop watches a descriptor. Then a turn leaves nothing behind that the
    /// descriptor does not report. Set by [`Hctx::watch`], and never cleared.
    is_polled: AtomicBool,
    pub(crate) alarm: Alarm,
    /// The result of the last turn without its deadline ([`Turned::state`]). Other threads compute
    /// what they need of it, so a turn only stores it.
    left: AtomicU64,
    /// System calls until the last turn: those of earlier drivers, and the total.
    nr_old_syscalls: AtomicU64,
    nr_syscalls: AtomicU64,
    /// The waiter of the present driver, for the system calls that only it counts.
    waiter: Mutex<Option<Arc<dyn Waiter>>>,
    tags: TagCalls,
    /// Mailboxes of threads that wait for bios of this context and can become leader.
    followers: Mutex<Vec<Arc<Mailbox>>>,
    inner: UnsafeCell<Option<Inner>>,
}

// SAFETY: `inner` is reached only through the token, which one thread holds at a time and hands
// over with the ordering of the run word; or through `&mut`. Everything in `inner` is `Send`. The
// other fields are `Sync`.
unsafe impl Sync for Hctx {}

/// State that only the token holder accesses.
pub(crate) struct Inner {
    pub(crate) core: HardwareContext,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) waiter: Arc<dyn Waiter>,
    /// Bios that the last turn ended; empty between turns.
    ended: Vec<Box<QueuedBio>>,
    /// The context's share of the tags, if other disks use the same set.
    pub(crate) pool: Option<PoolUser>,
    lists: TagLists,
    /// See [`Waiter::leaves_own_calls`].
    leaves_own_calls: bool,
    /// Other threads or disks may wait for tags of the context.
    serves_tag_waits: bool,
    /// The driver makes system calls.
    counts_syscalls: bool,
}

impl Inner {
    pub(crate) fn new(core: HardwareContext, queue: DriverQueue) -> Inner {
        let DriverQueue { driver, waiter } = queue;
        let (ended, lists) = (Vec::with_capacity(NR_ENDS_USUAL), TagLists::new(core.has_lines()));
        let leaves_own_calls = waiter.leaves_own_calls();
        let serves_tag_waits = core.has_lines();
        let counts_syscalls = driver.makes_syscalls();
        Inner {
            core,
            driver,
            waiter,
            ended,
            pool: None,
            lists,
            leaves_own_calls,
            serves_tag_waits,
            counts_syscalls,
        }
    }

    /// Sets the context's share of the tags of a set that other disks use.
    pub(crate) fn set_pool(&mut self, pool: PoolUser) {
        self.pool = Some(pool);
        self.serves_tag_waits = true;
    }
}

impl Hctx {
    pub(crate) fn new(
        at: usize,
        timed: Timed,
        origin: Origin,
        owners: Arc<OwnerList>,
        trace: Arc<DiskTrace>,
        failures: Failures,
    ) -> Hctx {
        Hctx {
            origin,
            owners,
            trace,
            failures,
            at,
            is_polled: AtomicBool::new(false),
            alarm: Alarm::new(),
            run: RunState::new(),
            is_shared: at == SHARED,
            timers: Timers::new(),
            timed,
            inbox: BioStack::new(),
            counters: Arc::default(),
            left: AtomicU64::new(Turned::NOTHING.state()),
            nr_old_syscalls: AtomicU64::new(0),
            nr_syscalls: AtomicU64::new(0),
            waiter: Mutex::new(None),
            tags: TagCalls::default(),
            followers: Mutex::new(Vec::with_capacity(NR_FOLLOWERS_USUAL)),
            inner: UnsafeCell::new(None),
        }
    }

    /// Creates a ring for the context, if the disk is traced.
    fn trace_writer(&self) -> Option<TraceWriter> {
        self.trace.context_writer(self.at)
    }

    /// Replaces the inner part. The caller owns the context, or no other thread has access to it
    /// yet.
    pub(crate) fn set_inner(&self, inner: Option<Inner>) -> Option<Inner> {
        if inner.as_ref().is_some_and(|inner| inner.core.has_lines()) {
            self.tags.reserve();
        }
        let is_ours = !self.origin.is_elsewhere() && self.run.try_take();
        assert!(is_ours, "no other thread uses a context whose inner part changes");
        self.counters.count_run();
        let waiter = inner.as_ref().map(|inner| Arc::clone(&inner.waiter));
        let waiter_before = std::mem::replace(&mut *lock(&self.waiter), waiter);
        let nr = self.nr_syscalls.load(Ordering::Relaxed)
            + waiter_before.map_or(0, |waiter| waiter.nr_uncounted_syscalls());
        // Relaxed, here and in the readers: a count.
        self.nr_old_syscalls.store(nr, Ordering::Relaxed);
        self.nr_syscalls.store(nr, Ordering::Relaxed);
        // SAFETY: we hold the token.
        let before = self.inner.with_mut(|place| unsafe { std::mem::replace(&mut *place, inner) });
        assert!(self.run.release(), "no other thread uses a context whose inner part changes");
        before
    }

    /// Requests a turn after something was published; see [`RunState::run`].
    #[inline]
    pub(crate) fn run(&self) -> Option<Token<'_>> {
        // No thread gets a token in a child of a fork: the inner part belongs to the parent.
        if self.origin.is_elsewhere() {
            return None;
        }
        self.run.run().then(|| Token::of(self))
    }

    /// Announces a wait beside the driver, without the token; see [`RunState::block`].
    pub(crate) fn block(&self) -> Option<Token<'_>> {
        (self.run.block() && !self.origin.is_elsewhere()).then(|| Token::of(self))
    }

    /// Requests a turn, and makes it unless the token holder does.
    pub(crate) fn run_turn(&self) {
        wait::run_turn(&mut At::new(self));
    }

    /// Takes the token if it is free; see [`RunState::try_take`].
    #[inline]
    pub(crate) fn try_take(&self) -> Option<Token<'_>> {
        (!self.origin.is_elsewhere() && self.run.try_take()).then(|| Token::of(self))
    }

    /// Spins for a short time while another thread holds the token. The token may still be taken
    /// afterwards. The wait is an optimization: it often avoids the detour through the inbox.
    pub(crate) fn await_token(&self) {
        for _ in 0..NR_SPINS {
            if !self.run.is_running() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Returns whether turns need the present time.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timed.get()
    }

    /// Waits in the driver of an owned context until `nr` requests can be reaped, or until the
    /// timeout. Only the owner calls this, after it has released the token to wait.
    pub(crate) fn wait_in_driver(&self, nr: u32, timeout: Option<Duration>) {
        assert!(!self.is_shared);
        // SAFETY: only the owner, which is this thread, ever takes the token of an owned context.
        // It was released only for threads that check whether it is held.
        let inner = self.inner.with_mut(|place| unsafe { (*place).as_mut() });
        inner.expect("a context in use has an inner part").driver.wait(nr, timeout);
    }

    /// Arms the delayed run, after a turn that left work at a busy driver with nothing in flight.
    fn delay_run(&self) {
        self.timers.arm_delayed_run(clock::now_ns() + RESOURCE_DELAY.as_nanos() as u64);
    }

    /// Returns a descriptor for an event loop. It is readable when a descriptor of `fds` is
    /// readable, or the alarm of this context. Those descriptors must stay open as long as the
    /// result.
    ///
    /// A turn is due afterwards: earlier turns have set no alarm.
    ///
    /// # Errors
    /// The OS error if the descriptor cannot be created.
    pub(crate) fn watch<'a>(
        &'a self,
        fds: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<AnyOf> {
        let any = AnyOf::new(fds.into_iter().chain(self.alarm.fds()?))?;
        // Relaxed: the change of the run word that asks for the turn publishes it.
        self.is_polled.store(true, Ordering::Relaxed);
        Ok(any)
    }

    /// Wakes the event loops of the context, which then run a turn. (Other waits of an owner end
    /// without this, after [`RESOURCE_DELAY`].)
    pub(crate) fn wake_loops(&self) {
        if !self.origin.is_elsewhere() {
            self.alarm.fire();
        }
    }

    /// Cancels the delayed runs of a context that was stopped or quiesced (R4).
    pub(crate) fn cancel_runs(&self) {
        self.timers.cancel_delayed_run();
    }

    /// Publishes requests for the token holder. The caller calls [`Hctx::run`] afterwards.
    pub(crate) fn push_outgoing(&self, ctx: &mut SoftwareQueue) {
        self.inbox.push_all(ctx.outgoing().map(forebay_core::Request::into_bios));
    }

    /// Returns whether the last turn left no admitted request in the context. The caller has
    /// checked that no turn is under way, with a load that acquires the effects of that turn.
    pub(crate) fn is_drained(&self) -> bool {
        self.last_turn().is_drained()
    }

    /// Returns whether the last turn left admitted requests with none in flight: no completion
    /// moves them on. Same precondition as [`Hctx::is_drained`].
    pub(crate) fn is_stranded(&self) -> bool {
        let turned = self.last_turn();
        turned.is_stuck() && !turned.is_drained()
    }

    /// Records the result of a turn for other threads.
    #[inline]
    fn set_last_turn(&self, turned: Turned) {
        self.left.store(turned.state(), Ordering::Relaxed);
    }

    fn last_turn(&self) -> Turned {
        Turned::of_state(self.left.load(Ordering::Relaxed))
    }

    /// Returns the number of system calls made by the context's drivers until the last turn.
    pub(crate) fn nr_syscalls(&self) -> u64 {
        let nr_of_waiter =
            lock(&self.waiter).as_ref().map_or(0, |waiter| waiter.nr_uncounted_syscalls());
        self.nr_syscalls.load(Ordering::Relaxed) + nr_of_waiter
    }

    /// Returns the number of system calls that the waiter of the present driver has made.
    pub(crate) fn nr_waits(&self) -> u64 {
        lock(&self.waiter).as_ref().map_or(0, |waiter| waiter.nr_syscalls())
    }

    /// Returns the number of requests that the last turn left at the driver.
    pub(crate) fn nr_in_flight(&self) -> u32 {
        self.last_turn().nr_in_flight()
    }

    /// Adds a mailbox, which is marked as listed, to the followers.
    pub(crate) fn push_follower(&self, mailbox: &Arc<Mailbox>) {
        let mut followers = lock(&self.followers);
        if followers.len() == followers.capacity() {
            // Drop the entries of threads that have ended.
            followers.retain(|follower| Arc::strong_count(follower) > 1);
        }
        followers.push(Arc::clone(mailbox));
    }

    /// Removes a follower from the list.
    pub(crate) fn pop_follower(&self) -> Option<Arc<Mailbox>> {
        lock(&self.followers).pop()
    }

    /// Returns whether the list of followers is not empty.
    pub(crate) fn has_followers(&self) -> bool {
        !lock(&self.followers).is_empty()
    }

    /// Makes a follower the leader in place of the caller; see [`wait::hand_off`].
    pub(crate) fn hand_off(&self) -> bool {
        wait::hand_off(&mut At::new(self))
    }
}

impl fmt::Debug for Hctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hctx").field("run", &self.run).finish_non_exhaustive()
    }
}

/// Returns the time of a turn, for timestamps and flush delays; 0 if neither is needed.
#[inline]
pub(crate) fn now_ns(is_timed: bool) -> u64 {
    if is_timed { clock::now_ns() } else { 0 }
}

#[cfg(test)]
mod models;
