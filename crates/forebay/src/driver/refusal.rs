//! Reason why a server cannot be used.

use std::fmt;
use std::io;

/// The failure and a remedy as text, with the system's error if that is the cause.
#[derive(Debug)]
pub(crate) struct Refusal {
    why: String,
    source: Option<io::Error>,
}

impl Refusal {
    /// Returns the reason for an error of the system. A receive that has timed out is no `EAGAIN`.
    pub(crate) fn by(source: io::Error, why: impl Into<String>) -> Refusal {
        let source = match source.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => source,
        };
        Refusal { why: why.into(), source: Some(source) }
    }

    /// Returns the system's error, if that is the cause.
    pub(crate) fn system_error(&self) -> Option<&io::Error> {
        self.source.as_ref()
    }

    /// Returns the reason and the system's error.
    pub(in crate::driver) fn into_parts(self) -> (String, Option<io::Error>) {
        (self.why, self.source)
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal { why, source: None }
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Refusal {
        Refusal::from(why.to_owned())
    }
}

impl From<io::Error> for Refusal {
    fn from(source: io::Error) -> Refusal {
        let why = source.to_string();
        Refusal::by(source, why)
    }
}

impl From<Refusal> for io::Error {
    /// Converts to an error with the text, and the kind and the errno of the system's error.
    fn from(refusal: Refusal) -> io::Error {
        let kind = refusal.source.as_ref().map_or(io::ErrorKind::Other, io::Error::kind);
        io::Error::new(kind, refusal)
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}
