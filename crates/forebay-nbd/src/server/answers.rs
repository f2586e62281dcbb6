//! Replies to options.
//!
//! Source: "Option types" in the NBD protocol document. Where the document leaves a choice, the
//! server grants an option again that it has granted before, ignores a query that selects nothing,
//! lists contexts even before they can be selected, and always sends the block sizes.

use alloc::vec::Vec;

use super::close::CloseReason;
use super::handshake::{Handshake, Next, TlsPolicy};
use super::transmission::Transmission;
use crate::export::ExportInfo;
use crate::wire::numbers::{
    BASE_ALLOCATION, EXPORT_NAME_ZEROES, INFO_DESCRIPTION, INFO_NAME, OPT_ABORT, OPT_EXPORT_NAME,
    OPT_EXTENDED_HEADERS, OPT_GO, OPT_INFO, OPT_LIST, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT,
    OPT_STARTTLS, OPT_STRUCTURED_REPLY, REP_ACK, REP_ERR_EXT_HEADER_REQD, REP_ERR_INVALID,
    REP_ERR_POLICY, REP_ERR_TLS_REQD, REP_ERR_TOO_BIG, REP_ERR_UNKNOWN, REP_ERR_UNSUP, STRING_MAX,
};
use crate::wire::{
    ContextRequest, ExportRequest, Framing, Info, MetaContext, OptionHeader, OptionReplyHeader,
    ServerEntry, Sink,
};

/// Number of `base:allocation` in replies to BLOCK_STATUS.
pub(super) const BASE_ALLOCATION_ID: u32 = 1;
/// Query for all contexts of the namespace. It has an effect only in LIST_META_CONTEXT.
const BASE_WILDCARD: &[u8] = b"base:";

/// A refusal: type of the reply, and message.
type Refusal = (u32, &'static str);

const NO_DATA: Refusal = (REP_ERR_INVALID, "this option takes no data");
const MALFORMED: Refusal = (REP_ERR_INVALID, "the lengths in this option contradict each other");
const NAME_TOO_LONG: Refusal = (REP_ERR_TOO_BIG, "a name has at most 4096 bytes");
const NO_EXPORT: Refusal = (REP_ERR_UNKNOWN, "no export has this name");

/// Returns the index of the export with a name.
fn find(exports: &[ExportInfo], name: &[u8]) -> Option<usize> {
    let exact = exports.iter().position(|export| export.name.as_bytes() == name);
    let first = || exports.iter().position(|export| !export.is_withdrawn());
    exact.or_else(|| if name.is_empty() { first() } else { None })
}

/// Returns the export with a name from an option that can be refused.
fn found<'a>(exports: &'a [ExportInfo], name: &[u8]) -> Result<(usize, &'a ExportInfo), Refusal> {
    if name.len() > STRING_MAX {
        return Err(NAME_TOO_LONG);
    }
    let index = find(exports, name).ok_or(NO_EXPORT)?;
    exports.get(index).map(|export| (index, export)).ok_or(NO_EXPORT)
}

impl Handshake {
    /// Answers an option. `data` is `None` if they were skipped.
    pub(super) fn answer(
        &mut self,
        header: OptionHeader,
        data: Option<&[u8]>,
        exports: &[ExportInfo],
        out: &mut Vec<u8>,
    ) -> Next {
        let OptionHeader { option, len } = header;
        if option == OPT_EXPORT_NAME {
            return self.export_name(data.unwrap_or_default(), exports, out);
        }
        let outcome = if self.lacks_tls(option) {
            Err((REP_ERR_TLS_REQD, "this server requires TLS: send STARTTLS first"))
        } else {
            match option {
                OPT_ABORT => Ok(Next::Close(CloseReason::Aborted)),
                OPT_LIST | OPT_STARTTLS | OPT_STRUCTURED_REPLY | OPT_EXTENDED_HEADERS
                    if len > 0 =>
                {
                    Err(NO_DATA)
                }
                OPT_LIST => Ok(list(exports, out)),
                OPT_STARTTLS => self.start_tls(),
                OPT_STRUCTURED_REPLY => self.structured_reply(),
                OPT_EXTENDED_HEADERS => {
                    self.framing = Framing::Extended;
                    Ok(Next::More)
                }
                OPT_INFO | OPT_GO => self.info(option, data, exports, out),
                OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => {
                    self.contexts(option, data, exports, out)
                }
                _ => Err((REP_ERR_UNSUP, "this server does not support this option")),
            }
        };
        let (kind, message, next) = match outcome {
            Ok(next) => (REP_ACK, "", next),
            Err((kind, message)) => (kind, message, Next::More),
        };
        OptionReplyHeader::emit_with(option, kind, message.as_bytes(), out);
        next
    }

