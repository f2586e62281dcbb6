//! Replies to options, which servers send.
//!
//! Source: "Option reply types" in the NBD protocol document.

use super::block_sizes::BlockSizes;
use super::bytes::{Reader, Sink, len_u32};
use super::numbers::{
    INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, OPTION_REPLY_MAGIC, REP_INFO,
    REP_META_CONTEXT, REP_SERVER,
};

/// Header of a reply to an option. The data follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// Option of the request.
    pub option: u32,
    /// Type of the reply: one of `REP_*`, or unknown.
    pub kind: u32,
    /// Length of the data, bytes.
    pub len: u32,
}

impl OptionReplyHeader {
    /// Length of the header, bytes.
    pub const LEN: usize = 20;

    /// Parses a header. `None`: too few bytes, or a wrong magic number.
    pub fn parse(bytes: &[u8]) -> Option<OptionReplyHeader> {
        let mut reader = Reader::new(bytes);
        (reader.u64()? == OPTION_REPLY_MAGIC).then_some(())?;
        let [option, kind, len] = [reader.u32()?, reader.u32()?, reader.u32()?];
        Some(OptionReplyHeader { option, kind, len })
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut impl Sink) {
        out.put_u64(OPTION_REPLY_MAGIC);
        out.put_u32(self.option);
        out.put_u32(self.kind);
        out.put_u32(self.len);
    }

    /// Appends a reply with its data to `out`: an acknowledgement without data, or an error with
    /// its message.
    pub fn emit_with(option: u32, kind: u32, data: &[u8], out: &mut impl Sink) {
        OptionReplyHeader { option, kind, len: len_u32(data.len()) }.emit(out);
        out.put(data);
    }
}

/// Data of `REP_SERVER`: an entry in the list of exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerEntry<'a> {
    /// Name of the export.
    pub name: &'a [u8],
    /// Human-readable description; may be empty.
    pub description: &'a [u8],
}

impl<'a> ServerEntry<'a> {
    /// Parses the data of the reply. `None`: the lengths contradict each other.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let name = reader.string()?;
        Some(ServerEntry { name, description: reader.rest() })
    }

    /// Appends the whole reply to `option` to `out`.
    pub fn emit(&self, option: u32, out: &mut impl Sink) {
        let len = self.name.len().saturating_add(self.description.len()).saturating_add(4);
        OptionReplyHeader { option, kind: REP_SERVER, len: len_u32(len) }.emit(out);
        out.put_string(self.name);
        out.put(self.description);
    }
}

/// Data of `REP_INFO`: information on an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Info<'a> {
    /// Size and transmission flags.
    Export {
        /// Size, bytes.
        size_bytes: u64,
        /// Transmission flags, `FLAG_*`.
        flags: u16,
    },
    /// Canonical name of the export.
    Name(&'a [u8]),
    /// Human-readable description.
    Description(&'a [u8]),
    /// Block sizes.
    BlockSize(BlockSizes),
    /// Information of an unknown type, which is ignored.
    Other {
        /// Type of the information.
        kind: u16,
        /// Data of the information.
        data: &'a [u8],
    },
}

impl<'a> Info<'a> {
    /// Parses the data of the reply. `None`: too short, or longer than the type allows.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let info = match reader.u16()? {
            INFO_EXPORT => Info::Export { size_bytes: reader.u64()?, flags: reader.u16()? },
            INFO_BLOCK_SIZE => {
                let [min, preferred, max] = [reader.u32()?, reader.u32()?, reader.u32()?];
                Info::BlockSize(BlockSizes { min, preferred, max })
            }
            INFO_NAME => return Some(Info::Name(reader.rest())),
            INFO_DESCRIPTION => return Some(Info::Description(reader.rest())),
            kind => return Some(Info::Other { kind, data: reader.rest() }),
        };
        reader.is_empty().then_some(info)
    }

    /// Appends the whole reply to `option` to `out`.
    pub fn emit(&self, option: u32, out: &mut impl Sink) {
        let (kind, len) = match *self {
            Info::Export { .. } => (INFO_EXPORT, 10),
            Info::Name(name) => (INFO_NAME, name.len()),
            Info::Description(text) => (INFO_DESCRIPTION, text.len()),
            Info::BlockSize(_) => (INFO_BLOCK_SIZE, 12),
            Info::Other { kind, data } => (kind, data.len()),
        };
        OptionReplyHeader { option, kind: REP_INFO, len: len_u32(len.saturating_add(2)) }.emit(out);
        out.put_u16(kind);
        match *self {
            Info::Export { size_bytes, flags } => {
                out.put_u64(size_bytes);
                out.put_u16(flags);
            }
            Info::BlockSize(BlockSizes { min, preferred, max }) => {
                out.put_u32(min);
                out.put_u32(preferred);
                out.put_u32(max);
            }
            Info::Name(data) | Info::Description(data) | Info::Other { data, .. } => out.put(data),
        }
    }
}

/// Data of `REP_META_CONTEXT`: a metadata context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaContext<'a> {
    /// Number of the context in replies to BLOCK_STATUS; without meaning in a list.
    pub id: u32,
    /// Name of the context.
    pub name: &'a [u8],
}

impl<'a> MetaContext<'a> {
    /// Parses the data of the reply. `None`: too short.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        Some(MetaContext { id: reader.u32()?, name: reader.rest() })
    }

    /// Appends the whole reply to `option` to `out`.
    pub fn emit(&self, option: u32, out: &mut impl Sink) {
        let len = len_u32(self.name.len().saturating_add(4));
        OptionReplyHeader { option, kind: REP_META_CONTEXT, len }.emit(out);
        out.put_u32(self.id);
        out.put(self.name);
    }
}
