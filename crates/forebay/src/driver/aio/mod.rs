//! The `aio` driver: a file or a block device through the kernel's AIO (`io_submit`).
//!
//! - [`context`]: the system calls, and the ring of completions in memory;
//! - [`device`]: makes a context for each queue;
//! - [`driver`]: the driver itself;
//! - [`waiter`]: waits for a context that other threads use.
//!
//! It serves kernels and containers without io_uring. Submission is asynchronous only with direct
//! I/O: otherwise the kernel reads and writes through the page cache while it submits.

mod context;
mod device;
mod driver;
#[cfg(test)]
mod tests;
mod waiter;

pub(super) use device::{AioDevice, no_aio};
