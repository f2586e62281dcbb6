//! Replies of the transmission phase: simple ones, and chunks of either header.
//!
//! Source: "Simple reply message", "Structured reply chunk message" and "Structured reply types"
//! in the NBD protocol document, and its extension EXTENDED_HEADERS.

use super::Framing;
use super::bytes::{Reader, Sink};
use super::numbers::{
    EXTENDED_REPLY_MAGIC, REPLY_BLOCK_STATUS, REPLY_BLOCK_STATUS_EXT, REPLY_ERROR_OFFSET,
    SIMPLE_REPLY_MAGIC, STRING_MAX, STRUCTURED_REPLY_MAGIC,
};

/// The first word of a reply, which tells a simple one from a chunk. `None`: fewer than 4 bytes.
#[inline]
pub fn reply_magic(bytes: &[u8]) -> Option<u32> {
    Reader::new(bytes).u32()
}

/// A simple reply. The data of a read that succeeded follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// 0, or the number of an [`NbdError`](super::NbdError).
    pub error: u32,
    /// That of the request.
    pub cookie: u64,
}

impl SimpleReply {
    /// How long it is, in bytes.
    pub const LEN: usize = 16;

    /// `None`: too short, or its magic is wrong.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<SimpleReply> {
        let mut reader = Reader::new(bytes.first_chunk::<{ Self::LEN }>()?);
        (reader.u32()? == SIMPLE_REPLY_MAGIC).then_some(())?;
        Some(SimpleReply { error: reader.u32()?, cookie: reader.u64()? })
    }

    /// Writes it.
    #[inline]
    pub fn emit(&self, out: &mut impl Sink) {
        out.put_u32(SIMPLE_REPLY_MAGIC);
        out.put_u32(self.error);
        out.put_u64(self.cookie);
    }
}

/// The header of a chunk. Its payload follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// `REPLY_FLAG_*`.
    pub flags: u16,
    /// `REPLY_*` or any other.
    pub kind: u16,
    /// That of the request.
    pub cookie: u64,
    /// That of the request, in bytes; 0 where the header has no place for it.
    pub offset: u64,
    /// How long the payload is, in bytes.
    pub len: u64,
}

impl ChunkHeader {
    /// How long that of a structured reply is, in bytes.
    pub const STRUCTURED_LEN: usize = 20;
    /// How long an extended one is, in bytes.
    pub const EXTENDED_LEN: usize = 32;

    /// `None`: too short, or its magic is wrong.
    #[inline]
    pub fn parse_structured(bytes: &[u8]) -> Option<ChunkHeader> {
        let mut reader = Reader::new(bytes.first_chunk::<{ Self::STRUCTURED_LEN }>()?);
        (reader.u32()? == STRUCTURED_REPLY_MAGIC).then_some(())?;
        let [flags, kind] = [reader.u16()?, reader.u16()?];
        let cookie = reader.u64()?;
        Some(ChunkHeader { flags, kind, cookie, offset: 0, len: u64::from(reader.u32()?) })
    }

    /// `None`: too short, or its magic is wrong.
    #[inline]
    pub fn parse_extended(bytes: &[u8]) -> Option<ChunkHeader> {
        let mut reader = Reader::new(bytes.first_chunk::<{ Self::EXTENDED_LEN }>()?);
        (reader.u32()? == EXTENDED_REPLY_MAGIC).then_some(())?;
        let [flags, kind] = [reader.u16()?, reader.u16()?];
        let [cookie, offset, len] = [reader.u64()?, reader.u64()?, reader.u64()?];
        Some(ChunkHeader { flags, kind, cookie, offset, len })
    }

    /// Writes it: extended if that was agreed on, and else as one of a structured reply.
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

/// The payload of `REPLY_OFFSET_HOLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Where on the export, in bytes.
    pub offset: u64,
    /// How many bytes of zeroes.
    pub len: u32,
}

impl Hole {
    /// How long it is, in bytes.
    pub const LEN: u64 = 12;

    /// `None`: too short, too long, or a hole of no bytes.
    pub fn parse(payload: &[u8]) -> Option<Hole> {
        let mut reader = Reader::new(payload);
        let hole = Hole { offset: reader.u64()?, len: reader.u32()? };
        (reader.is_empty() && hole.len > 0).then_some(hole)
    }

    /// Writes it.
    #[inline]
    pub fn emit(&self, out: &mut impl Sink) {
        out.put_u64(self.offset);
        out.put_u32(self.len);
    }
}