    /// Answers EXPORT_NAME. It has no error reply.
    fn export_name(&self, name: &[u8], exports: &[ExportInfo], out: &mut Vec<u8>) -> Next {
        if self.is_full {
            return Next::Close(CloseReason::Full);
        }
        let Ok((index, export)) = found(exports, name) else {
            return Next::Close(CloseReason::UnknownExport);
        };
        out.put_u64(export.size_bytes);
        out.put_u16(export.can.flags(self.framing));
        if !self.no_zeroes {
            out.put(&[0; EXPORT_NAME_ZEROES]);
        }
        Next::Transmission(self.enter(index, export))
    }

    fn enter(&self, index: usize, export: &ExportInfo) -> Transmission {
        // A context that was selected for another export does not count.
        Transmission::new(index, export, self.framing, self.context == Some(index))
    }

    fn start_tls(&mut self) -> Result<Next, Refusal> {
        if self.is_tls {
            return Err((REP_ERR_INVALID, "TLS has started already"));
        }
        match self.tls {
            TlsPolicy::Off => Err((REP_ERR_POLICY, "TLS is not configured on this server")),
            TlsPolicy::On | TlsPolicy::Require => Ok(self.expect_tls()),
        }
    }

    fn structured_reply(&mut self) -> Result<Next, Refusal> {
        if self.framing == Framing::Extended {
            return Err((REP_ERR_EXT_HEADER_REQD, "extended headers have been negotiated already"));
        }
        self.framing = Framing::Structured;
        Ok(Next::More)
    }

    fn info(
        &self,
        option: u32,
        data: Option<&[u8]>,
        exports: &[ExportInfo],
        out: &mut Vec<u8>,
    ) -> Result<Next, Refusal> {
        let data = data.ok_or((REP_ERR_TOO_BIG, "the data of this option are too long"))?;
        let request = ExportRequest::parse(data).ok_or(MALFORMED)?;
        let (index, export) = found(exports, request.name)?;
        if option == OPT_GO && self.is_full {
            return Err((REP_ERR_POLICY, "this server has reached its limit of connections"));
        }
        let flags = export.can.flags(self.framing);
        Info::Export { size_bytes: export.size_bytes, flags }.emit(option, out);
        Info::BlockSize(export.block_size).emit(option, out);
        // Send each once, even if a client asks a thousand times.
        if request.infos().any(|info| info == INFO_NAME) {
            Info::Name(export.name.as_bytes()).emit(option, out);
        }
        if request.infos().any(|info| info == INFO_DESCRIPTION) {
            Info::Description(export.description.as_bytes()).emit(option, out);
        }
        if option == OPT_GO {
            return Ok(Next::Transmission(self.enter(index, export)));
        }
        Ok(Next::More)
    }

    /// Answers LIST_META_CONTEXT and SET_META_CONTEXT.
    fn contexts(
        &mut self,
        option: u32,
        data: Option<&[u8]>,
        exports: &[ExportInfo],
        out: &mut Vec<u8>,
    ) -> Result<Next, Refusal> {
        let is_list = option == OPT_LIST_META_CONTEXT;
        if !is_list && self.framing == Framing::Simple {
            return Err((REP_ERR_INVALID, "this option needs STRUCTURED_REPLY first"));
        }
        let data = data.ok_or((REP_ERR_TOO_BIG, "the data of this option are too long"))?;
        let request = ContextRequest::parse(data).ok_or(MALFORMED)?;
        let (index, _) = found(exports, request.name)?;
        let names_it = request.queries().any(|query| {
            query == BASE_ALLOCATION.as_bytes() || (is_list && query == BASE_WILDCARD)
        });
        // A list without queries returns everything, a set without queries selects nothing.
        if names_it || (is_list && request.queries().next().is_none()) {
            let id = if is_list { 0 } else { BASE_ALLOCATION_ID };
            MetaContext { id, name: BASE_ALLOCATION.as_bytes() }.emit(option, out);
            if !is_list {
                self.context = Some(index);
            }
        }
        Ok(Next::More)
    }
}

fn list(exports: &[ExportInfo], out: &mut Vec<u8>) -> Next {
    for export in exports.iter().filter(|export| !export.is_withdrawn()) {
        let [name, description] = [export.name.as_bytes(), export.description.as_bytes()];
        ServerEntry { name, description }.emit(OPT_LIST, out);
    }
    Next::More
}
