//! The `psync` driver: a file or a block device through blocking system calls.
//!
//! - [`call`]: one request as a system call;
//! - [`queue`]: the pending and finished calls of one hardware context, and the sleeping thread;
//! - [`pool`]: the threads of a device, which make the calls;
//! - [`driver`]: the device, and the driver itself.
//!
//! A thread that waits for one request makes the call itself, so the request costs no more than a
//! plain `pread`. `aio` uses the same queue and threads for operations that the kernel's AIO lacks.

pub(super) mod call;
mod driver;
pub(super) mod pool;
pub(super) mod queue;
#[cfg(test)]
mod tests;

pub(super) use driver::{PsyncDevice, nr_threads};
