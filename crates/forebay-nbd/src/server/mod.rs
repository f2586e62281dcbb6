//! Server side of the protocol: handshake and transmission phase.
//!
//! A connection begins as a [`Handshake`]. The caller feeds it the bytes of the client until it
//! closes the connection, starts TLS, or returns a [`Transmission`]. A transmission is immutable:
//! it parses requests and makes replies, in any order. Neither has timeouts or limits on requests
//! in flight; the owner of the socket has.

mod answers;
mod close;
mod extents;
mod handshake;
mod replies;
#[cfg(test)]
mod tests;
mod transmission;

pub use close::CloseReason;
pub use handshake::{Fed, Handshake, Next, TlsPolicy};
pub use transmission::{Command, Refused, Request, Transmission};

pub use crate::wire::{Head, NbdError};
