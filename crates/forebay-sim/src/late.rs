//! Requests over their time limit, as the layer reports them.

use forebay_core::{LateRequest, LateRequests, LateStage};
use std::sync::{Arc, Mutex, PoisonError};

/// How many of the reported requests are kept.
const NR_KEPT: usize = 8;

/// The requests of a run that were over their time limit, by the layer's reaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// Requests that the device was asked to cancel.
    pub nr_cancelled: u64,
    /// Requests that could not be cancelled.
    pub nr_awaited: u64,
    /// How often a request that did not complete within the grace period made the device count as
    /// gone.
    pub nr_given_up: u64,
    /// The first reports.
    pub first: Vec<LateRequest>,
}

/// Receives the reports of all hardware contexts.
#[derive(Clone, Debug, Default)]
pub(crate) struct LateLog(Arc<Mutex<Late>>);

impl LateLog {
    /// Returns the requests that were reported so far.
    pub(crate) fn get(&self) -> Late {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl LateRequests for LateLog {
    fn note(&self, late: LateRequest) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *match late.stage {
            LateStage::Cancelled => &mut log.nr_cancelled,
            LateStage::Awaited => &mut log.nr_awaited,
            LateStage::GivenUp => &mut log.nr_given_up,
        } += 1;
        if log.first.len() < NR_KEPT {
            log.first.push(late);
        }
    }
}
