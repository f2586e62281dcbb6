//! The `file` driver: a regular file or a block device, through io_uring where there is that.
//!
//! - [`open`](open::open): opens it, and says why where it cannot; for `aio` and `psync`, too;
//! - [`engine`]: chooses what does the I/O;
//! - [`probe`]: what the kernel says of its limits and features;
//! - [`ranges`]: how ranges are discarded and zeroed;
//! - [`sysfs`]: what `/sys` says of the device below;
//! - [`device`]: makes a ring for each queue;
//! - [`base`]: what those rings have in common;
//! - [`uring`]: the driver itself;
//! - [`commands`]: what each tag is doing, and the ring's entry for it;
//! - [`inline`]: buffered writes that the driver makes itself;
//! - [`waiter`]: waits for a ring that others use;
//! - [`enter`]: the system call, as a test can replace it;
//! - [`forbidden`]: the end of a ring whose system call is forbidden;
//! - [`event`]: a descriptor for completions that the kernel has deferred.

mod base;
mod commands;
mod device;
mod engine;
mod enter;
mod event;
mod forbidden;
mod inline;
mod open;
mod probe;
mod ranges;
mod restrictions;
mod sysfs;
#[cfg(test)]
mod tests;
mod uring;
mod waiter;

pub(super) use open::{no_uring, open, open_aio, open_psync};
