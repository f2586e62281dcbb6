//! The `vhost-user` driver: the disk of a vhost-user-blk server, such as qemu-storage-daemon's
//! export or SPDK's, without a virtual machine. This side is the *front-end* in the terms of the
//! protocol, and the *driver* in those of virtio.
//!
//! - [`mod@open`]: keys, limits and features; [`config`]: the reports of the server, checked;
//! - [`connect`]: the handshake, which sets up all rings; [`link`]: the connection afterwards;
//!   [`size`]: the message that reads the size again;
//! - [`region`]: the memory that both sides share; [`geometry`]: its parts;
//! - [`ring`]: a split virtqueue; [`notify`]: its notifications; [`requests`]: the requests in it;
//! - [`spin`]: polling before a sleep;
//! - [`device`], [`queue`], [`waiter`]: the interface to the layer.
//!
//! The server is not trusted. It can change only memory of the shared region, which holds rings and
//! copies of data. A lost connection, or a ring that breaks the standard, fails the device: each
//! request in flight ends with [`Offline`](forebay_core::BlockStatus::Offline), and the first
//! reason is kept. There is no reconnect.
//!
//! All of this is the cargo feature `vhost-user`, because it needs crates that most users of the
//! library do not. The program enables it.

#[cfg(feature = "vhost-user")]
mod config;
#[cfg(feature = "vhost-user")]
mod connect;
#[cfg(feature = "vhost-user")]
mod device;
#[cfg(all(fuzzing, feature = "vhost-user"))]
pub(crate) mod fuzzed;
#[cfg(feature = "vhost-user")]
mod geometry;
#[cfg(all(test, feature = "vhost-user"))]
mod handshakes;
#[cfg(feature = "vhost-user")]
mod link;
#[cfg(test)]
mod models;
// Its models run without the feature too.
#[cfg(any(test, feature = "vhost-user"))]
mod notify;
#[cfg(feature = "vhost-user")]
mod open;
#[cfg(all(test, feature = "vhost-user"))]
mod polling;
#[cfg(feature = "vhost-user")]
mod queue;
#[cfg(feature = "vhost-user")]
mod region;
#[cfg(feature = "vhost-user")]
mod requests;
#[cfg(feature = "vhost-user")]
mod ring;
// A fuzz target uses only a part of it.
#[cfg(all(any(test, fuzzing), feature = "vhost-user"))]
#[cfg_attr(fuzzing, expect(dead_code, reason = "tests use the rest"))]
mod simulated;
#[cfg(feature = "vhost-user")]
mod size;
#[cfg(feature = "vhost-user")]
mod spin;
#[cfg(all(test, feature = "vhost-user"))]
mod tests;
#[cfg(feature = "vhost-user")]
mod waiter;

use crate::error::SpecError;
use crate::keys::Keys;
#[cfg(feature = "vhost-user")]
pub(super) use open::open;
use std::time::Duration;

/// Takes the size of the rings, in descriptors.
fn take_queue_size(keys: &mut Keys) -> Result<Option<u16>, SpecError> {
    keys.take("queue_size", "a power of two, 4 to 1024", |value| {
        let size = value.parse().ok();
        size.filter(|size: &u16| size.is_power_of_two() && (4..=1024).contains(size))
    })
}

/// Takes the longest polling of a wait before it sleeps.
fn take_poll(keys: &mut Keys) -> Result<Duration, SpecError> {
    let expected = "a number of microseconds, 0 to 100000";
    let poll_us = keys.take_number("poll_us", expected, 0..=100_000)?;
    Ok(Duration::from_micros(poll_us.unwrap_or(0)))
}

/// Refuses the driver, in a build without it.
#[cfg(not(feature = "vhost-user"))]
pub(super) fn open(
    spec: &crate::spec::Spec,
    keys: &mut Keys,
    _: &crate::settings::Settings,
) -> Result<super::Opened, crate::error::OpenError> {
    take_queue_size(keys)?;
    take_poll(keys)?;
    let why =
        String::from("no such driver in this build: build forebay with its feature `vhost-user`");
    Err(crate::error::OpenError::VhostUser { path: spec.target().into(), why, source: None })
}
