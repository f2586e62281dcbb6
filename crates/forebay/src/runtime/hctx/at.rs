//! A thread at a hardware context: it takes, turns and releases, may park, and may own the context.
//!
//! The order of the steps is the core's ([`forebay_core::wait`], rules W1 to W7). This file
//! supplies the steps that every thread makes in the same way.

use super::{Hctx, Token, now_ns, run_disks};
use crate::runtime::mailbox::Mailbox;
use crate::sys::clock;
use crate::tag_pool::{self, Woken};
use forebay_core::wait::{self, Context, Owner, RESOURCE_DELAY, Sleeper, WaitCell};
use forebay_core::{Commit, RunState, Turned};
use std::sync::Arc;
use std::time::Duration;

/// A thread at a hardware context. `T` has the abilities of the thread that the context uses.
pub(crate) struct At<'a, T> {
    pub(crate) hctx: &'a Hctx,
    pub(crate) thread: T,
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

/// The abilities of a thread that a context uses.
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

/// A thread with a mailbox.
pub(crate) trait HasMailbox: User {
    fn mailbox(&self) -> &Arc<Mailbox>;

    /// Returns whether the thread makes a flush if it is woken for that.
    fn makes_flush(&self) -> bool {
        false
    }

    /// Offers to make a flush in the next turn.
    fn offer_flush(&mut self) {}

    /// Returns whether the thread's wait is over.
    #[inline]
    fn is_over(&self, goal: u64) -> bool {
        self.mailbox().cell.is_reached(goal)
    }
}

impl User for &Arc<Mailbox> {}

impl HasMailbox for &Arc<Mailbox> {
    fn mailbox(&self) -> &Arc<Mailbox> {
        self
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

    fn block(&mut self) -> Option<Token<'a>> {
        self.hctx.block()
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

    #[inline]
    fn is_over(&self, goal: u64) -> bool {
        self.thread.is_over(goal)
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

impl<'a, T: User> Owner for At<'a, T> {
    fn prepare_wait(&mut self, token: &mut Token<'a>, nr_bios: u32) -> u32 {
        token.core.prepare_wait(nr_bios)
    }

    fn wait_in_owned_driver(&mut self, nr: u32, deadline_ns: Option<u64>) {
        let left = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(clock::now_ns()));
        self.hctx.wait_in_driver(nr, deadline_ns.map(left));
    }

    fn sleep(&mut self, deadline_ns: Option<u64>) {
        let left = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(clock::now_ns()));
        std::thread::sleep(deadline_ns.map_or(RESOURCE_DELAY, left).min(RESOURCE_DELAY));
    }
}

impl Token<'_> {
    /// Releases the token; runs turns first as long as something is published meanwhile.
    // Always inlined: as a call, it would store the token to memory.
    #[inline(always)]
    pub(crate) fn finish(self) {
        wait::finish(&mut At::new(self.hctx), self);
    }

    /// Commits the requests that turns have issued and not committed.
    pub(crate) fn commit(&mut self) {
        wait::commit_and_turn(&mut At::new(self.hctx), self);
    }
}

/// Turns and waits in an owned context until it has no requests left.
pub(crate) fn drain_owned(hctx: &Hctx) {
    wait::drain_owned(&mut At::new(hctx));
}

/// Turns and waits in an owned context until no admitted request is left, or these may never end.
pub(crate) fn await_admitted(hctx: &Hctx, is_gone: impl Fn() -> bool) {
    wait::await_admitted(&mut At::new(hctx), is_gone);
}

/// Parks until no thread leads. Returns whether the caller has the baton.
pub(crate) fn follow(hctx: &Hctx, mailbox: &Arc<Mailbox>) -> bool {
    wait::follow(&mut At { hctx, thread: mailbox }, wait::NEVER)
}
