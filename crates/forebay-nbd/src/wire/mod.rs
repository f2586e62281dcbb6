//! Wire format: constants, and encoding and decoding of messages.
//!
//! Servers and clients use it, and every message can be both parsed and emitted. All numbers are
//! big-endian. The order of messages is checked by `server` and `client`, not here. Parsing checks
//! that lengths agree with each other, and returns slices of its input: no length that a peer sends
//! causes an allocation.

mod block_sizes;
mod bytes;
mod error;
mod head;
pub mod numbers;
mod option;
mod option_reply;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use block_sizes::BlockSizes;
pub use bytes::{Reader, Sink};
pub use error::NbdError;
pub use head::Head;
pub use option::{ContextRequest, ExportRequest, OptionHeader, Queries};
pub use option_reply::{Info, MetaContext, OptionReplyHeader, ServerEntry};
pub use reply::{
    ChunkHeader, ErrorChunk, Extents, Hole, SimpleReply, StatusChunk, StatusLens, clip, reply_magic,
};
pub use request::RequestHeader;

use core::fmt;

/// Framing of requests and replies, as negotiated in the handshake.
///
/// Source: "Transmission" in the NBD protocol document, and its extension EXTENDED_HEADERS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framing {
    /// Request headers of 28 bytes. Each reply has a header of 16 bytes, which the data of a read
    /// follow.
    #[default]
    Simple,
    /// Request headers of 28 bytes. Replies to reads, and errors, are sent in chunks.
    Structured,
    /// Request headers of 32 bytes, with 64-bit lengths. All replies are sent in chunks.
    Extended,
}

impl Framing {
    /// Returns the length of a request header, bytes.
    #[inline]
    pub const fn request_len(self) -> usize {
        match self {
            Framing::Simple | Framing::Structured => RequestHeader::COMPACT_LEN,
            Framing::Extended => RequestHeader::EXTENDED_LEN,
        }
    }
}

/// Writes the name of the framing.
impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Framing::Simple => "simple replies",
            Framing::Structured => "structured replies",
            Framing::Extended => "extended headers",
        })
    }
}
