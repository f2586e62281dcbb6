//! Threads that wait for their own bios to end.
//!
//! The order of the steps is the core's ([`forebay_core::wait`], rules W1 to W7). This file
//! supplies the steps: sleeping, waiting in the driver, and the lists that threads share.

// The unsafe functions pass their callers' obligations on.
#![allow(unsafe_code)]

use crate::driver::{Offer, Waiter, own_call};
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::hctx::{At, HasMailbox, SHARED, Token, User, now_ns};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::shared::Shared;
use crate::runtime::thread::{self, Blocking, Ctx};
use crate::sys::clock;
use crate::sys::primitive::thread::yield_now;
use forebay_core::wait::{self, Host, Leader, Timers};
use forebay_core::{
    Bio, BlockStatus, Commit, Op, Policy, Segments, SubmitErrorKind, Turned, UnplugCause,
};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// With this many requests in flight, a follower leaves the commit of its requests to the leader:
/// see [`wait::wait_shared`].
const NR_BUSY: u32 = 16;

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

impl User for Waiting<'_> {}

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

impl<'a> Leader for At<'a, Waiting<'a>> {
    fn timers(&self) -> &Timers {
        &self.hctx.timers
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn leave_to_wait(&mut self, token: &mut Token<'a>) -> bool {
        token.leave_to_wait()
    }

    fn take_back(&mut self) -> bool {
        self.waiter().take_back()
    }

    fn yield_now(&mut self) {
        yield_now();
    }

    fn wait_in_driver(&mut self, timeout_ns: Option<u64>) {
        self.waiter().wait(timeout_ns.map(Duration::from_nanos));
    }
}

impl<'a> Host for At<'a, Waiting<'a>> {
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
}

impl<'a> At<'a, Waiting<'a>> {
    fn waiter(&self) -> &'a dyn Waiter {
        &**self.thread.shared.waiter()
    }
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

/// Blocking calls.
impl Shared {
    /// Submits a bio, waits for its end and returns its result.
    ///
    /// # Safety
    /// The memory of `bio` is valid for the operation until this returns. Until then no other code
    /// accesses it in a way that conflicts with the operation.
    pub(crate) unsafe fn run(
        self: &Arc<Shared>,
        bio: Bio,
    ) -> Result<Result<u64, BlockStatus>, SubmitErrorKind> {
        // SAFETY: the caller's obligations are passed on.
        unsafe { self.run_and_return_list(bio, None) }
    }

    /// Runs a bio as [`run`](Self::run) does, and stores its segments in `list` after its end.
    ///
    /// # Safety
    /// Same as [`run`](Self::run).
    #[inline]
    pub(crate) unsafe fn run_and_return_list(
        self: &Arc<Shared>,
        bio: Bio,
        list: Option<&mut Segments>,
    ) -> Result<Result<u64, BlockStatus>, SubmitErrorKind> {
        if self.is_after_fork() {
            return Err(SubmitErrorKind::Forked);
        }
        let ctx = match bio.op {
            // The shared context even if the thread owns one: its flush machine serves all threads,
            // so they share flushes.
            Op::Flush => {
                thread::settle_owned(self, || false);
                thread::shared_ctx_of(self)
            }
            _ => thread::blocking_ctx_of(self),
        };
        // Unwinding would free the memory while a device may still use it.
        AbortOnUnwind::guard(|| {
            // SAFETY: the caller's obligations are passed on.
            unsafe { self.run_in(&ctx, bio, list) }
        })
    }

    /// Same as [`run_and_return_list`](Self::run_and_return_list), with the thread's per-disk state
    /// given by the caller.
    ///
    /// # Safety
    /// Same as [`run`](Self::run).
    pub(crate) unsafe fn run_in(
        &self,
        ctx: &Rc<Ctx>,
        bio: Bio,
        list: Option<&mut Segments>,
    ) -> Result<Result<u64, BlockStatus>, SubmitErrorKind> {
        let mut blocking = ctx.take_blocking();
        let offer = self.offer_of(ctx, &bio, &blocking);
        let boxed = blocking.boxed(bio);
        if let Err((refusal, boxed)) = ctx.queue_bio(boxed, now_ns(self.is_timed())) {
            blocking.put_box(boxed);
            ctx.put_blocking(blocking);
            return Err(refusal);
        }
        blocking.nr_queued += 1;
        thread::unplug_all(UnplugCause::Wait, Some(ctx));
        wait(self, ctx, &blocking.mailbox, blocking.nr_queued, offer);
        let mut ended = blocking.mailbox.take().into_iter().flatten();
        let mut boxed = ended.next().expect("the wait has ended, so the bio was delivered");
        let result = boxed.result();
        if let Some(list) = list {
            *list = boxed.take_segments();
        }
        blocking.put_box(boxed);
        ctx.put_blocking(blocking);
        Ok(result)
    }

    /// Returns which I/O a thread offers to make itself if it waits for `bio`.
    fn offer_of(&self, ctx: &Ctx, bio: &Bio, blocking: &Blocking) -> Offer {
        let Policy { emulation, io_timeout_ns, .. } = self.info().policy;
        let threads_wait = emulation.threads_wait_for_tags();
        if ctx.hctx() != SHARED || threads_wait || !self.leaves_own_calls() {
            return Offer::NONE;
        }
        let offer = Offer::of(bio, blocking.mailbox.owner());
        if io_timeout_ns == 0 {
            return offer;
        }
        // A flush that hangs ends for its waiters after the grace period, because it has no memory
        // (H5). A thread inside the call could not return.
        let offer = Offer { flush: false, ..offer };
        // While the thread is in its own call, another one has to see that it is overdue.
        if offer == Offer::NONE || self.drive().is_ok() { offer } else { Offer::NONE }
    }
}

#[cfg(test)]
pub(crate) mod models;
#[cfg(test)]
mod take_back_models;
