//! Threads that wait for their own bios to end.
//!
//! The order of the steps is the core's ([`forebay_core::wait`], rules W1 to W7). This file
//! supplies the steps: sleeping, waiting in the driver, and the lists that threads share.

use crate::driver::{Offer, Waiter, own_call};
use crate::runtime::clock;
use crate::runtime::ctx::Ctx;
use crate::runtime::hctx::{Hctx, Token, now_ns, run_disks};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::primitive::thread;
use crate::runtime::shared::Shared;
use crate::runtime::tag_pool::{self, Woken};
use forebay_core::wait::{self, Context, Host, Owner, RESOURCE_DELAY, Sleeper, Timers, WaitCell};
use forebay_core::{Commit, RunState, Turned};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// With this many requests in flight, a follower leaves the commit of its requests to the leader:
/// see [`wait::wait_shared`].
const NR_BUSY: u32 = 16;

/// A thread at a hardware context. `T` has the operations of the thread that the context needs.
pub(crate) struct At<'a, T> {
    hctx: &'a Hctx,
    thread: T,
}

impl<'a> At<'a, ()> {
    /// Returns a thread that does not wait.
    #[inline]
    pub(crate) fn new(hctx: &'a Hctx) -> At<'a, ()> {
        At { hctx, thread: () }
    }
}

impl<'a, T: User> At<'a, T> {
    /// Returns a thread at a context.
    pub(crate) fn with(hctx: &'a Hctx, thread: T) -> At<'a, T> {
        At { hctx, thread }
    }
}

/// The operations of a thread that a context needs.
pub(crate) trait User {
    /// Runs disks for which tags are available, after the token was released.
    #[inline]
    fn run_disks(&mut self, disks: Woken) {
        run_disks(disks);
    }
}

impl User for () {}

/// A thread that runs the disks later.
impl User for &mut Woken {
    fn run_disks(&mut self, mut disks: Woken) {
        self.append(&mut disks);
        tag_pool::keep_list(disks);
    }
}

/// A thread that waits for bios of its own.
struct Waiting<'a> {
    shared: &'a Shared,
    ctx: &'a Rc<Ctx>,
    mailbox: &'a Arc<Mailbox>,
    /// The I/O that the thread still offers to make itself.
    offer: Offer,
    /// The thread has offered to make I/O, so it expects to wait only for the token.
    by_itself: bool,
    /// It needs a flush, and makes one if it is woken for that.
    makes_flush: bool,
}

/// A thread with a mailbox.
pub(crate) trait HasMailbox: User {
    fn mailbox(&self) -> &Arc<Mailbox>;

    /// Returns whether the thread makes a flush if it is woken for that.
    fn makes_flush(&self) -> bool {
        false
    }

    /// Offers to make a flush in the next turn.
    fn offer_flush(&mut self) {}
}

impl User for &Arc<Mailbox> {}

impl User for Waiting<'_> {}

impl HasMailbox for &Arc<Mailbox> {
    fn mailbox(&self) -> &Arc<Mailbox> {
        self
    }
}

impl HasMailbox for Waiting<'_> {
    fn mailbox(&self) -> &Arc<Mailbox> {
        self.mailbox
    }

    fn makes_flush(&self) -> bool {
        self.makes_flush
    }

    fn offer_flush(&mut self) {
        self.offer.flush = true;
    }
}

impl<'a, T: User> Context for At<'a, T> {
    type Token = Token<'a>;
    type Follower = Arc<Mailbox>;

    #[inline]
    fn run_state(&self) -> &RunState {
        &self.hctx.run
    }

    #[inline]
    fn try_take(&mut self) -> Option<Token<'a>> {
        self.hctx.try_take()
    }

    fn request_run(&mut self) -> Option<Token<'a>> {
        self.hctx.run()
    }

    #[inline]
    fn turn(&mut self, token: &mut Token<'a>, commit: Commit) -> Turned {
        token.turn(now_ns(self.hctx.is_timed()), commit)
    }

    fn commit_requests(&mut self, token: &mut Token<'a>) -> bool {
        token.commit_now()
    }

    #[inline]
    fn runs_wakers(&self, token: &Token<'a>) -> bool {
        token.runs_wakers()
    }

    fn withdraw_own_call(&mut self, token: &mut Token<'a>) -> bool {
        token.withdraw_own_call()
    }

    #[inline]
    fn released(&mut self, token: Token<'a>) {
        if let Some(disks) = token.wake_threads_and_tasks() {
            self.thread.run_disks(disks);
        }
    }

    fn pop_follower(&mut self) -> Option<Arc<Mailbox>> {
        self.hctx.pop_follower()
    }

    fn has_followers(&self) -> bool {
        self.hctx.has_followers()
    }

    fn cell_of<'b>(&'b self, follower: &'b Arc<Mailbox>) -> &'b WaitCell {
        &follower.cell
    }

    fn wake_follower(&mut self, follower: Arc<Mailbox>) {
        follower.wake_thread();
    }
}

