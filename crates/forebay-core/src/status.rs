//! Failure status of a request: a closed set.

use core::fmt;

/// Why a request, and each of its bios, failed.
///
/// Counterpart in Linux: `blk_status_t` (`BLK_STS_*`) without `BLK_STS_OK`, which is `Ok` here. The
/// enum is closed on purpose, so that callers handle every case. Error numbers of an operating
/// system or a wire protocol appear only at those edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockStatus {
    /// An I/O error of an unspecified kind.
    Io,
    /// These sectors cannot be read or written; others can.
    Medium,
    /// The device, or the file below it, has no space left.
    NoSpace,
    /// The device does not support the operation.
    NotSupported,
    /// The device did not answer in time.
    Timeout,
    /// The path to the device failed.
    Transport,
    /// The device is gone.
    Offline,
    /// Memory or another resource is exhausted below the layer.
    Resource,
    /// The request would have to wait, and was marked NOWAIT.
    Again,
    /// The device is read-only.
    ReadOnly,
    /// The device refused the request as malformed (alignment, address, length).
    Invalid,
}

impl BlockStatus {
    /// All statuses, for tables and tests.
    pub const ALL: [BlockStatus; 11] = [
        BlockStatus::Io,
        BlockStatus::Medium,
        BlockStatus::NoSpace,
        BlockStatus::NotSupported,
        BlockStatus::Timeout,
        BlockStatus::Transport,
        BlockStatus::Offline,
        BlockStatus::Resource,
        BlockStatus::Again,
        BlockStatus::ReadOnly,
        BlockStatus::Invalid,
    ];

    /// Returns the short name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            BlockStatus::Io => "io",
            BlockStatus::Medium => "medium",
            BlockStatus::NoSpace => "nospace",
            BlockStatus::NotSupported => "notsupp",
            BlockStatus::Timeout => "timeout",
            BlockStatus::Transport => "transport",
            BlockStatus::Offline => "offline",
            BlockStatus::Resource => "resource",
            BlockStatus::Again => "again",
            BlockStatus::ReadOnly => "readonly",
            BlockStatus::Invalid => "invalid",
        }
    }

    /// Returns whether the failure may concern the sectors, memory or size of a single bio, so that
    /// the other bios of a merged request can succeed. Only such failures are retried bio by bio.
    pub const fn may_be_of_one_bio(self) -> bool {
        matches!(
            self,
            BlockStatus::Io | BlockStatus::Medium | BlockStatus::Invalid | BlockStatus::Resource
        )
    }
}

impl fmt::Display for BlockStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlockStatus::Io => "I/O error",
            BlockStatus::Medium => "medium error: these sectors cannot be read or written",
            BlockStatus::NoSpace => "no space left on the device",
            BlockStatus::NotSupported => "operation not supported by the device",
            BlockStatus::Timeout => "the device did not answer in time",
            BlockStatus::Transport => "the connection to the device failed",
            BlockStatus::Offline => "the device is gone",
            BlockStatus::Resource => "out of memory or another resource",
            BlockStatus::Again => "the operation would block",
            BlockStatus::ReadOnly => "the device is read-only",
            BlockStatus::Invalid => "the device refused the request as malformed",
        })
    }
}

impl core::error::Error for BlockStatus {}
