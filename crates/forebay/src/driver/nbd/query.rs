//! A block-status query of a connection, and its reply so far.

use forebay_core::BlockStatus;

/// The maximum of extents kept from one reply.
const NR_EXTENTS_MAX: usize = 4096;

/// The query. A connection has at most one.
#[derive(Debug, Default)]
pub(super) struct StatusQuery {
    is_open: bool,
    /// Lengths in bytes, and `STATE_*` flags. The list is limited; a further query asks for the
    /// rest.
    extents: Vec<(u64, u32)>,
    result: Option<Result<(), BlockStatus>>,
}

impl StatusQuery {
    pub(super) fn begin(&mut self) {
        self.is_open = true;
        self.extents.clear();
        self.result = None;
    }

    pub(super) fn extent(&mut self, len: u64, state: u32) {
        if self.extents.len() < NR_EXTENTS_MAX {
            self.extents.push((len, state));
        }
    }

    pub(super) fn end(&mut self, result: Result<(), BlockStatus>) {
        if std::mem::take(&mut self.is_open) {
            self.result = Some(result);
        }
    }

    #[cfg(test)]
    pub(super) fn result(&self) -> Option<Result<(), BlockStatus>> {
        self.result
    }

    /// Takes the result of the reply, once it has arrived.
    pub(super) fn take_result(&mut self) -> Option<Result<(), BlockStatus>> {
        self.result.take()
    }

    /// Returns the lengths and flags of the extents that the reply reports.
    pub(super) fn extents(&self) -> &[(u64, u32)] {
        &self.extents
    }

    /// Returns whether a reply has arrived that was not taken yet.
    pub(super) fn has_answer(&self) -> bool {
        self.result.is_some()
    }
}