impl<T: HasMailbox> Sleeper for At<'_, T> {
    fn cell(&self) -> &WaitCell {
        &self.thread.mailbox().cell
    }

    fn park(&mut self) {
        self.thread.mailbox().park();
    }

    fn parks_for_flush(&self) -> bool {
        self.thread.makes_flush()
    }

    fn was_woken_for_flush(&mut self) {
        self.thread.offer_flush();
    }

    fn push_follower(&mut self) {
        self.hctx.push_follower(self.thread.mailbox());
    }

    fn ask_for_tags(&mut self) {
        self.hctx.ask_for_tags(self.thread.mailbox());
    }
}

impl<'a> Host for At<'a, Waiting<'a>> {
    fn timers(&self) -> &Timers {
        &self.hctx.timers
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn turn_with_own(&mut self, commit: Commit) -> Option<(Token<'a>, Turned)> {
        let Waiting { shared, ctx, by_itself, .. } = self.thread;
        if by_itself {
            self.hctx.await_token();
        }
        let held = ctx.turn_and_hold(shared, now_ns(self.hctx.is_timed()), Some(commit));
        if held.is_none() && by_itself {
            self.hctx.await_token();
        }
        held
    }

    fn leave_to_wait(&mut self, token: &mut Token<'a>) -> bool {
        token.leave_to_wait()
    }

    fn take_back(&mut self) -> bool {
        self.waiter().take_back()
    }

    fn begins(&self) -> bool {
        self.waiter().begins()
    }

    fn offer(&mut self) -> bool {
        let offers = self.thread.offer != Offer::NONE;
        if offers {
            own_call::offer(self.thread.offer);
        }
        offers
    }

    fn make_own_call(&mut self) -> bool {
        let left = own_call::end_offer();
        self.thread.offer.made(left.as_ref());
        let Some(call) = left else { return false };
        self.waiter().make_own_call(call);
        true
    }

    fn yield_now(&mut self) {
        thread::yield_now();
    }

    fn wait_in_driver(&mut self, timeout_ns: Option<u64>) {
        self.waiter().wait(timeout_ns.map(Duration::from_nanos));
    }
}

impl<'a> At<'a, Waiting<'a>> {
    fn waiter(&self) -> &'a dyn Waiter {
        &**self.thread.shared.waiter()
    }
}

impl<'a, T: User> Owner for At<'a, T> {
    fn prepare_wait(&mut self, token: &mut Token<'a>, nr_bios: u32) -> u32 {
        token.core.prepare_wait(nr_bios)
    }

    fn wait_in_owned_driver(&mut self, nr: u32, deadline_ns: Option<u64>) {
        let left = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(clock::now_ns()));
        self.hctx.wait_in_driver(nr, deadline_ns.map(left));
    }

    fn sleep(&mut self) {
        std::thread::sleep(RESOURCE_DELAY);
    }
}

/// Turns and waits in an owned context until it has no requests left.
pub(crate) fn drain_owned(hctx: &Hctx) {
    wait::drain_owned(&mut At::new(hctx));
}

/// Waits in an owned context until `nr` more of its bios may have ended, or for a limited time. The
/// owner makes a turn afterwards.
pub(crate) fn wait_as_owner(shared: &Shared, hctx: usize, turned: Turned, nr: u32) {
    wait::wait_as_owner(&mut At::new(shared.hctx(hctx)), turned, nr);
}

/// Waits until the total number of bios delivered to `mailbox` reaches `goal`, or, with the goal
/// [`TAGS`](forebay_core::wait::TAGS), until none of its bios lacks tags. Sends the requests that
/// `ctx` has detached first, and offers to make one of them.
pub(crate) fn wait(
    shared: &Shared,
    ctx: &Rc<Ctx>,
    mailbox: &Arc<Mailbox>,
    goal: u64,
    offer: Offer,
) {
    let hctx = shared.hctx(ctx.hctx());
    let (by_itself, makes_flush) = (offer != Offer::NONE, offer.flush);
    let thread = Waiting { shared, ctx, mailbox, offer, by_itself, makes_flush };
    let host = &mut At { hctx, thread };
    match hctx.is_shared {
        true => wait::wait_shared(host, goal, NR_BUSY),
        false => wait::wait_owned(host, goal),
    }
}

/// Parks until no thread leads. Returns whether the caller has the baton.
pub(crate) fn follow(hctx: &Hctx, mailbox: &Arc<Mailbox>) -> bool {
    wait::follow(&mut At { hctx, thread: mailbox }, wait::NEVER)
}

#[cfg(test)]
pub(crate) mod models;
#[cfg(test)]
mod take_back_models;
