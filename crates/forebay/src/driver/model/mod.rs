//! The `model` driver: the devices of published experiments, in real time.
//!
//! `model:nvme?size=1T&latency_ns=50000` is a disk that takes as long as its model says. Its bytes
//! are in memory; where nothing was written it is nothing but address space.
//!
//! - [`open`]: the spec, and what the device tells of itself;
//! - [`state`]: the machine, which all queues share, and what of whom is done;
//! - [`queue`]: a queue of it;
//! - [`store`]: the bytes.
//!
//! The waits of a thread of the disk (`service=on`, the default here) stand for the interrupts of a
//! device: it sleeps until the next command is done, without timer slack.

mod open;
mod queue;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub(super) use open::open;
