//! Kinds of requests and stages, each with its label in the metrics.

/// Command of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
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
    /// GET_ID: the serial number of a virtio disk.
    GetId,
}

impl RequestKind {
    /// All kinds, each with its label.
    pub const ALL: [(RequestKind, &'static str); 9] = [
        (RequestKind::Read, "read"),
        (RequestKind::Write, "write"),
        (RequestKind::Flush, "flush"),
        (RequestKind::Trim, "trim"),
        (RequestKind::WriteZeroes, "write_zeroes"),
        (RequestKind::Cache, "cache"),
        (RequestKind::BlockStatus, "block_status"),
        (RequestKind::Refused, "refused"),
        (RequestKind::GetId, "get_id"),
    ];
}

/// Stage of a request in the server. The disk measures its own stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the arrival of the header to the submission of the last part: includes waits for the
    /// payload, for memory, and for the rest of the batch.
    Receive,
    /// From there until the worker has reaped its completion. The reply leaves at once, if the
    /// client reads it.
    Disk,
}

impl Stage {
    /// All stages, each with its label.
    pub const ALL: [(Stage, &'static str); 2] =
        [(Stage::Receive, "receive"), (Stage::Disk, "disk")];
}
