//! The error of a commit, shared by all callers that depended on one sync.

use std::io;
use std::sync::Arc;
use thiserror::Error;

/// A sync has failed, so writes that were not yet durable may be lost. No later sync can prove
/// otherwise. All callers that depended on that sync get the same error.
///
/// In a child of a fork, every commit to a group commit of its parent fails with another text.
#[derive(Clone, Debug, Error)]
#[error(transparent)]
pub struct CommitError(Cause);

#[derive(Clone, Debug, Error)]
enum Cause {
    #[error(
        "a sync failed: {0}; uncommitted writes may be lost even if a later sync succeeds: write \
         them again, then call acknowledge_loss()"
    )]
    Sync(#[source] Arc<io::Error>),
    #[error(
        "commit refused: {0}; open the file again after the fork and create a group commit for it"
    )]
    Forked(#[source] Arc<io::Error>),
}

impl CommitError {
    pub(crate) fn new(source: io::Error) -> CommitError {
        CommitError(Cause::Sync(Arc::new(source)))
    }

    /// Returns the error of all commits in a child of a fork.
    pub(super) fn forked() -> CommitError {
        let why = "the group commit was created by the parent of this process";
        CommitError(Cause::Forked(Arc::new(io::Error::new(io::ErrorKind::InvalidInput, why))))
    }

    /// Returns the error of the sync.
    pub fn io_error(&self) -> &io::Error {
        let (Cause::Sync(source) | Cause::Forked(source)) = &self.0;
        source
    }
}

impl From<CommitError> for io::Error {
    fn from(error: CommitError) -> io::Error {
        io::Error::new(error.io_error().kind(), error)
    }
}
