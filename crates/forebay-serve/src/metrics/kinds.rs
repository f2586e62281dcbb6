//! Kinds of counted events, each with its label.

/// Command of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// FLUSH.
    Flush,
    /// TRIM.
    Trim,
    /// WRITE_ZEROES.
    WriteZeroes,
    /// CACHE.
    Cache,
    /// BLOCK_STATUS.
    BlockStatus,
    /// A request that was refused.
    Refused,
}

impl RequestKind {
    pub(super) const ALL: [(RequestKind, &'static str); 8] = [
        (RequestKind::Read, "read"),
        (RequestKind::Write, "write"),
        (RequestKind::Flush, "flush"),
        (RequestKind::Trim, "trim"),
        (RequestKind::WriteZeroes, "write_zeroes"),
        (RequestKind::Cache, "cache"),
        (RequestKind::BlockStatus, "block_status"),
        (RequestKind::Refused, "refused"),
    ];
}

/// Stage of a request in the server. The disk measures its own stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// From the arrival of the header to the submission of the last part: includes waits for the
    /// payload, for memory, and for the rest of the batch.
    Receive,
    /// From there until the worker has reaped its completion. The reply leaves at once, if the
    /// client reads it.
    Disk,
}

impl Stage {
    pub(super) const ALL: [(Stage, &'static str); 2] =
        [(Stage::Receive, "receive"), (Stage::Disk, "disk")];
}

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
}
