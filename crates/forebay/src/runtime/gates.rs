//! Freeze, quiesce and stop: three ways to hold a disk.
//!
//! The order of the steps is the core's ([`forebay_core::wait::Gated`]). This file supplies the
//! steps.

use crate::error::FreezeError;
use crate::runtime::hctx::{Hctx, SHARED};
use crate::runtime::shared::Shared;
use crate::sys::primitive::{self, lock, thread};
use forebay_core::wait::{self, Gated, Holds};
use forebay_core::{Gate, RunState};
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
        wait::close(&mut Gates::of(shared), gate);
        Hold { shared: Arc::clone(shared), gate }
    }

    /// Waits until every turn that began before the gate was closed is over (R5).
    pub(crate) fn await_turns(&self) {
        wait::await_turns(&mut Gates::of(&self.shared));
    }

    /// Waits until every request that was admitted before the gate was closed has left its context;
    /// at most for `timeout`, if given.
    ///
    /// # Errors
    /// The hold that keeps admitted requests from ending, or a timeout.
    pub(crate) fn await_drained(&self, timeout: Option<Duration>) -> Result<(), FreezeError> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        wait::await_drained(&mut Gates { shared: &self.shared, limit: timeout.zip(end) })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        wait::open(&mut Gates::of(&self.shared), self.gate);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hold").field(&self.gate).finish()
    }
}

/// The gates of a disk.
struct Gates<'a> {
    shared: &'a Arc<Shared>,
    /// The time limit of a wait, and the time at which it ends.
    limit: Option<(Duration, Instant)>,
}

impl Gates<'_> {
    fn of(shared: &Arc<Shared>) -> Gates<'_> {
        Gates { shared, limit: None }
    }

    fn disk(&self) -> String {
        self.shared.info().spec.clone()
    }

    fn hctx(&self, at: usize) -> &Hctx {
        self.shared.hctx(at)
    }
}

impl Gated for Gates<'_> {
    type Error = FreezeError;

    fn nr_hctxs(&self) -> usize {
        self.shared.hctxs().len()
    }

    fn with_holds<T>(&self, change: impl FnOnce(&mut Holds) -> T) -> T {
        change(&mut lock(&self.shared.holds))
    }

    fn run_state(&self, at: usize) -> &RunState {
        &self.hctx(at).run
    }

    fn cancel_runs(&self, at: usize) {
        self.hctx(at).cancel_runs();
        // In a child of a fork the lock may be held by a thread that does not exist there.
        if at == SHARED
            && let Some(emulator) = self.shared.emulator()
            && !self.shared.is_after_fork()
        {
            emulator.cancel_runs();
        }
    }

    fn is_after_fork(&self) -> bool {
        self.shared.is_after_fork()
    }

    fn is_shared(&self, at: usize) -> bool {
        self.hctx(at).is_shared
    }

    fn owns(&self, at: usize) -> bool {
        crate::runtime::thread::owns(self.shared, at)
    }

    fn run_turn(&mut self, at: usize) {
        self.hctx(at).run_turn();
    }

    fn wake_owner(&mut self, at: usize) {
        self.hctx(at).wake_loops();
    }

    fn is_drained(&self, at: usize) -> bool {
        self.hctx(at).is_drained()
    }

    fn is_stranded(&self, at: usize) -> bool {
        self.hctx(at).is_stranded()
    }

    fn stranded(&self, behind: Gate) -> FreezeError {
        match behind {
            Gate::Stopped => FreezeError::Stopped { disk: self.disk() },
            Gate::Quiesced | Gate::Frozen => FreezeError::Quiesced { disk: self.disk() },
        }
    }

    fn pause(&mut self) {
        thread::yield_now();
    }

    fn sleep(&mut self) -> Result<(), FreezeError> {
        let left = match self.limit {
            None => PATIENCE,
            Some((timeout, end)) => match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => {
                    return Err(FreezeError::TimedOut { disk: self.disk(), timeout });
                }
                left => left.min(PATIENCE),
            },
        };
        primitive::pause_for(left);
        Ok(())
    }
}
