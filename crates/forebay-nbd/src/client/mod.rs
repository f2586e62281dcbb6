//! Client side of the protocol: [`Handshake`] chooses an export, [`Transmission`] tracks the
//! requests in flight and parses their replies.
//!
//! The server is not trusted. Sizes, lengths, cookies and offsets of its messages are checked
//! against the requests before they are used, and no length that it sends causes an allocation. A
//! message that does not fit ends the connection with a reason ([`Broken`]), since nothing after it
//! can be trusted. Each request ends once: by [`Event::Done`], or with its connection.

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
