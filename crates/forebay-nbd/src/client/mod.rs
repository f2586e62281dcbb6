//! The client's half: [`Handshake`] chooses an export, [`Transmission`] knows what is in flight and
//! what becomes of it.
//!
//! A server is no more trusted than a client. What it may say depends on what was asked: sizes,
//! lengths, numbers of requests and places of data are checked before they are used, no length of
//! its makes anything here allocate, and what does not fit ends the connection with a reason
//! ([`Broken`]): nothing behind it can be believed. Each request that was begun ends once, by
//! [`Event::Done`] or with its connection.

mod coverage;
mod failure;
mod handshake;
mod negotiated;
mod slot;
#[cfg(test)]
mod tests;
mod transmission;

pub use failure::{Broken, HandshakeError};
pub use handshake::{Fed, Handshake, Next};
pub use negotiated::Negotiated;
pub use slot::{Command, Request};
pub use transmission::{Event, Taken, Transmission};
