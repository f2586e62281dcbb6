//! Options, which clients send.
//!
//! Source: "Option types" in the NBD protocol document.

use super::bytes::{Reader, Sink, len_u32};
use super::numbers::OPTION_MAGIC;

/// Header of an option. The data follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option: one of `OPT_*`, or unknown.
    pub option: u32,
    /// Length of the data, bytes.
    pub len: u32,
}

impl OptionHeader {
    /// Length of the header, bytes.
    pub const LEN: usize = 16;

    /// Parses a header. `None`: too few bytes, or a wrong magic number.
    pub fn parse(bytes: &[u8]) -> Option<OptionHeader> {
        let mut reader = Reader::new(bytes);
        (reader.u64()? == OPTION_MAGIC).then_some(())?;
        Some(OptionHeader { option: reader.u32()?, len: reader.u32()? })
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut impl Sink) {
        out.put_u64(OPTION_MAGIC);
        out.put_u32(self.option);
        out.put_u32(self.len);
    }

    /// Appends an option with its data to `out`.
    pub fn emit_with(option: u32, data: &[u8], out: &mut impl Sink) {
        OptionHeader { option, len: len_u32(data.len()) }.emit(out);
        out.put(data);
    }
}

/// Data of INFO and GO: the name of an export, and the requested information.
#[derive(Clone, Copy, Debug)]
pub struct ExportRequest<'a> {
    /// Name of the export; empty for the default export.
    pub name: &'a [u8],
    infos: &'a [u8],
}

impl<'a> ExportRequest<'a> {
    /// Parses the data of the option. `None`: the lengths contradict each other.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let name = reader.string()?;
        let nr_infos = usize::from(reader.u16()?);
        let infos = reader.take(nr_infos.checked_mul(2)?)?;
        reader.is_empty().then_some(ExportRequest { name, infos })
    }

    /// Returns the types of information that the client requests: `INFO_*`, or unknown ones.
    pub fn infos(&self) -> impl Iterator<Item = u16> + use<'a> {
        let mut reader = Reader::new(self.infos);
        core::iter::from_fn(move || reader.u16())
    }

    /// Appends the whole option, INFO or GO, to `out`.
    pub fn emit(option: u32, name: &[u8], infos: &[u16], out: &mut impl Sink) {
        let len = infos.len().saturating_mul(2).saturating_add(name.len()).saturating_add(6);
        OptionHeader { option, len: len_u32(len) }.emit(out);
        out.put_string(name);
        out.put_u16(u16::try_from(infos.len()).unwrap_or(u16::MAX));
        for &info in infos {
            out.put_u16(info);
        }
    }
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT: the name of an export, and queries for contexts.
#[derive(Clone, Copy, Debug)]
pub struct ContextRequest<'a> {
    /// Name of the export; empty for the default export.
    pub name: &'a [u8],
    queries: Queries<'a>,
}

/// Iterator over the queries of a [`ContextRequest`].
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a>(Reader<'a>);

impl<'a> Iterator for Queries<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.string()
    }
}

impl<'a> ContextRequest<'a> {
    /// Parses the data of the option. `None`: the lengths contradict each other.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let name = reader.string()?;
        let nr_queries = reader.u32()?;
        let queries = Queries(reader);
        // A large number costs nothing: the first string that is not there ends this.
        for _ in 0..nr_queries {
            reader.string()?;
        }
        reader.is_empty().then_some(ContextRequest { name, queries })
    }

    /// Returns the queries. An option without queries has a meaning of its own.
    pub const fn queries(&self) -> Queries<'a> {
        self.queries
    }

    /// Appends the whole option to `out`.
    pub fn emit(option: u32, name: &[u8], queries: &[&[u8]], out: &mut impl Sink) {
        let strings = queries
            .iter()
            .fold(8_usize, |sum, query| sum.saturating_add(4).saturating_add(query.len()));
        OptionHeader { option, len: len_u32(strings.saturating_add(name.len())) }.emit(out);
        out.put_string(name);
        out.put_u32(len_u32(queries.len()));
        for query in queries {
            out.put_string(query);
        }
    }
}
