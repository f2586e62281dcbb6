//! Devices for virtual machines: exports that are served as vhost-user-blk.
//!
//! A device has one socket and one front end (QEMU) at a time. The next one waits until the
//! connection of the previous one has ended.
//!
//! - `connections`: connections that wait for the device;
//! - `channel`: the thread that reads the messages of front ends;
//! - `ring`: the thread of each request queue;
//! - `threads`: starts and ends all of these;
//! - `devices`: the devices of a running server, which may be added and removed.

mod channel;
mod connections;
mod devices;
mod ring;
mod threads;

pub(crate) use devices::{Devices, end_connections};
pub(crate) use threads::DeviceThreads;
