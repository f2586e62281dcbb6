//! The `ram` driver: a disk in memory, with the service times of a simple device if wanted.
//!
//! - [`queue`]: the device, its clock and its queues;
//! - [`memory`]: the bytes, which all queues share.

mod memory;
mod queue;
#[cfg(test)]
mod tests;

pub(super) use queue::open;
