//! Requests: each is checked here once and for all, so that what follows can trust it.
//!
//! What is checked, in this order: the magic; how much payload follows, which has to be taken off
//! the stream whatever becomes of the request; whether the export is writable; whether the command
//! and its flags were offered; the length; the range; the alignment. A request that is refused
//! leaves the stream in step, unless skipping its payload would be an attack by itself.

use super::close::CloseReason;
use crate::export::{Abilities, ExportInfo};
use crate::wire::numbers::{
    CMD_BLOCK_STATUS, CMD_CACHE, CMD_DISC, CMD_FLAG_DF, CMD_FLAG_FAST_ZERO, CMD_FLAG_FUA,
    CMD_FLAG_NO_HOLE, CMD_FLAG_PAYLOAD_LEN, CMD_FLAG_REQ_ONE, CMD_FLUSH, CMD_READ, CMD_TRIM,
    CMD_WRITE, CMD_WRITE_ZEROES, PAYLOAD_DEFAULT_MAX,
};
use crate::wire::{Framing, NbdError, RequestHeader};

/// What one chunk can hold: its length has 32 bits, and counts the 8 bytes of an offset.
const CHUNK_DATA_MAX: u32 = u32::MAX - 8;

/// A connection whose export is chosen: what was negotiated. It is small and never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmission {
    export: usize,
    size_bytes: u64,
    /// The smallest block, less one.
    block_mask: u64,
    payload_max: u32,
    can: Abilities,
    pub(super) framing: Framing,
    /// Whether BLOCK_STATUS was negotiated.
    pub(super) has_contexts: bool,
}

/// A request, checked. `offset` and `len` are in bytes; with a command that is not refused they lie
/// within the export and are multiples of its smallest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's own number for it.
    pub cookie: u64,
    /// Where on the export.
    pub offset: u64,
    /// How much of the export; never 0 but with FLUSH and DISC. Of a read or a write it is at most
    /// the largest payload; of another command it may be the whole export.
    pub len: u64,
    /// How many bytes follow the header and must be taken off the stream, whatever `command` says.
    pub payload_len: u32,
    /// What to do, or why it is refused.
    pub command: Result<Command, Refused>,
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Read.
    Read {
        /// In one chunk.
        df: bool,
    },
    /// Write the payload.
    Write {
        /// Durable before the reply.
        fua: bool,
    },
    /// Make durable what was written before.
    Flush,
    /// Discard.
    Trim {
        /// Durable before the reply.
        fua: bool,
    },
    /// Read ahead.
    Cache,
    /// Write zeroes.
    WriteZeroes {
        /// Durable before the reply.
        fua: bool,
        /// Room has to be kept for what is written there later.
        no_hole: bool,
        /// If that is not faster than writing them, the answer is [`NbdError::NotSup`].
        fast: bool,
    },
    /// Tell which parts are holes.
    BlockStatus {
        /// One extent is enough.
        one: bool,
    },
    /// The client leaves. There is no reply.
    Disconnect,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The error of the reply.
    pub error: NbdError,
    /// For people.
    pub message: &'static str,
}

#[inline]
const fn refused<T>(error: NbdError, message: &'static str) -> Result<T, Refused> {
    Err(Refused { error, message })
}

impl Transmission {
    pub(super) fn new(
        index: usize,
        export: &ExportInfo,
        framing: Framing,
        has_contexts: bool,
    ) -> Transmission {
        let block = export.block_size.min.checked_next_power_of_two().unwrap_or(1 << 31).max(1);
        Transmission {
            export: index,
            size_bytes: export.size_bytes,
            block_mask: u64::from(block.saturating_sub(1)),
            payload_max: export.block_size.max.min(CHUNK_DATA_MAX),
            can: export.can,
            framing,
            has_contexts,
        }
    }

    /// Which of the exports was chosen.
    #[inline]
    pub fn export(&self) -> usize {
        self.export
    }

