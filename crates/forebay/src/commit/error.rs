//! The error of a failed sync, shared by all callers that depended on it.

use std::io;
use std::sync::Arc;
use thiserror::Error;

/// A sync has failed, so writes that were not yet durable may be lost. No later sync can prove
/// otherwise. All callers that depended on that sync get the same error.
#[derive(Clone, Debug, Error)]
#[error(
    "a sync failed: {source}; uncommitted writes may be lost even if a later sync succeeds: write \
     them again, then call acknowledge_loss()"
)]
pub struct CommitError {
    source: Arc<io::Error>,
}

impl CommitError {
    pub(super) fn new(source: io::Error) -> CommitError {
        CommitError { source: Arc::new(source) }
    }

    /// Returns the error of the sync.
    pub fn io_error(&self) -> &io::Error {
        &self.source
    }
}

impl From<CommitError> for io::Error {
    fn from(error: CommitError) -> io::Error {
        io::Error::new(error.source.kind(), error)
    }
}
