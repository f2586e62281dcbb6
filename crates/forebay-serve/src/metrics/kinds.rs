//! Of what the server counts how often it happened: each kind with its label.

/// What a client asks for.
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
    /// Something that is not done, or not here.
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

/// Where a request spends its time in the server. The disk's own stages are the disk's to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// From its header being there to its being handed to the disk, all of it: waits for its
    /// payload, memory, and the rest of the batch.
    Receive,
    /// From there until its end at the disk was seen. Its reply leaves at once, if the client takes
    /// it.
    Disk,
}

impl Stage {
    pub(super) const ALL: [(Stage, &'static str); 2] =
        [(Stage::Receive, "receive"), (Stage::Disk, "disk")];
}

/// Why a connection was closed as soon as it was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionRefusal {
    /// As many as allowed are open.
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

/// Why a connection never came to ask for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFailure {
    /// It took too long.
    Timeout,
    /// It broke the protocol.
    Protocol,
    /// TLS failed, or was needed and not asked for.
    Tls,
    /// The peer was gone. Looking at the exports and leaving is no failure.
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