    /// How long the header of a request is: 28 bytes, or 32 with extended headers.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.framing.request_len()
    }

    /// How requests and replies are framed, for the log.
    #[inline]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Takes a request apart. `header` has at least [`header_len`](Self::header_len) bytes; what is
    /// behind them is not looked at.
    ///
    /// # Errors
    /// The connection is out of step or hopeless, and has to be closed.
    #[inline]
    pub fn parse(&self, header: &[u8]) -> Result<Request, CloseReason> {
        let is_extended = self.framing == Framing::Extended;
        let header = if is_extended {
            RequestHeader::parse_extended(header)
        } else {
            RequestHeader::parse_compact(header)
        };
        let Some(header) = header else { return Err(CloseReason::RequestMagic) };
        let RequestHeader { flags, command, cookie, offset, len } = header;
        let has_payload =
            if is_extended { flags & CMD_FLAG_PAYLOAD_LEN != 0 } else { command == CMD_WRITE };
        let payload_len = if has_payload { self.bearable(len, command)? } else { 0 };
        let command = self.check(&header, has_payload);
        Ok(Request { cookie, offset, len, payload_len, command })
    }

    /// A payload that can be skipped, if it cannot be taken.
    #[inline]
    fn bearable(&self, len: u64, command: u16) -> Result<u32, CloseReason> {
        match u32::try_from(len) {
            // Nothing is read after it.
            _ if command == CMD_DISC => Ok(0),
            Ok(len) if len <= self.payload_max.max(PAYLOAD_DEFAULT_MAX) => Ok(len),
            _ => Err(CloseReason::PayloadTooLong(len)),
        }
    }

    #[inline]
    fn check(&self, header: &RequestHeader, has_payload: bool) -> Result<Command, Refused> {
        let RequestHeader { flags, command, offset, len, .. } = *header;
        let fua = flags & CMD_FLAG_FUA != 0;
        // Which flags the command may have besides FUA, and what it is.
        let (known_flags, is_offered, wanted) = match command {
            CMD_READ => {
                let df = if self.framing == Framing::Simple { 0 } else { CMD_FLAG_DF };
                (df, true, Command::Read { df: flags & CMD_FLAG_DF != 0 })
            }
            CMD_WRITE => {
                let is_extended = self.framing == Framing::Extended;
                let payload_len = if is_extended { CMD_FLAG_PAYLOAD_LEN } else { 0 };
                (payload_len, has_payload, Command::Write { fua })
            }
            CMD_FLUSH => (0, self.can.flush, Command::Flush),
            CMD_TRIM => (0, self.can.trim || self.can.read_only, Command::Trim { fua }),
            CMD_CACHE => (0, self.can.cache, Command::Cache),
            CMD_WRITE_ZEROES => {
                let no_hole = flags & CMD_FLAG_NO_HOLE != 0;
                let fast = flags & CMD_FLAG_FAST_ZERO != 0;
                let fast_flag = if self.can.fast_zero { CMD_FLAG_FAST_ZERO } else { 0 };
                let is_offered = self.can.write_zeroes || self.can.read_only;
                let wanted = Command::WriteZeroes { fua, no_hole, fast };
                (CMD_FLAG_NO_HOLE | fast_flag, is_offered, wanted)
            }
            CMD_BLOCK_STATUS => {
                let one = flags & CMD_FLAG_REQ_ONE != 0;
                (CMD_FLAG_REQ_ONE, self.has_contexts, Command::BlockStatus { one })
            }
            CMD_DISC => return Ok(Command::Disconnect),
            _ => return refused(NbdError::Inval, "there is no such command"),
        };
        let writes = matches!(
            wanted,
            Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. }
        );
        if writes && self.can.read_only {
            return refused(NbdError::Perm, "the export is read-only");
        }
        if !is_offered {
            let message = if command == CMD_WRITE {
                "a write with an extended header needs the flag PAYLOAD_LEN"
            } else {
                "this command was not offered"
            };
            return refused(NbdError::Inval, message);
        }
        let fua_flag = if self.can.fua { CMD_FLAG_FUA } else { 0 };
        if flags & !(known_flags | fua_flag) != 0 {
            return refused(NbdError::Inval, "a flag does not belong to this command");
        }
        self.check_range(wanted, offset, len)?;
        Ok(wanted)
    }

    #[inline]
    fn check_range(&self, wanted: Command, offset: u64, len: u64) -> Result<(), Refused> {
        if wanted == Command::Flush {
            if offset != 0 || len != 0 {
                return refused(NbdError::Inval, "a flush has neither offset nor length");
            }
            return Ok(());
        }
        if len == 0 {
            return refused(NbdError::Inval, "the length is 0");
        }
        if offset.checked_add(len).is_none_or(|end| end > self.size_bytes) {
            let is_write = matches!(wanted, Command::Write { .. } | Command::WriteZeroes { .. });
            let error = if is_write { NbdError::NoSpc } else { NbdError::Inval };
            return refused(error, "beyond the end of the export");
        }
        if (offset | len) & self.block_mask != 0 {
            return refused(NbdError::Inval, "not a multiple of the smallest block");
        }
        let has_data = matches!(wanted, Command::Read { .. } | Command::Write { .. });
        if has_data && len > u64::from(self.payload_max) {
            if wanted == (Command::Read { df: true }) {
                return refused(NbdError::Overflow, "longer than the largest payload");
            }
            return refused(NbdError::Inval, "longer than the largest payload");
        }
        Ok(())
    }

    /// The smallest block, less one.
    pub(super) fn block_mask(&self) -> u64 {
        self.block_mask
    }
}
