//! The checkers. Each file holds one rule, and what it has to remember.
//!
//! - [`bios`]: every bio ends exactly once, at its owner, with its own status and length; no byte
//!   moves twice; nothing ends while the driver still has it (P1, K2);
//! - [`cover`]: a request covers exactly its bios, and its bytes their memory (P4);
//! - [`limits`]: a request keeps every limit of the device (K3);
//! - [`register`]: each block reads as a legal value (P3);
//! - [`durable`], [`promises`]: what was acknowledged as durable is there after a crash (P2);
//! - [`order`]: nobody is overtaken beyond the bound (T8), and NOWAIT does not wait (P5);
//! - [`gates`]: one holder of the token; nothing is dispatched behind a closed gate (R5);
//! - [`waits`], [`lines`]: waits for tags, of the budget and of hardware contexts (T1 to T7, T10);
//! - [`runs`]: runs of hardware contexts (R1 to R4, R6).
//!
//! What the rules are called and say stands in [`rules`]. That no tag is live twice, the driver
//! sees (`driver.rs`); that nobody waits where it may not (T9, T11, T12), who is about to
//! (`runtime/wait.rs`); that nothing stalls, the scheduler's loop (`world.rs`), and [`stall`] says
//! why it does; that all is drained at the end, [`drained`].
//!
//! What is not checked: which of several failures of one byte is reported, beyond that it is the
//! last one; memory, which has no content here but the values of whole blocks; how the layer opens
//! a disk again after a crash, since nothing of it outlives one.

pub(crate) mod bios;
pub(crate) mod cover;
pub(crate) mod drained;
pub(crate) mod durable;
pub(crate) mod gates;
pub(crate) mod limits;
pub(crate) mod lines;
pub(crate) mod order;
mod promises;
pub(crate) mod register;
pub(crate) mod rules;
pub(crate) mod runs;
pub(crate) mod stall;
pub(crate) mod waits;

use crate::trace::{Kind, Trace};
use bios::Bios;
use durable::Durable;
use forebay_core::{Policy, QueueLimits};
use gates::Gatekeeper;
use lines::LineWakes;
use order::Order;
use register::Register;
use runs::RunLog;
use waits::Waits;

/// A rule that does not hold.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

/// What a check says.
pub(crate) type Verdict = Result<(), Broken>;

/// That a rule is broken.
pub(crate) fn broken(rule: &'static str, what: String) -> Verdict {
    Err(Broken { rule, what })
}

/// All that the checkers remember of a run.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) trace: Trace,
    /// What the device can take, whatever the layer was told.
    pub(crate) limits: QueueLimits,
    pub(crate) bios: Bios,
    pub(crate) register: Register,
    pub(crate) durable: Durable,
    pub(crate) order: Order,
    pub(crate) gates: Gatekeeper,
    pub(crate) waits: Waits,
    pub(crate) lines: LineWakes,
    pub(crate) runs: RunLog,
    pub(crate) broken: Option<Broken>,
    /// The step in which something last moved on.
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
        Checks {
            trace,
            limits,
            bios: Bios::new(limits.logical_block_size),
            register: Register::default(),
            durable: Durable::default(),
            order: Order::new(policy, bound),
            gates: Gatekeeper::new(nr_hctxs),
            waits,
            lines: LineWakes::default(),
            runs: RunLog::new(nr_hctxs),
            broken: None,
            progress_at: 0,
        }
    }

    #[inline]
    pub(crate) fn note(&mut self, kind: Kind, a: u64, b: u64) {
        self.trace.note(kind, a, b);
    }

    /// Keeps the first rule that is broken; the run ends with it.
    #[inline]
    pub(crate) fn expect(&mut self, verdict: Verdict) {
        if let Err(broken) = verdict {
            self.broken.get_or_insert(broken);
        }
    }
}
