//! Requests of the transmission phase: their headers, of either length.

use super::bytes::{Reader, Sink};
use super::numbers::{EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC};

/// The header of a request. Any payload follows it.
///
/// Source: "Request message" in the NBD protocol document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// `CMD_FLAG_*`.
    pub flags: u16,
    /// `CMD_*`, or any other.
    pub command: u16,
    /// The client's own number for the request, which its replies repeat.
    pub cookie: u64,
    /// Where on the export, in bytes.
    pub offset: u64,
    /// How many bytes of the export; with `CMD_FLAG_PAYLOAD_LEN` and an extended header, how many
    /// bytes of payload.
    pub len: u64,
}

impl RequestHeader {
    /// How long a compact header is, in bytes.
    pub const COMPACT_LEN: usize = 28;
    /// How long an extended header is, in bytes.
    pub const EXTENDED_LEN: usize = 32;

    /// The first 28 bytes. `None`: too few, or the magic is wrong.
    #[inline]
    pub fn parse_compact(bytes: &[u8]) -> Option<RequestHeader> {
        let bytes = bytes.first_chunk::<{ Self::COMPACT_LEN }>()?;
        let mut reader = Reader::new(bytes);
        (reader.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(RequestHeader {
            flags: reader.u16()?,
            command: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            len: u64::from(reader.u32()?),
        })
    }

    /// The first 32 bytes. `None`: too few, or the magic is wrong.
    #[inline]
    pub fn parse_extended(bytes: &[u8]) -> Option<RequestHeader> {
        let bytes = bytes.first_chunk::<{ Self::EXTENDED_LEN }>()?;
        let mut reader = Reader::new(bytes);
        (reader.u32()? == EXTENDED_REQUEST_MAGIC).then_some(())?;
        Some(RequestHeader {
            flags: reader.u16()?,
            command: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            len: reader.u64()?,
        })
    }

    /// Writes a compact header. A length that it cannot hold is the caller's error.
    #[inline]
    pub fn emit_compact(&self, out: &mut impl Sink) {
        debug_assert!(u32::try_from(self.len).is_ok(), "{} bytes in one request", self.len);
        out.put_u32(REQUEST_MAGIC);
        self.emit_middle(out);
        out.put_u32(u32::try_from(self.len).unwrap_or(u32::MAX));
    }

    /// Writes an extended header.
    #[inline]
    pub fn emit_extended(&self, out: &mut impl Sink) {
        out.put_u32(EXTENDED_REQUEST_MAGIC);
        self.emit_middle(out);
        out.put_u64(self.len);
    }

    #[inline]
    fn emit_middle(&self, out: &mut impl Sink) {
        out.put_u16(self.flags);
        out.put_u16(self.command);
        out.put_u64(self.cookie);
        out.put_u64(self.offset);
    }
}
