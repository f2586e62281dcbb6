//! Freeze, quiesce and stop: three ways to hold a disk.

use crate::runtime::hctx::Hctx;
use crate::runtime::primitive::{lock, thread};
use crate::runtime::shared::Shared;
use forebay_core::Gate;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long to leave threads alone that are to drain their contexts.
const PATIENCE: Duration = Duration::from_micros(200);

/// Keeps a disk held: frozen, quiesced or stopped. Several may do so at once; what was held goes
/// on when the last of a kind is dropped.
#[must_use = "a hold that is not kept ends at once"]
pub struct Hold {
    shared: Arc<Shared>,
    gate: Gate,
}

impl Hold {
    /// Closes a gate on all contexts, and says so to nobody yet.
    pub(crate) fn new(shared: &Arc<Shared>, gate: Gate) -> Hold {
        let mut counts = lock(&shared.holds);
        counts[gate as usize] += 1;
        shared.hctxs().iter().for_each(|hctx| hctx.run.close(gate));
        drop(counts);
        if gate != Gate::Frozen {
            shared.hctxs().iter().for_each(Hctx::cancel_runs);
        }
        Hold { shared: Arc::clone(shared), gate }
    }

    /// Waits until no turn is under way that began before the gate was closed (R5).
    pub(crate) fn await_turns(&self) {
        for hctx in self.shared.hctxs() {
            while hctx.run.is_running() && !self.shared.is_foreign() {
                thread::yield_now();
            }
        }
    }

    /// Waits until nothing is left in any context that was let in before the gate was closed.
    pub(crate) fn await_drained(&self) {
        for (at, hctx) in self.shared.hctxs().iter().enumerate() {
            while !self.is_drained(at, hctx) {
                std::thread::sleep(PATIENCE);
            }
        }
    }

    fn is_drained(&self, at: usize, hctx: &Hctx) -> bool {
        if self.shared.is_foreign() {
            return true;
        }
        // A shared context, and one of our own, may have nobody else to turn it.
        if hctx.is_shared || crate::runtime::thread::owns(&self.shared, at) {
            hctx.run_turn();
        }
        // Once no turn is under way, every later one finds the gate closed, and lets nothing in.
        !hctx.run.is_running() && hctx.is_drained()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut counts = lock(&self.shared.holds);
        counts[self.gate as usize] -= 1;
        if counts[self.gate as usize] > 0 {
            return;
        }
        self.shared.hctxs().iter().for_each(|hctx| hctx.run.open(self.gate));
        drop(counts);
        // What was left behind the gate has no other to look for it (R4); but an owner, who looks
        // again by itself.
        self.shared.hctxs().iter().filter(|hctx| hctx.is_shared).for_each(Hctx::run_turn);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hold").field(&self.gate).finish()
    }
}
