//! Steps of a reap. The core calls them in order ([`forebay_core::wait::Reaper`]).

use super::BioQueue;
use crate::driver::Offer;
use crate::runtime::hctx::now_ns;
use crate::runtime::{thread, wait};
use forebay_core::wait::Reaper;
use forebay_core::{Commit, Turned, UnplugCause};
use std::sync::Arc;

/// A queue, for its owner, the thread that reaps it.
pub(super) struct QueueReaper<'a>(pub(super) &'a BioQueue);

impl Reaper for QueueReaper<'_> {
    #[inline]
    fn is_shared(&self) -> bool {
        self.0.shared.hctx(self.0.ctx.hctx()).is_shared
    }

    #[inline]
    fn can_turn(&self) -> bool {
        !self.0.shared.is_after_fork()
    }

    #[inline]
    fn nr_ready(&self) -> usize {
        self.0.ready.borrow().len()
    }

    #[inline]
    fn nr_in_layer(&self) -> usize {
        self.0.len - self.nr_ready()
    }

    fn nr_mailed(&self) -> u64 {
        self.0.ready.borrow().nr_mailed()
    }

    #[inline]
    fn take_mail(&mut self) {
        self.0.ready.borrow_mut().take_mail();
    }

    #[inline]
    fn lacks_tags(&self) -> bool {
        self.0.ready.borrow().mailbox().cell.lacks_tags()
    }

    fn unplug(&mut self) {
        thread::unplug_all(UnplugCause::Wait, Some(&self.0.ctx));
    }

    #[inline]
    fn turn(&mut self, commit: Commit) -> Option<Turned> {
        let BioQueue { ctx, ready, shared, .. } = self.0;
        ctx.turn_for(ready, shared, now_ns(shared.is_timed()), Some(commit))
    }

    #[inline]
    fn skip_turn(&mut self) {
        if self.0.poll.is_some() {
            self.0.signal_alarm();
        }
    }

    fn commit(&mut self) {
        self.0.ctx.commit(&self.0.shared);
    }

    fn wait(&mut self, goal: u64) {
        let mailbox = Arc::clone(self.0.ready.borrow().mailbox());
        if self.is_shared() && thread::owns_context_of(&self.0.shared) {
            // A freeze waits for requests of that context, and keeps bios out of this one.
            // Deferred requests of this queue must not wait for them (W5).
            self.commit();
            thread::settle_owned_if_frozen(&self.0.shared, || mailbox.cell.is_reached(goal));
        }
        wait::wait(&self.0.shared, &self.0.ctx, &mailbox, goal, Offer::NONE);
    }

    fn wait_as_owner(&mut self, turned: Turned, nr: u32) {
        wait::wait_as_owner(&self.0.shared, self.0.ctx.hctx(), turned, nr);
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
