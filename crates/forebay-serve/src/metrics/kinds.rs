//! Kinds of counted events, each with its label.

use forebay_front::Ending;

/// Reason why a connection was closed immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionRefusal {
    /// The limit of connections is reached.
    TooMany,
    /// The process has no descriptor left.
    NoDescriptor,
}

impl ConnectionRefusal {
    pub(super) const ALL: [(ConnectionRefusal, &'static str); 2] = [
        (ConnectionRefusal::TooMany, "connections"),
        (ConnectionRefusal::NoDescriptor, "descriptors"),
    ];
}

/// Reason why a connection ended before it sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFailure {
    /// The time limit has passed.
    Timeout,
    /// The client broke the protocol.
    Protocol,
    /// TLS failed, or is required and was not used.
    Tls,
    /// The peer has vanished. A client that lists the exports and leaves does not count.
    Gone,
}

impl HandshakeFailure {
    pub(super) const ALL: [(HandshakeFailure, &'static str); 4] = [
        (HandshakeFailure::Timeout, "timeout"),
        (HandshakeFailure::Protocol, "protocol"),
        (HandshakeFailure::Tls, "tls"),
        (HandshakeFailure::Gone, "gone"),
    ];

    /// Returns the failure of a connection that ends for this reason before it has chosen an
    /// export. `None`: the handshake has not failed, or counts as refused.
    pub(crate) fn of(ending: &Ending, is_tls: bool) -> Option<HandshakeFailure> {
        match ending {
            Ending::Late(_) => Some(HandshakeFailure::Timeout),
            Ending::WithoutTls(_) => Some(HandshakeFailure::Tls),
            Ending::Broken(_) if is_tls => Some(HandshakeFailure::Tls),
            Ending::Broken(_) | Ending::Eof => Some(HandshakeFailure::Gone),
            Ending::Nonsense(_) => Some(HandshakeFailure::Protocol),
            Ending::Bye
            | Ending::Aborted(_)
            | Ending::TooMany(_)
            | Ending::ExportRemoved
            | Ending::ServerEnds
            | Ending::RingStopped => None,
        }
    }
}
