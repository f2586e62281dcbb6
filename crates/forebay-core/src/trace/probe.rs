//! Probes: observers of records as they are written, in the thread that writes them.
//!
//! A reader of a ring sees records later, and in a thread of its own. A probe sees them at once, so
//! a debugger or tracer of the system can stop there or take the stack. The core cannot contain the
//! instructions that such tools need, so the library supplies them.

use super::record::TraceRecord;
use core::fmt;
// Not that of models: their properties do not depend on it.
use core::sync::atomic::{AtomicU64, Ordering};

/// An observer of the records of a software queue or hardware context.
pub trait TraceProbe: fmt::Debug + Send + Sync {
    /// Returns the switch of the probe.
    fn switch(&self) -> ProbeSwitch;

    /// Observes a record. Called only while the switch is on.
    fn record(&self, record: &TraceRecord);

    /// Notes that a writer has dropped this probe, because nothing observes records any more.
    fn end(&self);
}

/// Bits of a static that are not 0 while anything observes a probe. So a writer tests it without a
/// call.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSwitch {
    word: &'static AtomicU64,
    bits: u64,
}

impl ProbeSwitch {
    /// Returns the switch of these bits of a word.
    pub const fn new(word: &'static AtomicU64, bits: u64) -> ProbeSwitch {
        ProbeSwitch { word, bits }
    }

    /// Returns a switch that is always off.
    pub(super) const fn off() -> ProbeSwitch {
        static OFF: AtomicU64 = AtomicU64::new(0);
        ProbeSwitch::new(&OFF, 0)
    }

    /// Returns whether anything observes records now.
    #[inline(always)]
    pub fn is_on(self) -> bool {
        // Relaxed: nothing depends on when a writer sees it.
        self.word.load(Ordering::Relaxed) & self.bits != 0
    }
}
