//! Why nothing more is read from a connection.

use crate::metrics::HandshakeFailure;

/// How a connection comes to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client said goodbye: the last replies go out, then it is closed.
    Bye,
    /// The client has closed its side.
    Eof,
    /// The client has ended the handshake as it should: there was nothing here for it.
    Aborted(String),
    /// There is no place for one more: the last replies go out.
    TooMany(String),
    /// The client does without TLS, which it must not: the last replies go out.
    WithoutTls(String),
    /// What the client sent makes no sense any more: the last replies go out.
    Nonsense(String),
    /// The server ends: the last replies go out.
    ServerEnds,
    /// The client had its time, and nothing more is said.
    Late(&'static str),
    /// Nothing can be said: the socket is broken, or the server has a fault.
    Broken(String),
}

impl Ending {
    /// Whether it is closed as it is, whatever is still to be said.
    pub(super) fn is_at_once(&self) -> bool {
        matches!(self, Ending::Late(_) | Ending::Broken(_))
    }

    /// What the log says.
    pub(super) fn why(&self) -> &str {
        match self {
            Ending::Bye => "closed by the client",
            Ending::Eof => "left by the client",
            Ending::ServerEnds => "the server ends",
            Ending::Late(why) => why,
            Ending::Aborted(why)
            | Ending::TooMany(why)
            | Ending::WithoutTls(why)
            | Ending::Nonsense(why)
            | Ending::Broken(why) => why,
        }
    }

    /// As what a handshake counts that ended so; none where nothing has failed, or where it is
    /// counted as refused.
    pub(super) fn handshake_failure(&self, is_tls: bool) -> Option<HandshakeFailure> {
        match self {
            Ending::Late(_) => Some(HandshakeFailure::Timeout),
            Ending::WithoutTls(_) => Some(HandshakeFailure::Tls),
            Ending::Broken(_) if is_tls => Some(HandshakeFailure::Tls),
            Ending::Broken(_) | Ending::Eof => Some(HandshakeFailure::Gone),
            Ending::Nonsense(_) => Some(HandshakeFailure::Protocol),
            Ending::Bye | Ending::Aborted(_) | Ending::TooMany(_) | Ending::ServerEnds => None,
        }
    }
}
