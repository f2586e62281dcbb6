//! Replies of the transmission phase: simple replies, and structured and extended chunks.
//!
//! Source: "Simple reply message", "Structured reply chunk message" and "Structured reply types"
//! in the NBD protocol document, and its extension EXTENDED_HEADERS.

use super::Framing;
use super::bytes::{Reader, Sink};
use super::numbers::{
    EXTENDED_REPLY_MAGIC, REPLY_BLOCK_STATUS, REPLY_BLOCK_STATUS_EXT, REPLY_ERROR_OFFSET,
    SIMPLE_REPLY_MAGIC, STRING_MAX, STRUCTURED_REPLY_MAGIC,
};

/// Returns the magic number of a reply, which distinguishes simple replies from chunks. `None`:
/// fewer than 4 bytes.
#[inline]
pub fn reply_magic(bytes: &[u8]) -> Option<u32> {
    Reader::new(bytes).u32()
}

/// Header of a simple reply. The data of a successful read follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// 0, or the number of an [`NbdError`](super::NbdError).
    pub error: u32,
    /// Cookie of the request.
    pub cookie: u64,
}

impl SimpleReply {
    /// Length of the header, bytes.
    pub const LEN: usize = 16;

    /// Parses a header. `None`: too few bytes, or a wrong magic number.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<SimpleReply> {
        let mut reader = Reader::new(bytes.first_chunk::<{ Self::LEN }>()?);
        (reader.u32()? == SIMPLE_REPLY_MAGIC).then_some(())?;
        Some(SimpleReply { error: reader.u32()?, cookie: reader.u64()? })
    }

    /// Appends it to `out`.
    #[inline]
    pub fn emit(&self, out: &mut impl Sink) {
        out.put_u32(SIMPLE_REPLY_MAGIC);
        out.put_u32(self.error);
        out.put_u64(self.cookie);
    }
}

/// Header of a chunk. The payload follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Flags, `REPLY_FLAG_*`.
    pub flags: u16,
    /// Type: one of `REPLY_*`, or unknown.
    pub kind: u16,
    /// Cookie of the request.
    pub cookie: u64,
    /// Offset of the request, bytes; 0 in a structured reply, which has none.
    pub offset: u64,
    /// Length of the payload, bytes.
    pub len: u64,
}

impl ChunkHeader {
    /// Length of the header in a structured reply, bytes.
    pub const STRUCTURED_LEN: usize = 20;
    /// Length of an extended header, bytes.
    pub const EXTENDED_LEN: usize = 32;

    /// Parses a header. `None`: too few bytes, or a wrong magic number.
    #[inline]
    pub fn parse_structured(bytes: &[u8]) -> Option<ChunkHeader> {
        let mut reader = Reader::new(bytes.first_chunk::<{ Self::STRUCTURED_LEN }>()?);
        (reader.u32()? == STRUCTURED_REPLY_MAGIC).then_some(())?;
        let [flags, kind] = [reader.u16()?, reader.u16()?];
        let cookie = reader.u64()?;
        Some(ChunkHeader { flags, kind, cookie, offset: 0, len: u64::from(reader.u32()?) })
    }

    /// Parses a header. `None`: too few bytes, or a wrong magic number.
    #[inline]
    pub fn parse_extended(bytes: &[u8]) -> Option<ChunkHeader> {
        let mut reader = Reader::new(bytes.first_chunk::<{ Self::EXTENDED_LEN }>()?);
        (reader.u32()? == EXTENDED_REPLY_MAGIC).then_some(())?;
        let [flags, kind] = [reader.u16()?, reader.u16()?];
        let [cookie, offset, len] = [reader.u64()?, reader.u64()?, reader.u64()?];
        Some(ChunkHeader { flags, kind, cookie, offset, len })
    }

    /// Appends it to `out`: extended with that framing, else as in a structured reply.
    #[inline]
    pub fn emit(&self, framing: Framing, out: &mut impl Sink) {
        if framing == Framing::Extended {
            out.put_u32(EXTENDED_REPLY_MAGIC);
            out.put_u16(self.flags);
            out.put_u16(self.kind);
            out.put_u64(self.cookie);
            out.put_u64(self.offset);
            out.put_u64(self.len);
        } else {
            out.put_u32(STRUCTURED_REPLY_MAGIC);
            out.put_u16(self.flags);
            out.put_u16(self.kind);
            out.put_u64(self.cookie);
            out.put_u32(u32::try_from(self.len).unwrap_or(u32::MAX));
        }
    }
}

/// Payload of `REPLY_OFFSET_HOLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Offset on the export, bytes.
    pub offset: u64,
    /// Length of the zeroes, bytes.
    pub len: u32,
}

impl Hole {
    /// Length of the payload, bytes.
    pub const LEN: u64 = 12;

    /// Parses a payload. `None`: too short, too long, or a hole of no bytes.
    pub fn parse(payload: &[u8]) -> Option<Hole> {
        let mut reader = Reader::new(payload);
        let hole = Hole { offset: reader.u64()?, len: reader.u32()? };
        (reader.is_empty() && hole.len > 0).then_some(hole)
    }

    /// Appends it to `out`.
    #[inline]
    pub fn emit(&self, out: &mut impl Sink) {
        out.put_u64(self.offset);
        out.put_u32(self.len);
    }
}

/// Payload of an error chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorChunk<'a> {
    /// Number of an [`NbdError`](super::NbdError). 0 is malformed; the caller checks that.
    pub error: u32,
    /// Human-readable message, UTF-8 according to the document; may be empty.
    pub message: &'a [u8],
    /// Offset of the error on the export, bytes, if the type has one.
    pub offset: Option<u64>,
}