/// The payload of a chunk that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorChunk<'a> {
    /// The number of an [`NbdError`](super::NbdError); 0 is malformed, and is for the reader to
    /// refuse.
    pub error: u32,
    /// For people, UTF-8 by the document; may be empty.
    pub message: &'a [u8],
    /// Where, in bytes, if the chunk says it.
    pub offset: Option<u64>,
}

impl<'a> ErrorChunk<'a> {
    /// Of a chunk of this kind. `None`: its lengths do not agree.
    pub fn parse(kind: u16, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let error = reader.u32()?;
        let message_len = usize::from(reader.u16()?);
        let message = reader.take(message_len)?;
        let offset = if kind == REPLY_ERROR_OFFSET { Some(reader.u64()?) } else { None };
        Some(ErrorChunk { error, message, offset })
    }

    /// How long it is, in bytes, with the message clipped to what is allowed.
    pub fn payload_len(&self) -> u64 {
        let message_len = u64::try_from(self.message.len().min(STRING_MAX)).unwrap_or(0);
        let fixed_len: u64 = if self.offset.is_some() { 14 } else { 6 };
        message_len.saturating_add(fixed_len)
    }

    /// Writes it. Of the message no more than [`STRING_MAX`] bytes.
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

/// As much of a text as a message may have, cut between characters.
pub fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(STRING_MAX)).unwrap_or(text)
}

/// The payload of `REPLY_BLOCK_STATUS` and `REPLY_BLOCK_STATUS_EXT`.
#[derive(Clone, Copy, Debug)]
pub struct StatusChunk<'a> {
    /// Which metadata context.
    pub context: u32,
    /// The extents, from where the request began; at least one.
    pub extents: Extents<'a>,
}

/// Extents of a [`StatusChunk`]: the length in bytes, and `STATE_*` or any other flags.
#[derive(Clone, Copy, Debug)]
pub struct Extents<'a> {
    reader: Reader<'a>,
    framing: Framing,
}

/// How long the parts of a [`StatusChunk`] are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusLens {
    /// What goes before the extents: the context, and if extended how many they are.
    pub start: u64,
    /// An extent.
    pub each: u64,
}

impl StatusLens {
    /// With this framing.
    pub const fn of(framing: Framing) -> StatusLens {
        match framing {
            Framing::Simple | Framing::Structured => StatusLens { start: 4, each: 8 },
            Framing::Extended => StatusLens { start: 8, each: 16 },
        }
    }
}

impl<'a> StatusChunk<'a> {
    /// Of a chunk of this kind. `None`: of another kind, its lengths do not agree, it has no
    /// extent, or one of no bytes.
    pub fn parse(kind: u16, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let context = reader.u32()?;
        let framing = match kind {
            REPLY_BLOCK_STATUS => Framing::Structured,
            REPLY_BLOCK_STATUS_EXT => Framing::Extended,
            _ => return None,
        };
        let nr_told = if framing == Framing::Extended { u64::from(reader.u32()?) } else { 0 };
        let (left, each) = (u64::try_from(reader.rest().len()).ok()?, StatusLens::of(framing).each);
        let nr_there = left.checked_div(each)?;
        let is_whole = left.checked_rem(each)? == 0 && nr_there > 0;
        // 0 means: as many as there are.
        (is_whole && (nr_told == 0 || nr_told == nr_there)).then_some(())?;
        let extents = Extents { reader, framing };
        let mut all = extents;
        all.all(|(len, _)| len > 0).then_some(StatusChunk { context, extents })
    }

    /// How long one of so many extents is, in bytes, and its kind.
    pub fn shape(framing: Framing, nr_extents: u32) -> (u16, u64) {
        let StatusLens { start, each } = StatusLens::of(framing);
        let len = u64::from(nr_extents).saturating_mul(each).saturating_add(start);
        match framing {
            Framing::Extended => (REPLY_BLOCK_STATUS_EXT, len),
            Framing::Simple | Framing::Structured => (REPLY_BLOCK_STATUS, len),
        }
    }

    /// Writes what goes before the extents.
    pub fn emit_start(framing: Framing, context: u32, nr_extents: u32, out: &mut impl Sink) {
        out.put_u32(context);
        if framing == Framing::Extended {
            out.put_u32(nr_extents);
        }
    }

    /// Writes one extent: its length in bytes, and its flags. A length beyond the field of 32 bits
    /// is the caller's error, and told short.
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
    /// The next extent of a chunk, its length and its flags. `None`: it is not there whole, and
    /// what of it is there may be taken.
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
