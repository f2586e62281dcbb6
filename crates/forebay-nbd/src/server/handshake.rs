//! Server side of the handshake: from the greeting to the choice of an export, in pieces of any
//! length.
//!
//! It stores only an incomplete message, of at most [`OPTION_MAX`] bytes. A longer option, or one
//! whose data do not matter, is skipped as it arrives and answered at its end, so that the stream
//! stays in step. The skipped bytes and the number of options are limited for the connection as a
//! whole, so that a handshake ends.

use alloc::vec::Vec;

use super::close::CloseReason;
use super::transmission::Transmission;
use crate::export::ExportInfo;
use crate::wire::numbers::{
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_LEN, INIT_MAGIC, OPT_ABORT, OPT_EXPORT_NAME,
    OPT_GO, OPT_INFO, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT, OPT_STARTTLS, OPTION_MAGIC,
    STRING_MAX,
};
use crate::wire::{Framing, OptionHeader, Sink};

/// Longest data of an option that are stored: three or four strings of full length.
pub(super) const OPTION_MAX: u32 = 16 << 10;
/// Most bytes of data that are skipped on one connection: as many as a client may send in one
/// request.
pub(super) const SKIPPED_MAX: u32 = 1 << 25;
/// Most options that a connection may send. A client that queries each export of a list needs the
/// most.
pub(super) const NR_OPTIONS_MAX: u32 = 1024;
/// Reply bytes of one call after which the rest of its input must wait. Clients wait for the end of
/// a reply, so they send no such input.
pub(super) const REPLIES_PAUSE: usize = 64 << 10;

/// Policy of a server: whether clients may or must use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TlsPolicy {
    /// STARTTLS is refused.
    #[default]
    Off,
    /// Clients may use TLS.
    On,
    /// Clients must use TLS: without it, all options except STARTTLS and ABORT are refused.
    Require,
}

/// Result of [`Handshake::feed`].
#[derive(Debug)]
pub struct Fed {
    /// Number of input bytes consumed. Feed the rest again, before newer bytes. With [`Next::More`]
    /// a rest remains only if the call made many replies, which should be sent first.
    pub consumed: usize,
    /// Next step of the connection.
    pub next: Next,
}

/// Next step of a connection, after the output of the handshake was sent.
#[derive(Debug)]
pub enum Next {
    /// Feed more bytes.
    More,
    /// Start TLS, then call [`Handshake::tls_started`]. Bytes that were read and not consumed are
    /// plaintext, which an attacker may have injected. Close the connection then, or pass them to
    /// TLS, which rejects them. Never feed them to the handshake.
    StartTls,
    /// The handshake is over. Bytes that were read and not consumed begin the first request.
    Transmission(Transmission),
    /// Close the connection.
    Close(CloseReason),
}

/// Handshake of a connection, until the client has chosen its export.
#[derive(Clone, Debug)]
pub struct Handshake {
    pub(super) tls: TlsPolicy,
    pub(super) is_tls: bool,
    pub(super) no_zeroes: bool,
    is_fixed: bool,
    pub(super) framing: Framing,
    /// Index of the export for which `base:allocation` was selected.
    pub(super) context: Option<usize>,
    step: Step,
    /// Received part of an incomplete message.
    held: Vec<u8>,
    nr_options: u32,
    nr_skipped: u32,
    /// Whether clients may choose no export: see [`Handshake::set_full`].
    pub(super) is_full: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    ClientFlags,
    Header,
    Data(OptionHeader),
    /// This many bytes of an option's data are still to be skipped.
    Skip(OptionHeader, u32),
    /// STARTTLS was granted, and TLS has not started.
    Tls,
    Over,
}

