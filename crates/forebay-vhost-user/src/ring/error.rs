//! Errors of a ring: the driver has broken the standard, or memory is gone.

use crate::inflight::RecoverError;
use crate::memory::OutsideMemory;

/// The reason why a ring stops.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// A part of the ring is outside of the guest's memory.
    #[error("the ring is not in the memory of the guest")]
    NotInMemory,
    /// A region of the guest's memory is gone.
    #[error("the front end has truncated the memory of the guest")]
    Truncated,
    /// The available index moved too far.
    #[error("the available index is {nr} entries ahead in a ring of {size}")]
    IndexJump {
        /// Entries that seem to be available.
        nr: u16,
        /// Size of the ring.
        size: u16,
    },
    /// The head of a request is not in the table.
    #[error("descriptor {head} is the head of a request, but the ring has {size} descriptors")]
    BadHead {
        /// The head.
        head: u16,
        /// Size of the ring.
        size: u16,
    },
    /// The head of a request is that of another request in flight.
    #[error("descriptor {0} is the head of two requests")]
    HeadInFlight(u16),
    /// A chain is malformed.
    #[error("request {head}: {why}")]
    Chain {
        /// The head of the chain.
        head: u16,
        /// The reason.
        why: &'static str,
    },
    /// A descriptor is outside of the guest's memory.
    #[error("request {head}: {outside}")]
    Outside {
        /// The head of the chain.
        head: u16,
        /// The range.
        outside: OutsideMemory,
    },
    /// The in-flight region is not that of the ring.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The number of descriptors is not a power of two.
    #[error("the ring has {0} descriptors, which is not a power of two")]
    Size(u16),
}

impl RingError {
    pub(super) fn outside(head: u16, outside: OutsideMemory) -> RingError {
        RingError::Outside { head, outside }
    }
}
