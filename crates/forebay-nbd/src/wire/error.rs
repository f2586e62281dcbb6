//! The errors that a reply can carry: a closed set, whatever the numbers of the system are.

use core::fmt;

use forebay_core::BlockStatus;

/// Why a request failed, as the protocol tells it.
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
    /// `EINVAL`: malformed, or something that was not offered.
    Inval,
    /// `ENOSPC`: no room, or a write beyond the end.
    NoSpc,
    /// `EOVERFLOW`: too long for one chunk.
    Overflow,
    /// `ENOTSUP`: zeroes cannot be written fast. It answers nothing else.
    NotSup,
    /// `ESHUTDOWN`: the server is about to end; the client has to leave.
    Shutdown,
}

impl NbdError {
    /// Every error, for tables and tests.
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

    /// Its number on the wire.
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

    /// The error of a number that is not 0. One that the protocol does not have is taken for
    /// `EINVAL`, as the document advises.
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

    /// How the failure of a bio is told to a client.
    pub const fn of(status: BlockStatus) -> NbdError {
        match status {
            BlockStatus::NoSpace => NbdError::NoSpc,
            BlockStatus::ReadOnly => NbdError::Perm,
            BlockStatus::Resource => NbdError::NoMem,
            BlockStatus::Invalid => NbdError::Inval,
            BlockStatus::NotSupported => NbdError::NotSup,
            // A device that is gone is no reason for the client to leave: it may come back.
            BlockStatus::Io
            | BlockStatus::Medium
            | BlockStatus::Timeout
            | BlockStatus::Transport
            | BlockStatus::Offline
            | BlockStatus::Again => NbdError::Io,
        }
    }

    /// Its name in C.
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
