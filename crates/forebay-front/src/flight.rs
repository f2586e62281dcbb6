//! Requests in flight: begun, and not answered.

use crate::slots::Key;
use forebay_core::{BlockStatus, SubmitErrorKind};

/// Failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The disk has failed an I/O.
    Status(BlockStatus),
    /// The disk is read-only.
    ReadOnly,
    /// The disk does not support the operation.
    NotSupported,
    /// The layer has refused an I/O for another reason.
    Rejected,
}

impl From<SubmitErrorKind> for Failure {
    fn from(refusal: SubmitErrorKind) -> Failure {
        match refusal {
            SubmitErrorKind::ReadOnly => Failure::ReadOnly,
            SubmitErrorKind::NotSupported(_) => Failure::NotSupported,
            _ => Failure::Rejected,
        }
    }
}

/// A request in flight. `R` is the protocol's part.
#[derive(Debug)]
pub struct Flight<R> {
    /// Client of the request. It may have gone when the disk completes.
    pub(crate) client: Key,
    pub(crate) export: usize,
    /// Time when the request was parsed, ns.
    pub(crate) begun_ns: u64,
    /// Time when its last part was submitted, ns.
    pub(crate) issued_ns: u64,
    /// I/Os that the disk has not completed.
    pub(crate) in_disk: u32,
    /// Whether all its I/Os have been submitted.
    pub(crate) is_all_there: bool,
    /// First failure.
    pub(crate) failure: Option<Failure>,
    pub(crate) rq: R,
}

impl<R> Flight<R> {
    /// Records a failure, unless there was one.
    #[inline]
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Returns the times of an answered request.
    #[inline]
    pub(crate) fn answered(&self) -> Answered {
        let &Flight { export, begun_ns, issued_ns, .. } = self;
        Answered { export, begun_ns, issued_ns }
    }
}

/// Times of a request that was answered, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    pub(crate) export: usize,
    pub(crate) begun_ns: u64,
    pub(crate) issued_ns: u64,
}

/// The end of one I/O of a request.
#[derive(Debug)]
pub struct Ended<M> {
    /// Key of the request.
    pub(crate) key: Key,
    /// Number that the session gave to the I/O, of four bits.
    pub(crate) mark: usize,
    /// Bytes moved, or the failure.
    pub(crate) result: Result<u64, BlockStatus>,
    /// Memory of the I/O. `None`: it had none, or the disk keeps it.
    pub(crate) memory: Option<M>,
}
