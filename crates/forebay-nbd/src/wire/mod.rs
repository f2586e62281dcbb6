//! What stands on the wire: numbers, and bytes to values and back.
//!
//! Both halves use it, and each message can be read and written here whichever half sends it. All
//! numbers are big-endian. Nothing here knows the order in which messages may come; `server` and
//! `client` do. Reading checks that lengths agree with each other, and hands out slices of what was
//! read: no length of a peer's makes anything here allocate.

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

/// How requests and replies are framed, as the handshake settled it.
///
/// Source: "Transmission" in the NBD protocol document, and its extension EXTENDED_HEADERS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framing {
    /// Requests of 28 bytes, and one reply of 16 bytes each, before the data of a read.
    #[default]
    Simple,
    /// Requests of 28 bytes; reads are answered in chunks, and so are errors.
    Structured,
    /// Requests of 32 bytes with lengths of 64 bits; all answers are chunks.
    Extended,
}

impl Framing {
    /// How long the header of a request is, in bytes.
    #[inline]
    pub const fn request_len(self) -> usize {
        match self {
            Framing::Simple | Framing::Structured => RequestHeader::COMPACT_LEN,
            Framing::Extended => RequestHeader::EXTENDED_LEN,
        }
    }
}

/// What tells them apart, for people.
impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Framing::Simple => "simple replies",
            Framing::Structured => "structured replies",
            Framing::Extended => "extended headers",
        })
    }
}
