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
//! device: it sleeps until the next command is done, without timer slack. On a virtual machine of
//! two busy cores half of all completions were taken within 5 us of their time, and nine of ten
//! within 11 us; 11 and 49 us while 64 KiB each were copied into new memory. An I/O of 81.3 us,
//! alone, ended after 84 us (p50) and 90 us (p99), as its submitter sees it. While nothing is in
//! flight nothing runs, and 10 000 I/Os per second, one at a time, took 8 % of a core, the jobs
//! included.

mod open;
mod queue;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub(super) use open::open;
