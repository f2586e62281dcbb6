//! The server's half: a handshake, and what follows it.
//!
//! A connection is a [`Handshake`] first. It is fed what the client sends, until it comes to its
//! end: the connection is to be closed, or TLS begins, or there is a [`Transmission`]. That one is
//! immutable: it takes requests apart and makes replies, in any order. Neither keeps time or bounds
//! what is in flight; who owns the socket does.

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
