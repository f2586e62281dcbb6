//! The `psync` driver: a file or a block device through system calls that block.
//!
//! - [`call`]: one request as a system call;
//! - [`queue`]: the calls of one hardware context: what waits, what is done, who sleeps;
//! - [`pool`]: the threads of a device, which make the calls;
//! - [`driver`]: the device, and the driver itself.
//!
//! Who waits for one request alone makes its call: then it costs no more than a plain `pread`.
//! `aio` uses the same queue and threads for what the kernel's AIO lacks.

pub(super) mod call;
mod driver;
pub(super) mod pool;
pub(super) mod queue;
#[cfg(test)]
mod tests;

pub(super) use driver::{PsyncDevice, nr_threads};
