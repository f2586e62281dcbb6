//! Begin and end of a trace of the disk.

use super::Shared;
use crate::runtime::trace::DiskTrace;
use crate::runtime::trace::rings::DiskRings;
use std::sync::Arc;

impl Shared {
    /// Begins to record stages of requests to these rings. Returns false if the disk is traced
    /// already.
    pub(crate) fn begin_trace(&self, rings: Arc<DiskRings>) -> bool {
        if !self.trace.begin(rings) {
            return false;
        }
        self.update_timed(self.scheduling().scheduler);
        self.hctxs().iter().for_each(|hctx| hctx.note_new_trace());
        self.run_for_changes();
        true
    }

    /// Lets each context take a writer for the probes, in its next turn.
    pub(crate) fn note_probes(&self) {
        self.hctxs().iter().for_each(|hctx| hctx.note_new_trace());
    }

    /// Ends the recording to these rings.
    pub(crate) fn end_trace(&self, rings: &Arc<DiskRings>) {
        self.trace.end(rings);
        self.update_timed(self.scheduling().scheduler);
    }

    /// Returns the trace of the disk.
    pub(crate) fn trace(&self) -> &Arc<DiskTrace> {
        &self.trace
    }

    /// Returns the number of the block device of the disk: the major number times 2^20, plus the
    /// minor number. `None` if it is none.
    pub(crate) fn block_device(&self) -> Option<u32> {
        self.claim.block_device()
    }
}
