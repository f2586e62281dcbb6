//! Freeze, quiesce and stop: three ways to hold a disk.
//!
//! A freeze waits for I/O that another hold may keep from ending. An admitted request that is not
//! at the driver ends only when no other hold quiesces or stops the disk any more. Such a request
//! is stranded. A freeze that finds one fails, because the other hold may belong to its own caller.

use crate::error::FreezeError;
use crate::runtime::hctx::Hctx;
use crate::runtime::primitive::{lock, thread};
use crate::runtime::shared::Shared;
use forebay_core::Gate;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sleep between two checks, for threads that have to drain their own contexts.
const PATIENCE: Duration = Duration::from_micros(200);

/// Keeps a disk frozen, quiesced or stopped until it is dropped. Several holds may exist at once.
/// When the last hold of a kind is dropped, the I/O that it held continues: in the dropping thread,
/// or in the thread that owns the hardware context, after its event loops are woken.
#[must_use = "a hold that is not kept ends at once"]
pub struct Hold {
    shared: Arc<Shared>,
    gate: Gate,
}

impl Hold {
    /// Closes a gate on all contexts. A turn that is under way may not have seen it.
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

    /// Waits until every turn that began before the gate was closed is over (R5).
    pub(crate) fn await_turns(&self) {
        for hctx in self.shared.hctxs() {
            while hctx.run.is_running() && !self.shared.is_foreign() {
                thread::yield_now();
            }
        }
    }

    /// Waits until every request that was admitted before the gate was closed has left its context;
    /// at most for `timeout`, if given.
    ///
    /// # Errors
    /// The hold that keeps admitted requests from ending, or a timeout.
    pub(crate) fn await_drained(&self, timeout: Option<Duration>) -> Result<(), FreezeError> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        for (at, hctx) in self.shared.hctxs().iter().enumerate() {
            while !self.is_drained(at, hctx)? {
                let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                if let (Some(timeout), Some(Duration::ZERO)) = (timeout, left) {
                    return Err(FreezeError::TimedOut { disk: self.disk(), timeout });
                }
                std::thread::sleep(left.map_or(PATIENCE, |left| left.min(PATIENCE)));
            }
        }
        Ok(())
    }

    fn disk(&self) -> String {
        self.shared.info().spec.clone()
    }

    fn is_drained(&self, at: usize, hctx: &Hctx) -> Result<bool, FreezeError> {
        if self.shared.is_foreign() {
            return Ok(true);
        }
        // A shared context, or one that this thread owns, may have no other thread to turn it.
        if hctx.is_shared || crate::runtime::thread::owns(&self.shared, at) {
            hctx.run_turn();
        }
        // Once no turn is under way, every later turn finds the gate closed, and admits nothing.
        if hctx.run.is_running() {
            return Ok(false);
        }
        if hctx.is_stranded() {
            self.check_other_holds()?;
        }
        Ok(hctx.is_drained())
    }

    /// Fails if another hold keeps requests from the driver.
    fn check_other_holds(&self) -> Result<(), FreezeError> {
        let counts = *lock(&self.shared.holds);
        match counts[Gate::Quiesced as usize] + counts[Gate::Stopped as usize] {
            0 => Ok(()),
            _ if counts[Gate::Quiesced as usize] > 0 => {
                Err(FreezeError::Quiesced { disk: self.disk() })
            }
            _ => Err(FreezeError::Stopped { disk: self.disk() }),
        }
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
        // No other thread runs the requests that the gate held back (R4).
        for hctx in self.shared.hctxs() {
            match hctx.is_shared {
                true => hctx.run_turn(),
                // B3.
                false => hctx.wake_loops(),
            }
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hold").field(&self.gate).finish()
    }
}
