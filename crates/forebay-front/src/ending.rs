//! Reasons to close a client.

/// Reason why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client sent DISC. The last replies are sent first.
    Bye,
    /// The client has closed its side.
    Eof,
    /// The client has ended the handshake by ABORT.
    Aborted(String),
    /// The limit of connections is reached. The last replies are sent first.
    TooMany(String),
    /// The client does not use TLS, which is required. The last replies are sent first.
    WithoutTls(String),
    /// The client broke the protocol. The last replies are sent first.
    Nonsense(String),
    /// The front end has stopped the ring. Requests in flight are answered first.
    RingStopped,
    /// The export of the client is removed. The last replies are sent first.
    ExportRemoved,
    /// The server shuts down. The last replies are sent first.
    ServerEnds,
    /// A deadline has passed. Nothing more is sent.
    Late(&'static str),
    /// The socket is broken, or the server has a bug. Nothing more is sent.
    Broken(String),
}

impl Ending {
    /// Returns whether the connection is closed without its last replies.
    pub fn is_at_once(&self) -> bool {
        matches!(self, Ending::Late(_) | Ending::Broken(_))
    }

    /// Returns the reason for the log.
    pub fn why(&self) -> &str {
        match self {
            Ending::Bye => "closed by the client",
            Ending::Eof => "closed by the client without DISC",
            Ending::RingStopped => "the front end has stopped the ring",
            Ending::ExportRemoved => "the export is removed",
            Ending::ServerEnds => "the server shuts down",
            Ending::Late(why) => why,
            Ending::Aborted(why)
            | Ending::TooMany(why)
            | Ending::WithoutTls(why)
            | Ending::Nonsense(why)
            | Ending::Broken(why) => why,
        }
    }
}
