//! The `ram` driver: a disk in memory, with the service times of a simple device if wanted.
//!
//! [`queue`] has the device, its clock and its queues; the bytes, which all queues share, are a
//! [`Memory`](super::memory::Memory).

mod queue;
#[cfg(test)]
mod tests;

pub(super) use queue::open;
