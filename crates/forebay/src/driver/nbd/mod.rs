//! The `nbd` driver: an export of an NBD server on this machine or another.
//!
//! - [`open`]: opens the device of an NBD URI, with limits and features that the server reports;
//! - [`connect`]: a connection, including its handshake;
//! - [`stream`]: bytes to and from a peer, under TLS or not;
//! - [`link`]: a connection in use: requests, memory, replies; [`outgoing`] and [`incoming`]: data
//!   not sent yet, and data not parsed yet;
//! - [`driver`], [`queue`], [`waiter`]: the driver, its queues and their waits, of the public
//!   contract ([`Driver`](super::Driver));
//! - [`status`]: block-status queries, which bypass the layer.
//!
//! The protocol itself is in the crate `forebay-nbd`, which does no I/O and trusts no server. A
//! lost connection or a protocol error of the server fails the device: each request in flight ends
//! with [`Offline`](forebay_core::BlockStatus::Offline), and the first reason is kept.

mod connect;
mod driver;
mod incoming;
mod link;
mod open;
mod outgoing;
mod query;
mod queue;
mod recv_limit;
mod status;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod waiter;

pub(super) use open::open;
