//! The `file` driver: a regular file or a block device, through io_uring.
//!
//! - [`open`](open::open): opens it, and says why where it cannot;
//! - [`probe`]: what the kernel says of its limits and features;
//! - [`sysfs`]: what `/sys` says of the device below;
//! - [`uring`]: the driver itself.

mod open;
mod probe;
mod sysfs;
mod uring;

pub(super) use open::open;