impl Handshake {
    /// Begins a handshake. Appends the greeting to `out`.
    pub fn new(tls: TlsPolicy, out: &mut Vec<u8>) -> Handshake {
        out.reserve(GREETING_LEN);
        out.put_u64(INIT_MAGIC);
        out.put_u64(OPTION_MAGIC);
        out.put_u16(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        Handshake {
            tls,
            is_tls: false,
            no_zeroes: false,
            is_fixed: false,
            framing: Framing::Simple,
            context: None,
            step: Step::ClientFlags,
            held: Vec::new(),
            nr_options: 0,
            nr_skipped: 0,
            is_full: false,
        }
    }

    /// Sets whether the server has reached its limit of connections. Then clients can still query
    /// exports, but cannot choose one: GO fails with `NBD_REP_ERR_POLICY` and a message.
    /// EXPORT_NAME, which has no error reply, closes the connection.
    pub fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Processes bytes of the client, and appends the replies to `out`. An export must have the
    /// same index in each call. Between calls, exports may be added and withdrawn.
    pub fn feed(&mut self, exports: &[ExportInfo], input: &[u8], out: &mut Vec<u8>) -> Fed {
        let replies_start = out.len();
        let mut rest = input;
        let next = loop {
            if out.len().saturating_sub(replies_start) > REPLIES_PAUSE {
                break Next::More;
            }
            match self.step(exports, &mut rest, out) {
                Some(Next::More) => {}
                Some(next) => break next,
                None => break Next::More,
            }
        };
        if matches!(next, Next::Transmission(_) | Next::Close(_)) {
            self.step = Step::Over;
            self.held = Vec::new();
        }
        Fed { consumed: input.len().saturating_sub(rest.len()), next }
    }

    /// Continues after [`Next::StartTls`]. Call it when the TLS session is established, before
    /// bytes from the session are fed. Discards all that was negotiated without TLS, except the
    /// flags of the greeting, which are not sent again.
    pub fn tls_started(&mut self) {
        self.is_tls = true;
        self.framing = Framing::Simple;
        self.context = None;
        self.held = Vec::new();
        self.step = Step::Header;
    }

    /// Processes one message, or a part of the skipped data. `None`: all of `rest` was consumed,
    /// and more is needed.
    fn step(
        &mut self,
        exports: &[ExportInfo],
        rest: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Next> {
        match self.step {
            Step::ClientFlags => self.with(4, rest, |this, bytes| this.client_flags(bytes)),
            Step::Header => self.with(OptionHeader::LEN, rest, |this, bytes| this.header(bytes)),
            Step::Data(header) => {
                let len = usize::try_from(header.len).unwrap_or(usize::MAX);
                self.with(len, rest, |this, data| {
                    this.step = Step::Header;
                    this.answer(header, Some(data), exports, out)
                })
            }
            Step::Skip(header, 0) => {
                self.step = Step::Header;
                Some(self.answer(header, None, exports, out))
            }
            Step::Skip(..) if rest.is_empty() => None,
            Step::Skip(header, left) => {
                let nr = u32::try_from(rest.len()).unwrap_or(u32::MAX).min(left);
                let nr_bytes = usize::try_from(nr).unwrap_or(usize::MAX);
                *rest = rest.get(nr_bytes..).unwrap_or_default();
                self.step = Step::Skip(header, left.saturating_sub(nr));
                Some(Next::More)
            }
            Step::Tls if rest.is_empty() => None,
            Step::Tls => Some(Next::Close(CloseReason::PlaintextAfterStartTls)),
            Step::Over => Some(Next::Close(CloseReason::HandshakeIsOver)),
        }
    }

    /// Calls `take` with the next `len` bytes; without a copy if `rest` has all of them.
    fn with(
        &mut self,
        len: usize,
        rest: &mut &[u8],
        take: impl FnOnce(&mut Self, &[u8]) -> Next,
    ) -> Option<Next> {
        if self.held.is_empty()
            && let Some((bytes, behind)) = rest.split_at_checked(len)
        {
            *rest = behind;
            return Some(take(self, bytes));
        }
        let missing = len.saturating_sub(self.held.len());
        let (piece, behind) = rest.split_at_checked(missing).unwrap_or((*rest, &[]));
        self.hold(piece, len);
        *rest = behind;
        if self.held.len() < len {
            return None;
        }
        // Drop the buffer afterwards: an idle connection keeps no memory.
        let held = core::mem::take(&mut self.held);
        Some(take(self, &held))
    }

    /// Keeps a part of a message of `len` bytes. Memory grows with the received bytes, not with the
    /// announced length, and never exceeds that length.
    fn hold(&mut self, piece: &[u8], len: usize) {
        let needed = self.held.len().saturating_add(piece.len());
        if needed > self.held.capacity() {
            let room = needed.saturating_mul(2).min(len);
            self.held.reserve_exact(room.saturating_sub(self.held.len()));
        }
        self.held.extend_from_slice(piece);
    }

    fn client_flags(&mut self, bytes: &[u8]) -> Next {
        let flags = bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return Next::Close(CloseReason::ClientFlags(flags));
        }
        self.is_fixed = flags & u32::from(FLAG_FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
        self.step = Step::Header;
        Next::More
    }

    /// Handles the header of an option: decides whether its data are needed.
    fn header(&mut self, bytes: &[u8]) -> Next {
        let Some(header) = OptionHeader::parse(bytes) else {
            return Next::Close(CloseReason::OptionMagic);
        };
        let OptionHeader { option, len } = header;
        self.nr_options = self.nr_options.saturating_add(1);
        if self.nr_options > NR_OPTIONS_MAX {
            return Next::Close(CloseReason::TooManyOptions);
        }
        if option == OPT_EXPORT_NAME {
            if let Some(reason) = self.refuses_export_name(len) {
                return Next::Close(reason);
            }
        } else if !self.is_fixed {
            return Next::Close(CloseReason::NotFixedNewstyle(option));
        }
        if option == OPT_SET_META_CONTEXT {
            // Even if it fails, it replaces the earlier selection.
            self.context = None;
        }
        let reads_data = matches!(
            option,
            OPT_EXPORT_NAME | OPT_INFO | OPT_GO | OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT
        );
        if len == 0 || (reads_data && len <= OPTION_MAX && !self.lacks_tls(option)) {
            self.step = Step::Data(header);
            return Next::More;
        }
        self.nr_skipped = self.nr_skipped.saturating_add(len);
        if self.nr_skipped > SKIPPED_MAX {
            return Next::Close(CloseReason::OptionTooLong { option, len });
        }
        self.step = Step::Skip(header, len);
        Next::More
    }

    /// Returns the reason why EXPORT_NAME is refused for all names. The option has no error reply.
    fn refuses_export_name(&self, name_len: u32) -> Option<CloseReason> {
        if self.lacks_tls(OPT_EXPORT_NAME) {
            Some(CloseReason::TlsRequired)
        } else if self.framing == Framing::Extended {
            Some(CloseReason::ExportNameExtended)
        } else if usize::try_from(name_len).map_or(true, |len| len > STRING_MAX) {
            Some(CloseReason::OptionTooLong { option: OPT_EXPORT_NAME, len: name_len })
        } else {
            None
        }
    }

    /// Returns whether this option is refused because TLS has not started.
    pub(super) fn lacks_tls(&self, option: u32) -> bool {
        let is_free = matches!(option, OPT_STARTTLS | OPT_ABORT);
        self.tls == TlsPolicy::Require && !self.is_tls && !is_free
    }

    /// Records that STARTTLS was granted: nothing is parsed until TLS has started.
    pub(super) fn expect_tls(&mut self) -> Next {
        self.step = Step::Tls;
        Next::StartTls
    }
}

#[cfg(test)]
impl Handshake {
    /// Returns the size of its buffer for a client, bytes.
    pub(super) fn held_capacity(&self) -> usize {
        self.held.capacity()
    }
}
