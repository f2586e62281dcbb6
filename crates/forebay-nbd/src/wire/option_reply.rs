//! Replies to options, as a server sends them.
//!
//! Source: "Option reply types" in the NBD protocol document.

use super::bytes::{Reader, Sink, len_u32};
use super::numbers::{
    INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, OPTION_REPLY_MAGIC, REP_INFO,
    REP_META_CONTEXT, REP_SERVER,
};
use crate::export::BlockSizes;

/// What goes before the data of each reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option that is answered.
    pub option: u32,
    /// What kind of reply, one of `REP_*` or any other.
    pub kind: u32,
    /// How many bytes of data follow.
    pub len: u32,
}

impl OptionReplyHeader {
    /// How long it is, in bytes.
    pub const LEN: usize = 20;

    /// `None`: too short, or its magic is wrong.
    pub fn parse(bytes: &[u8]) -> Option<OptionReplyHeader> {
        let mut reader = Reader::new(bytes);
        (reader.u64()? == OPTION_REPLY_MAGIC).then_some(())?;
        let [option, kind, len] = [reader.u32()?, reader.u32()?, reader.u32()?];
        Some(OptionReplyHeader { option, kind, len })
    }

    /// Writes it.
    pub fn emit(&self, out: &mut impl Sink) {
        out.put_u64(OPTION_REPLY_MAGIC);
        out.put_u32(self.option);
        out.put_u32(self.kind);
        out.put_u32(self.len);
    }

    /// Writes a reply with data that stands ready: an acknowledgement without any, or an error
    /// with its message.
    pub fn emit_with(option: u32, kind: u32, data: &[u8], out: &mut impl Sink) {
        OptionReplyHeader { option, kind, len: len_u32(data.len()) }.emit(out);
        out.put(data);
    }
}

/// The data of `REP_SERVER`: one entry of a list of exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerEntry<'a> {
    /// The export's name.
    pub name: &'a [u8],
    /// A description for people; may be empty.
    pub description: &'a [u8],
}

impl<'a> ServerEntry<'a> {
    /// `None`: its lengths do not agree.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let name = reader.string()?;
        Some(ServerEntry { name, description: reader.rest() })
    }

    /// Writes the whole reply to `option`.
    pub fn emit(&self, option: u32, out: &mut impl Sink) {
        let len = self.name.len().saturating_add(self.description.len()).saturating_add(4);
        OptionReplyHeader { option, kind: REP_SERVER, len: len_u32(len) }.emit(out);
        out.put_string(self.name);
        out.put(self.description);
    }
}

/// The data of `REP_INFO`: something about an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Info<'a> {
    /// Size and transmission flags.
    Export {
        /// The size in bytes.
        size_bytes: u64,
        /// `FLAG_*`.
        flags: u16,
    },
    /// The name that the server uses.
    Name(&'a [u8]),
    /// A description for people.
    Description(&'a [u8]),
    /// The three block sizes.
    BlockSize(BlockSizes),
    /// Of a kind that is unknown here; to be ignored.
    Other {
        /// Its kind.
        kind: u16,
        /// What it says.
        data: &'a [u8],
    },
}

impl<'a> Info<'a> {
    /// `None`: too short, or longer than its kind allows.
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

    /// Writes the whole reply to `option`.
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

/// The data of `REP_META_CONTEXT`: a metadata context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaContext<'a> {
    /// Its number in replies to BLOCK_STATUS; means nothing in a list.
    pub id: u32,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> MetaContext<'a> {
    /// `None`: too short.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        Some(MetaContext { id: reader.u32()?, name: reader.rest() })
    }

    /// Writes the whole reply to `option`.
    pub fn emit(&self, option: u32, out: &mut impl Sink) {
        let len = len_u32(self.name.len().saturating_add(4));
        OptionReplyHeader { option, kind: REP_META_CONTEXT, len }.emit(out);
        out.put_u32(self.id);
        out.put(self.name);
    }
}
