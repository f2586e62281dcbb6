//! Headers of requests: compact and extended.

use super::bytes::{Reader, Sink};
use super::numbers::{EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC};

/// Header of a request. A payload follows it, if the request has one.
///
/// Source: "Request message" in the NBD protocol document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Flags, `CMD_FLAG_*`.
    pub flags: u16,
    /// Command: one of `CMD_*`, or unknown.
    pub command: u16,
    /// Number that the client has chosen for the request. Replies repeat it.
    pub cookie: u64,
    /// Offset on the export, bytes.
    pub offset: u64,
    /// Length of the range, bytes; with `CMD_FLAG_PAYLOAD_LEN` and an extended header, length of
    /// the payload.
    pub len: u64,
}

impl RequestHeader {
    /// Length of a compact header, bytes.
    pub const COMPACT_LEN: usize = 28;
    /// Length of an extended header, bytes.
    pub const EXTENDED_LEN: usize = 32;

    /// Parses a compact header. `None`: too few bytes, or a wrong magic number.
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

    /// Parses an extended header. `None`: too few bytes, or a wrong magic number.
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

    /// Appends a compact header to `out`. The length must fit into 32 bits.
    #[inline]
    pub fn emit_compact(&self, out: &mut impl Sink) {
        debug_assert!(u32::try_from(self.len).is_ok(), "{} bytes in one request", self.len);
        out.put_u32(REQUEST_MAGIC);
        self.emit_middle(out);
        out.put_u32(u32::try_from(self.len).unwrap_or(u32::MAX));
    }

    /// Appends an extended header to `out`.
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
