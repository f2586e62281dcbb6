//! The `nbd` driver: an export of an NBD server, of this machine or another.
//!
//! - [`open`]: from an NBD URI to a device: limits and features by what the server says;
//! - [`connect`]: a connection, through its handshake;
//! - [`socket`]: system calls; [`stream`]: bytes to and from a peer, under TLS or not;
//! - [`link`]: a connection in use: requests, memory, replies; [`outgoing`] and [`incoming`], what
//!   was not sent and what was not looked at;
//! - [`device`], [`queue`], [`waiter`]: what the layer sees;
//! - [`status`]: what is asked beside the layer.
//!
//! The protocol itself is in the crate `forebay-nbd`, which does no I/O and trusts no server. A
//! connection that is lost, or that a server breaks, fails the device: each request that was under
//! way ends with [`Offline`](forebay_core::BlockStatus::Offline), and the first reason is kept.

mod connect;
mod device;
mod incoming;
mod link;
mod open;
mod outgoing;
mod queue;
mod socket;
mod status;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod waiter;

pub(super) use open::open;
