//! Errors that end a connection.

use crate::wire::{NbdError, numbers as wire};
use alloc::string::String;
use core::fmt;

/// Violation of the protocol by the server. The connection cannot go on, since nothing that the
/// server sends after it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// A reply begins with an unknown magic number, or with one of another framing.
    Magic(u32),
    /// The cookie of a reply matches no request in flight.
    Cookie(u64),
    /// The offset of an extended reply differs from that of its request.
    Offset(u64),
    /// A chunk has an unknown type.
    Kind(u16),
    /// A chunk has a length that its type does not allow.
    Length {
        /// Type of the chunk.
        kind: u16,
        /// Length, bytes.
        len: u64,
    },
    /// A reply contains something that was not requested, or contains it twice.
    Unasked(&'static str),
    /// Data are outside the range of the request.
    Outside {
        /// Offset on the export.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
    /// Data were received twice.
    Twice {
        /// Offset on the export.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
    /// Data have too many gaps.
    Scattered,
    /// A reply has ended without all that was requested.
    Missing(&'static str),
    /// An error has no number, or is not allowed here.
    Error,
    /// Extents belong to another context than the negotiated one.
    Context(u32),
    /// An extent has no bytes.
    EmptyExtent,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Broken::Magic(magic) => write!(f, "a reply begins with {magic:#010x}"),
            Broken::Cookie(cookie) => write!(f, "a reply to the unknown request {cookie:#x}"),
            Broken::Offset(at) => {
                write!(f, "a reply with offset {at}, which is not that of its request")
            }
            Broken::Kind(kind) => write!(f, "a chunk of unknown type {kind}"),
            Broken::Length { kind, len } => write!(f, "a chunk of type {kind} with {len} bytes"),
            Broken::Unasked(what) => write!(f, "{what} that were not requested"),
            Broken::Outside { offset, len } => {
                write!(f, "{len} bytes at {offset}, outside the range of the request")
            }
            Broken::Twice { offset, len } => {
                write!(f, "{len} bytes at {offset}, some of which were sent before")
            }
            Broken::Scattered => f.write_str("data in too many pieces with gaps between them"),
            Broken::Missing(what) => write!(f, "a reply ends without all {what}"),
            Broken::Error => f.write_str("a malformed error"),
            Broken::Context(id) => write!(f, "extents of the unknown context {id}"),
            Broken::EmptyExtent => f.write_str("an extent of no bytes"),
        }
    }
}

impl core::error::Error for Broken {}

/// Error of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The greeting is not that of an NBD server.
    NotNbd,
    /// The server uses the oldstyle handshake, which has no export names.
    OldStyle,
    /// A reply to an option is malformed.
    Malformed {
        /// Option of the request.
        asked: &'static str,
        /// Problem of the reply.
        problem: &'static str,
    },
    /// The server refuses an option.
    Refused {
        /// Option of the request.
        asked: &'static str,
        /// Type of the reply: one of `REP_ERR_*`, or unknown.
        reply: u32,
        /// Message of the server; may be empty.
        message: String,
    },
    /// TLS is required by the client, and the server does not support it.
    NoTls,
    /// The export is larger than a disk can be.
    Size(u64),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::NotNbd => f.write_str("the peer is not an NBD server"),
            HandshakeError::OldStyle => {
                f.write_str("the server uses the oldstyle handshake, which is not supported")
            }
            HandshakeError::Malformed { asked, problem } => {
                write!(f, "malformed reply to {asked}: {problem}")
            }
            HandshakeError::Refused { asked, reply, message } => {
                write!(f, "the server refuses {asked}: {}", reason(*reply))?;
                match message.is_empty() {
                    true => Ok(()),
                    false => write!(f, " (message of the server: {message})"),
                }
            }
            HandshakeError::NoTls => f.write_str(
                "the server does not support TLS, which nbds:// requires: use nbd:// to go without",
            ),
            HandshakeError::Size(size) => write!(f, "the export has the impossible size {size}"),
        }
    }
}

impl core::error::Error for HandshakeError {}

fn reason(reply: u32) -> &'static str {
    match reply {
        wire::REP_ERR_UNSUP => "it does not support it",
        wire::REP_ERR_POLICY => "its configuration forbids it",
        wire::REP_ERR_INVALID => "it considers it malformed",
        wire::REP_ERR_PLATFORM => "its platform does not support it",
        wire::REP_ERR_TLS_REQD => "it requires TLS: use nbds:// instead of nbd://",
        wire::REP_ERR_UNKNOWN => "it has no export of this name",
        wire::REP_ERR_SHUTDOWN => "it is shutting down",
        wire::REP_ERR_BLOCK_SIZE_REQD => "it requires a query for block sizes",
        wire::REP_ERR_TOO_BIG => "it is too large",
        wire::REP_ERR_EXT_HEADER_REQD => "it requires extended headers",
        _ => "for an unknown reason",
    }
}

/// Converts an error of the server to the status of a request.
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
