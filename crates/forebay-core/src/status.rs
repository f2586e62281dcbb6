//! How a request can fail: the closed set of per-request statuses.

use core::fmt;

/// Why a request, and with it a bio, failed.
///
/// Counterpart in Linux: `blk_status_t` (`BLK_STS_*`) without `BLK_STS_OK`, which is `Ok` here.
/// It is closed on purpose: whoever handles it must handle all of it. Error numbers of an
/// operating system or a wire protocol appear only at those edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockStatus {
    /// The device reported an error of no better known kind.
    Io,
    /// These sectors cannot be read or written; others can.
    Medium,
    /// The device, or the file below it, has no room left.
    NoSpace,
    /// The operation is not supported by this device.
    NotSupported,
    /// The device did not answer in time.
    Timeout,
    /// The path to the device failed.
    Transport,
    /// The device is gone.
    Offline,
    /// Memory or another resource ran out below.
    Resource,
    /// The request would have had to wait, and asked not to.
    Again,
    /// The device does not take writes.
    ReadOnly,
    /// The device found the request malformed (alignment, address, length).
    Invalid,
}

impl BlockStatus {
    /// Every status, for tables and tests.
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

    /// The short name used in specs and reports.
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

    /// Whether the failure may be that of one bio's sectors, memory or size, so that the others of
    /// a merged request succeed on their own. Only such failures are tried again bio by bio.
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
            BlockStatus::Transport => "the path to the device failed",
            BlockStatus::Offline => "the device is gone",
            BlockStatus::Resource => "out of memory or of another resource",
            BlockStatus::Again => "would have had to wait",
            BlockStatus::ReadOnly => "the device is read-only",
            BlockStatus::Invalid => "the device refused the request as malformed",
        })
    }
}

impl core::error::Error for BlockStatus {}
