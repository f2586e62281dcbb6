//! Requests of a ring that were taken: in flight, or held back.

use crate::host::Io;
use crate::kinds::RequestKind;
use forebay_core::Op;

/// The protocol's part of a request in flight.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    pub(super) head: u16,
    pub(super) kind: RequestKind,
    /// First byte on the disk.
    pub(super) offset: u64,
    /// Bytes of data.
    pub(super) len: u64,
}

/// A request that was taken, and not submitted yet.
#[derive(Debug)]
pub(super) struct HeldBack<M> {
    pub(super) rq: InFlight,
    pub(super) work: Work<M>,
}

/// The I/O of a request.
#[derive(Debug)]
pub(super) enum Work<M> {
    /// A single I/O.
    One(Io<M>),
    /// An I/O for each range of the session's list.
    Ranges { op: Op },
}
