//! Errors of replies: a closed set, with numbers that do not depend on the system.

use core::fmt;

use forebay_core::BlockStatus;

/// Error of a reply.
///
/// Source: "Error values" in the NBD protocol document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NbdError {
    /// `EPERM`: the export is read-only.
    Perm,
    /// `EIO`: the disk failed.
    Io,
    /// `ENOMEM`: out of memory or of another resource.
    NoMem,
    /// `EINVAL`: the request is malformed, or the export does not support it.
    Inval,
    /// `ENOSPC`: no space left, or a write beyond the end.
    NoSpc,
    /// `EOVERFLOW`: the data are too long for one chunk.
    Overflow,
    /// `ENOTSUP`: fast zeroing is not possible. Occurs only for WRITE_ZEROES with FAST_ZERO.
    NotSup,
    /// `ESHUTDOWN`: the server is shutting down; the client should disconnect.
    Shutdown,
}

impl NbdError {
    /// All errors.
    pub const ALL: [NbdError; 8] = [
        NbdError::Perm,
        NbdError::Io,
        NbdError::NoMem,
        NbdError::Inval,
        NbdError::NoSpc,
        NbdError::Overflow,
        NbdError::NotSup,
        NbdError::Shutdown,
    ];

    /// Returns the number of the error on the wire.
    #[inline]
    pub const fn number(self) -> u32 {
        match self {
            NbdError::Perm => 1,
            NbdError::Io => 5,
            NbdError::NoMem => 12,
            NbdError::Inval => 22,
            NbdError::NoSpc => 28,
            NbdError::Overflow => 75,
            NbdError::NotSup => 95,
            NbdError::Shutdown => 108,
        }
    }

    /// Returns the error for a number other than 0. An unknown number counts as `EINVAL`, as the
    /// document recommends.
    pub const fn from_number(number: u32) -> NbdError {
        match number {
            1 => NbdError::Perm,
            5 => NbdError::Io,
            12 => NbdError::NoMem,
            28 => NbdError::NoSpc,
            75 => NbdError::Overflow,
            95 => NbdError::NotSup,
            108 => NbdError::Shutdown,
            _ => NbdError::Inval,
        }
    }

    /// Returns the error that a server sends for the status of a bio.
    pub const fn of(status: BlockStatus) -> NbdError {
        match status {
            BlockStatus::NoSpace => NbdError::NoSpc,
            BlockStatus::ReadOnly => NbdError::Perm,
            BlockStatus::Resource => NbdError::NoMem,
            BlockStatus::Invalid => NbdError::Inval,
            BlockStatus::NotSupported => NbdError::NotSup,
            // A client must not disconnect when a device is gone: it may come back.
            BlockStatus::Io
            | BlockStatus::Medium
            | BlockStatus::Timeout
            | BlockStatus::Transport
            | BlockStatus::Offline
            | BlockStatus::Again => NbdError::Io,
        }
    }

    /// Returns the name of the error in C.
    pub const fn name(self) -> &'static str {
        match self {
            NbdError::Perm => "EPERM",
            NbdError::Io => "EIO",
            NbdError::NoMem => "ENOMEM",
            NbdError::Inval => "EINVAL",
            NbdError::NoSpc => "ENOSPC",
            NbdError::Overflow => "EOVERFLOW",
            NbdError::NotSup => "ENOTSUP",
            NbdError::Shutdown => "ESHUTDOWN",
        }
    }
}

impl fmt::Display for NbdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for NbdError {}
