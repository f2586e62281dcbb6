//! The `file` driver: a regular file or a block device, through io_uring where available.
//!
//! - [`open`](open::open): opens the file, or reports why it cannot; for `aio` and `psync`, too;
//! - [`engine`]: chooses the I/O engine;
//! - [`probe`]: limits and features that the kernel reports;
//! - [`ranges`]: how ranges are discarded and zeroed;
//! - [`sysfs`]: attributes of the device below, from `/sys`;
//! - [`device`]: makes a ring for each queue;
//! - [`base`]: resources that those rings share;
//! - [`registered`]: memory of callers that rings have registered;
//! - [`uring`]: the driver itself;
//! - [`commands`]: the command of each tag, and the ring's entry for it;
//! - [`inline`]: buffered writes that the driver makes itself;
//! - [`waiter`]: waits for a ring that other threads use;
//! - [`enter`]: the system call, which a test can replace;
//! - [`forbidden`]: the end of a ring whose system call is forbidden;
//! - [`event`]: a descriptor for completions that the kernel has deferred.

mod base;
mod cancel;
mod commands;
mod device;
mod engine;
mod enter;
mod event;
mod forbidden;
mod inline;
mod open;
mod options;
mod probe;
mod ranges;
mod registered;
mod restrictions;
mod sysfs;
#[cfg(test)]
mod tests;
mod uring;
mod waiter;

pub(super) use base::no_uring;
pub(super) use open::{open, open_aio, open_psync};
pub(crate) use registered::{Registration, RingMemory};
pub(crate) use sysfs::scheduler_of;
