//! Refusal of a message, with its reason for the log.

use std::fmt;
use std::io;
use vhost::vhost_user::Error;

/// A message that breaks the protocol, or that the device cannot carry out.
#[derive(Debug)]
pub(super) struct Refusal(String);

/// Returns a refusal for this reason.
pub(super) fn refuse(why: impl fmt::Display) -> Refusal {
    Refusal(why.to_string())
}

impl Refusal {
    /// Adds the name of the message.
    pub(super) fn of(self, message: &str) -> Refusal {
        Refusal(format!("{message}: {}", self.0))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::ReqHandlerError(io::Error::other(refusal.0))
    }
}
