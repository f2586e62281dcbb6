//! The checkers. Each file checks one rule and keeps the state that the rule needs.
//!
//! - [`bios`]: every bio ends exactly once, at its owner, with its own status and length. No byte
//!   is transferred twice. No bio ends while the driver still has it (P1, K2).
//! - [`cover`]: a request covers exactly its bios, and its bytes exactly their memory (P4).
//! - [`limits`]: a request keeps every limit of the device (K3).
//! - [`register`]: each block reads as a legal value (P3).
//! - [`durable`], [`promises`]: data acknowledged as durable survives a crash (P2).
//! - [`order`]: no bio is overtaken beyond the bound (T8), and a NOWAIT bio does not wait (P5).
//! - [`retries`]: no retry of a write is overtaken (A1, A2).
//! - [`classes`]: no request passes one of a higher class (DL4).
//! - [`gates`]: one task holds the token at a time, and nothing is dispatched behind a closed gate
//!   (R5).
//! - [`gather`]: a split bio gathers tags before its first part is issued (T14).
//! - [`owners`]: the limits of owners (OW1).
//! - [`owner_depths`]: the depths that latency goals leave owners (OW7).
//! - [`waits`], [`lines`]: waits for tags, of the budget and of hardware contexts (T1 to T7, T10).
//! - [`runs`]: runs of hardware contexts, deadlines and time limits (R1 to R4, R6, W7, H1).
//! - [`drained`]: nothing is left in the layer at the end of a run.
//! - [`stall`]: which rule a stall has broken.
//!
//! [`rules`] has the names and texts of the rules. Three checks are elsewhere:
//! - `driver.rs`: no tag is live twice.
//! - `runtime/thread.rs`: a task that is about to wait may wait there (I4, T9, T11, T12).
//! - `world.rs`: the scheduler's loop detects a stall.
//!
//! Not checked:
//! - If a byte failed several times, the check requires only that the last failure is reported.
//! - Memory has no content here except the values of whole blocks.
//! - Reopening a disk after a crash: none of the layer's state survives a crash.

pub(crate) mod bios;
pub(crate) mod classes;
pub(crate) mod cover;
pub(crate) mod depths;
pub(crate) mod drained;
pub(crate) mod durable;
pub(crate) mod gates;
pub(crate) mod gather;
mod given_up;
pub(crate) mod limits;
pub(crate) mod lines;
mod memory;
pub(crate) mod order;
pub(crate) mod owner_depths;
pub(crate) mod owners;
mod promises;
pub(crate) mod register;
mod retries;
pub(crate) mod rules;
pub(crate) mod runs;
pub(crate) mod stall;
pub(crate) mod waits;

use crate::trace::{Kind, Trace};
use bios::Bios;
use classes::Classes;
use depths::Depths;
use durable::Durable;
use forebay_core::{Policy, QueueLimits};
use gates::Gatekeeper;
use gather::Gathers;
use lines::LineWakes;
use memory::Memory;
use order::Order;
use owner_depths::OwnerDepths;
use owners::OwnerLimits;
use register::Register;
use retries::Retries;
use runs::RunLog;
use waits::Waits;

/// A broken rule, and what has broken it. One pointer, so that the result of a check that finds
/// nothing is one register.
#[derive(Debug)]
pub(crate) struct Broken(Box<(&'static str, String)>);

impl Broken {
    #[cold]
    pub(crate) fn new(rule: &'static str, what: String) -> Broken {
        Broken(Box::new((rule, what)))
    }

    /// Returns the rule, and what has broken it.
    pub(crate) fn into_parts(self) -> (&'static str, String) {
        *self.0
    }
}

/// The result of a check.
pub(crate) type Verdict = Result<(), Broken>;

/// Returns the verdict that a rule is broken.
// Cold, so that the compiler moves the text of a failed check out of the way of the code that runs.
#[cold]
#[inline(never)]
pub(crate) fn broken(rule: &'static str, what: String) -> Verdict {
    Err(Broken::new(rule, what))
}

/// All state that the checkers keep during a run.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) trace: Trace,
    /// The real limits of the device, which may differ from the limits that the layer has.
    pub(crate) limits: QueueLimits,
    pub(crate) bios: Bios,
    pub(crate) register: Register,
    pub(crate) durable: Durable,
    pub(crate) order: Order,
    pub(crate) retries: Retries,
    pub(crate) gates: Gatekeeper,
    pub(crate) gathers: Gathers,
    pub(crate) depths: Depths,
    pub(crate) classes: Classes,
    pub(crate) owners: OwnerLimits,
    pub(crate) owner_depths: OwnerDepths,
    pub(crate) waits: Waits,
    pub(crate) lines: LineWakes,
    pub(crate) runs: RunLog,
    pub(crate) broken: Option<Broken>,
    /// The last step that made progress.
    pub(crate) progress_at: u64,
}

impl Checks {
    pub(crate) fn new(
        trace: Trace,
        limits: QueueLimits,
        policy: &Policy,
        bound: u64,
        waits: Waits,
    ) -> Checks {
        let nr_hctxs = policy.nr_hw_queues as usize;
        let Memory { rows, register, durable } = Memory::take();
        Checks {
            trace,
            limits,
            bios: Bios::new(limits.logical_block_size, policy.io_timeout_ns > 0, rows),
            register,
            durable,
            order: Order::new(policy, bound),
            retries: Retries::default(),
            gates: Gatekeeper::new(nr_hctxs),
            gathers: Gathers::new(policy, &limits, bound > 0),
            depths: Depths::new(policy, &limits),
            classes: Classes::new(policy, bound > 0),
            owners: OwnerLimits::new(policy, limits.logical_block_size),
            owner_depths: OwnerDepths::new(policy),
            waits,
            lines: LineWakes::default(),
            runs: RunLog::new(nr_hctxs),
            broken: None,
            progress_at: 0,
        }
    }

    /// Leaves out the checks that hold only as long as a disk has no scheduler.
    pub(crate) fn scheduler_may_change(&mut self) {
        self.order.leave_out();
        self.gathers.leave_out();
    }

    /// Restores the initial state of bios, blocks and promises, and keeps the allocated memory. For
    /// worlds that use no other checkers.
    pub(crate) fn reset(&mut self) {
        self.trace.reset();
        self.bios.reset();
        self.register.reset();
        self.durable.reset();
        self.retries.reset();
        self.broken = None;
    }

    /// Records that a context lets a bio in.
    pub(crate) fn let_in(&mut self, hctx: usize, slot: u32) {
        self.classes.arrive(self.bios.row_mut(slot));
        self.owners.accept(hctx, slot, self.bios.row(slot), self.trace.now);
        self.owner_depths.accept(hctx, slot, self.bios.row(slot));
    }

    /// Records that the device is gone for a context: no owner holds I/O back there.
    pub(crate) fn owners_gone(&mut self, hctx: usize) {
        self.owners.gone(hctx);
        self.owner_depths.gone(hctx);
    }

    #[inline]
    pub(crate) fn note(&mut self, kind: Kind, a: u64, b: u64) {
        self.trace.note(kind, a, b);
    }

    /// Records the first broken rule; the run ends with it.
    #[inline]
    pub(crate) fn expect(&mut self, verdict: Verdict) {
        if let Err(broken) = verdict {
            self.record(broken);
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        let rows = self.bios.take_memory();
        let register = std::mem::take(&mut self.register);
        Memory { rows, register, durable: std::mem::take(&mut self.durable) }.keep();
    }
}
