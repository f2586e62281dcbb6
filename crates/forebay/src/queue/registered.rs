//! Memory of a caller that is registered with a queue.

use crate::driver::{Registration, RingMemory};
use crate::error::RegisterError;
use std::sync::Arc;

/// Memory that is registered with a device until this is dropped. Made by
/// [`BioQueue::register_memory`](crate::BioQueue::register_memory).
#[derive(Debug)]
pub struct RegisteredMemory(Registration);

impl RegisteredMemory {
    /// Registers a range with the ring of a queue. The caller keeps the conditions of
    /// `BioQueue::register_memory`.
    pub(super) fn register(
        memory: &Arc<RingMemory>,
        addr: usize,
        len: usize,
    ) -> Result<RegisteredMemory, RegisterError> {
        let registered = memory.register(addr, len);
        let refused = |source| RegisterError::Refused { len, source };
        registered.map(RegisteredMemory).map_err(refused)
    }

    /// Returns how many requests have used registered memory so far, of all queues and ranges on
    /// the hardware context of its queue.
    pub fn nr_hctx_requests(&self) -> u64 {
        self.0.nr_ring_requests()
    }
}
