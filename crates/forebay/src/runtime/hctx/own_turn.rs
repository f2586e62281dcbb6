//! Turn of an owned context that the thread makes for its own queue, while no event loop watches
//! the context.
//!
//! The order of the steps is that of every turn ([`forebay_core::wait::turn`]). In this case most
//! of them have nothing to do, and the compiler removes them. Nearly every I/O of a queue takes
//! this path.
// It reaches the inner part through the token.
#![allow(unsafe_code)]

use super::{Hctx, Inner, Token};
use crate::runtime::ready::Ready;
use crate::sys::primitive::Ordering;
use forebay_core::cold_path;
use forebay_core::wait::{self, Turning};
use forebay_core::{Commit, Gates, RunState, SoftwareQueue, Turned};
use std::ptr::NonNull;

impl Hctx {
    /// Takes the token of an owned context for [`Token::turn_as_owner`]. Called by the owner, in
    /// the process that has opened the disk.
    ///
    /// Returns `None` if the context is shared, watched by an event loop or in use, or if a gate is
    /// closed.
    #[inline(always)]
    pub(crate) fn take_as_owner(&self) -> Option<Token<'_>> {
        // Relaxed: only the owner sets it.
        let is_usual = !self.is_shared && !self.is_polled.load(Ordering::Relaxed);
        (is_usual && self.run.try_take_idle()).then(|| Token::of(self))
    }
}

impl<'a> Token<'a> {
    /// Runs the first turn after [`Hctx::take_as_owner`], with the requests that `ctx` sends. Ended
    /// bios of `own`, a queue of the calling thread, go to `own` directly.
    #[inline(always)]
    pub(crate) fn turn_as_owner(
        &mut self,
        hctx: &'a Hctx,
        now: u64,
        ctx: &mut SoftwareQueue,
        own: &mut Ready,
        commit: Commit,
    ) -> Turned {
        own.take_mail();
        if self.serves_tag_waits {
            cold_path();
            return self.turn_with(now, Some(ctx), Some(own), commit);
        }
        let (nr_before, inner) = (own.nr_ended(), self.inner);
        let turn = OwnTurn { hctx, inner, token: self, now, ctx, own, nr_before };
        wait::turn(&mut { turn }, commit)
    }
}

/// A turn of the owner.
struct OwnTurn<'t, 'a, 'q> {
    hctx: &'a Hctx,
    /// A copy of the token's pointer to the inner part. Rarely called functions take the address of
    /// the token, which forces the token into memory; the copy can stay in a register.
    inner: NonNull<Inner>,
    token: &'t mut Token<'a>,
    now: u64,
    /// The software queue whose requests the turn sends.
    ctx: &'q mut SoftwareQueue,
    /// The queue that takes the ended bios.
    own: &'q mut Ready,
    /// How many bios it had before the turn.
    nr_before: usize,
}

impl Turning for OwnTurn<'_, '_, '_> {
    #[inline(always)]
    fn run_state(&self) -> &RunState {
        &self.hctx.run
    }

    /// The change that took the token has found all gates open.
    #[inline(always)]
    fn gates(&self) -> Gates {
        Gates::OPEN
    }

    #[inline(always)]
    fn is_shared(&self) -> bool {
        false
    }

    #[inline(always)]
    fn apply_tag_calls(&mut self) {
        if self.hctx.has_changes() {
            self.token.take_changes();
        }
    }

    #[inline(always)]
    fn accept(&mut self, enter: bool) {
        if !self.hctx.inbox.is_empty() {
            self.token.take_inbox(enter);
        }
        // For models, which check accesses.
        self.hctx.inner.with_mut(|_| ());
        // SAFETY: this thread holds the token. No other access to the inner part is under way.
        unsafe { self.inner.as_mut() }.core.accept_from(self.ctx, enter);
    }

    #[inline(always)]
    fn turn_core(&mut self, gates: Gates, commit: Commit) -> Turned {
        self.hctx.inner.with_mut(|_| ());
        // SAFETY: as above.
        let inner = unsafe { self.inner.as_mut() };
        inner.core.turn(&mut *inner.driver, self.now, gates, commit, self.own.ended_mut())
    }

    #[inline(always)]
    fn serves_tag_waits(&self) -> bool {
        false
    }

    fn wake_for_tags(&mut self) -> bool {
        false
    }

    fn retry_for_awake(&mut self) -> bool {
        false
    }

    #[inline(always)]
    fn record(&mut self, _gates: Gates, turned: Turned) {
        // SAFETY: as above.
        if unsafe { self.inner.as_ref() }.counts_syscalls {
            self.token.count_syscalls();
        }
        if self.hctx.failures.are_pending() {
            self.token.owe_failures();
        }
        self.hctx.set_last_turn(turned);
    }

    #[inline(always)]
    fn deliver(&mut self) -> bool {
        self.own.has_others_since(self.nr_before)
            && deliver_others(self.token, self.own, self.nr_before)
    }

    fn arm_delayed_run(&mut self) {
        unreachable!("the owner waits for a busy driver itself");
    }

    #[inline(always)]
    fn arm_deadline(&mut self, _at_ns: u64) -> bool {
        // The owner waits for it, by the result of the turn.
        false
    }

    fn kick_driver(&mut self) {
        unreachable!("no other thread waits beside the driver of an owned context");
    }
}

/// Delivers the bios of other queues and of futures to their mailboxes. They follow the first `nr`
/// bios of the list.
#[cold]
fn deliver_others(token: &mut Token<'_>, own: &mut Ready, nr: usize) -> bool {
    let mut ended = std::mem::take(&mut token.ended);
    ended.extend(own.ended_mut().drain(nr..));
    let kick = token.deliver_each(&mut ended, Some(own));
    token.ended = ended;
    kick
}
