//! Reports of overdue requests, for logs.

use crate::bio::Op;
use crate::hctx::HardwareContext;
use crate::request::Request;
use alloc::sync::Arc;
use core::fmt::Debug;

/// An overdue request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LateRequest {
    /// The operation.
    pub op: Op,
    /// The first byte on the device; 0 for a flush.
    pub start: u64,
    /// The number of bytes; 0 for a flush.
    pub len: u64,
    /// The layer's reaction.
    pub stage: LateStage,
}

/// The layer's reaction to an overdue request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateStage {
    /// The driver has asked the device to cancel it.
    Cancelled,
    /// The driver cannot cancel it, and waits for it.
    Awaited,
    /// It has not completed within the grace period, so the device counts as gone.
    GivenUp,
}

impl LateStage {
    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            LateStage::Cancelled => "cancelled",
            LateStage::Awaited => "awaited",
            LateStage::GivenUp => "given up",
        }
    }
}

/// Receiver of overdue requests. It is called within a turn, so it must not wait.
pub trait LateRequests: Debug + Send + Sync {
    /// Records a request.
    fn note(&self, late: LateRequest);
}

/// Reports a request.
pub(super) fn note(to: Option<&Arc<dyn LateRequests>>, rq: &Request, stage: LateStage) {
    if let Some(to) = to {
        to.note(LateRequest { op: rq.op, start: rq.start, len: rq.len, stage });
    }
}

impl HardwareContext {
    /// Sets the receiver of overdue requests.
    pub fn set_late_requests(&mut self, late: Arc<dyn LateRequests>) {
        self.timeouts.late = Some(late);
    }
}
