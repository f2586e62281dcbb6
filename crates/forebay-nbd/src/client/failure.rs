//! Why a connection is given up.

use crate::wire::{NbdError, numbers as wire};
use alloc::string::String;
use core::fmt;

/// Why a connection cannot go on: what the server has sent is not an answer to what was asked.
/// Nothing that it sends later can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// A reply begins as none does, or not as was agreed on.
    Magic(u32),
    /// A reply to a request that is not there.
    Cookie(u64),
    /// A reply that speaks of another place than its request.
    Offset(u64),
    /// A chunk of a kind that is unknown.
    Kind(u16),
    /// A chunk of this kind and length.
    Length {
        /// The kind.
        kind: u16,
        /// The length, bytes.
        len: u64,
    },
    /// What was not asked for, or was there before.
    Unasked(&'static str),
    /// Bytes beyond what the request asked for.
    Outside {
        /// Of the export.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Bytes that have come before.
    Twice {
        /// Of the export.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Data with too many gaps.
    Scattered,
    /// A reply that has ended without all of what was asked for.
    Missing(&'static str),
    /// An error without a number, or one that may not stand here.
    Error,
    /// Extents of another context than was agreed on.
    Context(u32),
    /// An extent of no bytes.
    EmptyExtent,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Broken::Magic(magic) => write!(f, "a reply begins with {magic:#010x}"),
            Broken::Cookie(cookie) => write!(f, "a reply to {cookie:#x}, which was not asked"),
            Broken::Offset(at) => write!(f, "a reply for another place than its request: {at}"),
            Broken::Kind(kind) => write!(f, "a chunk of unknown kind {kind}"),
            Broken::Length { kind, len } => write!(f, "a chunk of kind {kind} with {len} bytes"),
            Broken::Unasked(what) => write!(f, "{what} that were not asked for"),
            Broken::Outside { offset, len } => {
                write!(f, "{len} bytes at {offset}, beyond what was asked for")
            }
            Broken::Twice { offset, len } => {
                write!(f, "{len} bytes at {offset}, some of them again")
            }
            Broken::Scattered => f.write_str("data in too many pieces with gaps between them"),
            Broken::Missing(what) => write!(f, "a reply ends without all {what}"),
            Broken::Error => f.write_str("a malformed error"),
            Broken::Context(id) => write!(f, "extents of an unknown context, {id}"),
            Broken::EmptyExtent => f.write_str("an extent of no bytes"),
        }
    }
}

impl core::error::Error for Broken {}

/// Why a handshake has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The greeting is not that of an NBD server.
    NotNbd,
    /// The server is of the old style, which knows no names.
    OldStyle,
    /// An answer is not one to what was asked: which option, and what is wrong.
    Malformed {
        /// What was asked.
        asked: &'static str,
        /// What is wrong with the answer.
        problem: &'static str,
    },
    /// The server has no such export, or does not give it.
    Refused {
        /// What was asked.
        asked: &'static str,
        /// The server's answer, one of `REP_ERR_*` or any other.
        reply: u32,
        /// The server's own words; may be empty.
        message: String,
    },
    /// TLS was insisted on, and the server has none.
    NoTls,
    /// The size of the export is more than a disk can have.
    Size(u64),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::NotNbd => f.write_str("who answers is no NBD server"),
            HandshakeError::OldStyle => {
                f.write_str("the server speaks the old style, without names: it is not supported")
            }
            HandshakeError::Malformed { asked, problem } => {
                write!(f, "a malformed answer to {asked}: {problem}")
            }
            HandshakeError::Refused { asked, reply, message } => {
                write!(f, "the server refuses {asked}: {}", reason(*reply))?;
                match message.is_empty() {
                    true => Ok(()),
                    false => write!(f, " (it says: {message})"),
                }
            }
            HandshakeError::NoTls => {
                f.write_str("the server has no TLS, and nbds:// insists on it; nbd:// goes without")
            }
            HandshakeError::Size(size) => write!(f, "the export has an impossible size, {size}"),
        }
    }
}

impl core::error::Error for HandshakeError {}

fn reason(reply: u32) -> &'static str {
    match reply {
        wire::REP_ERR_UNSUP => "it does not know it",
        wire::REP_ERR_POLICY => "it is told not to",
        wire::REP_ERR_INVALID => "it finds it malformed",
        wire::REP_ERR_PLATFORM => "not on its machine",
        wire::REP_ERR_TLS_REQD => "not without TLS: use nbds:// instead of nbd://",
        wire::REP_ERR_UNKNOWN => "it has no export of this name",
        wire::REP_ERR_SHUTDOWN => "it is about to end",
        wire::REP_ERR_BLOCK_SIZE_REQD => "it wants block sizes to be asked for",
        wire::REP_ERR_TOO_BIG => "it is too large",
        wire::REP_ERR_EXT_HEADER_REQD => "only with extended headers",
        _ => "for a reason that is unknown here",
    }
}

/// The status of a request that a server has failed.
impl From<NbdError> for forebay_core::BlockStatus {
    fn from(error: NbdError) -> forebay_core::BlockStatus {
        use forebay_core::BlockStatus;
        match error {
            NbdError::Perm => BlockStatus::ReadOnly,
            NbdError::Io => BlockStatus::Io,
            NbdError::NoMem => BlockStatus::Resource,
            NbdError::Inval | NbdError::Overflow => BlockStatus::Invalid,
            NbdError::NoSpc => BlockStatus::NoSpace,
            NbdError::NotSup => BlockStatus::NotSupported,
            NbdError::Shutdown => BlockStatus::Transport,
        }
    }
}
