//! A sync that failed, as those who rested on it are told.

use std::io;
use std::sync::Arc;
use thiserror::Error;

/// A sync has failed, so writes that were not yet durable may be lost, and no later sync can prove
/// otherwise. Everybody who rested on that sync has the same error.
#[derive(Clone, Debug, Error)]
#[error(
    "a sync failed: {source}. What was written and not committed before may be lost, whatever \
     later syncs say: write it anew, then call acknowledge_loss()"
)]
pub struct CommitError {
    source: Arc<io::Error>,
}

impl CommitError {
    pub(super) fn new(source: io::Error) -> CommitError {
        CommitError { source: Arc::new(source) }
    }

    /// What the sync said.
    pub fn io_error(&self) -> &io::Error {
        &self.source
    }
}

impl From<CommitError> for io::Error {
    fn from(error: CommitError) -> io::Error {
        io::Error::new(error.source.kind(), error)
    }
}