impl<'a> ErrorChunk<'a> {
    /// Parses the payload of a chunk of this type. `None`: the lengths contradict each other.
    pub fn parse(kind: u16, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let error = reader.u32()?;
        let message_len = usize::from(reader.u16()?);
        let message = reader.take(message_len)?;
        let offset = if kind == REPLY_ERROR_OFFSET { Some(reader.u64()?) } else { None };
        Some(ErrorChunk { error, message, offset })
    }

    /// Returns the length of the payload, bytes, with a message of at most [`STRING_MAX`] bytes.
    pub fn payload_len(&self) -> u64 {
        let message_len = u64::try_from(self.message.len().min(STRING_MAX)).unwrap_or(0);
        let fixed_len: u64 = if self.offset.is_some() { 14 } else { 6 };
        message_len.saturating_add(fixed_len)
    }

    /// Appends it to `out`, with at most [`STRING_MAX`] bytes of the message.
    pub fn emit(&self, out: &mut impl Sink) {
        let message = self.message.get(..STRING_MAX).unwrap_or(self.message);
        out.put_u32(self.error);
        out.put_u16(u16::try_from(message.len()).unwrap_or(0));
        out.put(message);
        if let Some(offset) = self.offset {
            out.put_u64(offset);
        }
    }
}

/// Returns a text cut to the longest length of a message, between two characters.
pub fn clip(text: &str) -> &str {
    let is_boundary = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=STRING_MAX.min(text.len())).rev().find(is_boundary);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// Payload of `REPLY_BLOCK_STATUS` and `REPLY_BLOCK_STATUS_EXT`.
#[derive(Clone, Copy, Debug)]
pub struct StatusChunk<'a> {
    /// Number of the metadata context.
    pub context: u32,
    /// Extents from the offset of the request on; at least one.
    pub extents: Extents<'a>,
}

/// Iterator over the extents of a [`StatusChunk`]: length in bytes, and flags (`STATE_*` or
/// unknown).
#[derive(Clone, Copy, Debug)]
pub struct Extents<'a> {
    reader: Reader<'a>,
    framing: Framing,
}

/// Lengths of the parts of a [`StatusChunk`], bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusLens {
    /// Length of the part in front of the extents: the context, and their number if extended.
    pub start: u64,
    /// Length of an extent.
    pub each: u64,
}

impl StatusLens {
    /// Returns the lengths for a framing.
    pub const fn of(framing: Framing) -> StatusLens {
        match framing {
            Framing::Simple | Framing::Structured => StatusLens { start: 4, each: 8 },
            Framing::Extended => StatusLens { start: 8, each: 16 },
        }
    }
}

impl<'a> StatusChunk<'a> {
    /// Parses the payload of a chunk of this type. `None`: another type, contradicting lengths, no
    /// extent, or an extent of no bytes.
    pub fn parse(kind: u16, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let context = reader.u32()?;
        let framing = match kind {
            REPLY_BLOCK_STATUS => Framing::Structured,
            REPLY_BLOCK_STATUS_EXT => Framing::Extended,
            _ => return None,
        };
        let nr_announced = if framing == Framing::Extended { u64::from(reader.u32()?) } else { 0 };
        let (left, each) = (u64::try_from(reader.rest().len()).ok()?, StatusLens::of(framing).each);
        let nr_there = left.checked_div(each)?;
        let is_whole = left.checked_rem(each)? == 0 && nr_there > 0;
        // 0 means: as many as there are.
        (is_whole && (nr_announced == 0 || nr_announced == nr_there)).then_some(())?;
        let extents = Extents { reader, framing };
        let mut all = extents;
        all.all(|(len, _)| len > 0).then_some(StatusChunk { context, extents })
    }

    /// Returns the type and the length in bytes of a chunk with this number of extents.
    pub fn shape(framing: Framing, nr_extents: u32) -> (u16, u64) {
        let StatusLens { start, each } = StatusLens::of(framing);
        let len = u64::from(nr_extents).saturating_mul(each).saturating_add(start);
        match framing {
            Framing::Extended => (REPLY_BLOCK_STATUS_EXT, len),
            Framing::Simple | Framing::Structured => (REPLY_BLOCK_STATUS, len),
        }
    }

    /// Appends the part in front of the extents to `out`.
    pub fn emit_start(framing: Framing, context: u32, nr_extents: u32, out: &mut impl Sink) {
        out.put_u32(context);
        if framing == Framing::Extended {
            out.put_u32(nr_extents);
        }
    }

    /// Appends an extent to `out`: its length in bytes, and its flags. A length that does not fit
    /// into a field of 32 bits becomes the largest that does.
    pub fn emit_extent(framing: Framing, len: u64, flags: u32, out: &mut impl Sink) {
        if framing == Framing::Extended {
            out.put_u64(len);
            // Flags have 64 bits here, of which no context uses the upper half.
            out.put_u64(u64::from(flags));
        } else {
            out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
            out.put_u32(flags);
        }
    }
}

impl Extents<'_> {
    /// Reads an extent of a chunk: its length and its flags. `None`: it is incomplete, and a part
    /// of it may have been consumed.
    pub fn one(framing: Framing, reader: &mut Reader<'_>) -> Option<(u64, u64)> {
        match framing {
            Framing::Extended => Some((reader.u64()?, reader.u64()?)),
            Framing::Simple | Framing::Structured => {
                Some((u64::from(reader.u32()?), u64::from(reader.u32()?)))
            }
        }
    }
}

impl Iterator for Extents<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        Extents::one(self.framing, &mut self.reader)
    }
}
