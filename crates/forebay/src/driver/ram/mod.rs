//! The `ram` driver: a disk in memory, optionally with the service times of a simple device.
//!
//! [`queue`] has the device, its clock and its queues. The bytes, which all queues share, are a
//! [`Memory`](super::memory::Memory).

mod queue;
#[cfg(test)]
mod tests;

pub(super) use queue::open;
