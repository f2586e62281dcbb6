//! Requests of the transmission phase: parsed and checked once, so that the server can trust them.
//!
//! The checks, in this order: the magic number; the length of the payload, which must be read even
//! if the request is refused; whether the export is writable; whether the command and its flags
//! were offered; length; range; alignment. A refused request leaves the stream in step, unless its
//! payload is too long to be skipped.

use super::close::CloseReason;
use crate::export::{Abilities, ExportInfo};
use crate::wire::numbers::{
    CMD_BLOCK_STATUS, CMD_CACHE, CMD_DISC, CMD_FLAG_DF, CMD_FLAG_FAST_ZERO, CMD_FLAG_FUA,
    CMD_FLAG_NO_HOLE, CMD_FLAG_PAYLOAD_LEN, CMD_FLAG_REQ_ONE, CMD_FLUSH, CMD_READ, CMD_TRIM,
    CMD_WRITE, CMD_WRITE_ZEROES, PAYLOAD_DEFAULT_MAX,
};
use crate::wire::{Framing, NbdError, RequestHeader};

/// Most data of a chunk: its length has 32 bits, and includes the 8 bytes of an offset.
const CHUNK_DATA_MAX: u32 = u32::MAX - 8;

/// Result of a handshake: parses requests and makes replies. It is small, and only the size of the
/// export changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmission {
    export: usize,
    size_bytes: u64,
    /// Size of the smallest block, minus 1.
    block_mask: u64,
    payload_max: u32,
    can: Abilities,
    pub(super) framing: Framing,
    /// Whether BLOCK_STATUS was negotiated.
    pub(super) has_contexts: bool,
}

/// A checked request. `offset` and `len` are in bytes; unless the command is refused, they are
/// within the export and multiples of its smallest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number that the client has chosen for the request. Replies repeat it.
    pub cookie: u64,
    /// Offset on the export.
    pub offset: u64,
    /// Length of the range; 0 only with FLUSH and DISC. A read or a write has at most the largest
    /// payload; other commands may cover the whole export.
    pub len: u64,
    /// Bytes that follow the header. They must be read from the stream even if the request is
    /// refused.
    pub payload_len: u32,
    /// The command, or the reason for the refusal.
    pub command: Result<Command, Refused>,
}

/// Command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// READ.
    Read {
        /// The reply must have a single data chunk (DF).
        df: bool,
    },
    /// WRITE.
    Write {
        /// The data must be durable before the reply.
        fua: bool,
    },
    /// FLUSH: makes all completed writes durable.
    Flush,
    /// TRIM: discards a range.
    Trim {
        /// The effect must be durable before the reply.
        fua: bool,
    },
    /// CACHE: reads ahead.
    Cache,
    /// WRITE_ZEROES.
    WriteZeroes {
        /// The zeroes must be durable before the reply.
        fua: bool,
        /// The range must stay allocated (NO_HOLE).
        no_hole: bool,
        /// Fails with [`NbdError::NotSup`] if it is not faster than writing zeroes (FAST_ZERO).
        fast: bool,
    },
    /// BLOCK_STATUS: returns which parts are holes or zeroes.
    BlockStatus {
        /// One extent is enough (REQ_ONE).
        one: bool,
    },
    /// DISC: the client disconnects. There is no reply.
    Disconnect,
}

/// Refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// Error of the reply.
    pub error: NbdError,
    /// Human-readable reason.
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

    /// Returns the index of the chosen export.
    #[inline]
    pub fn export(&self) -> usize {
        self.export
    }

    /// Changes the size of the export. The protocol has no message for that: a client asks for the
    /// size on another connection.
    pub fn resize(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
    }

    /// Returns the length of a request header: 28 bytes, or 32 with extended headers.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.framing.request_len()
    }

    /// Returns the negotiated framing.
    #[inline]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Parses and checks a request. `header` has at least [`header_len`](Self::header_len) bytes;
    /// further bytes are ignored.
    ///
    /// # Errors
    /// Returns the reason if the connection must be closed: it is out of step, or the payload is
    /// too long to be skipped.
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

    /// Returns the length of a payload that can be skipped if the request is refused.
    #[inline]
    fn bearable(&self, len: u64, command: u16) -> Result<u32, CloseReason> {
        match u32::try_from(len) {
            // Nothing is parsed after it.
            _ if command == CMD_DISC => Ok(0),
            Ok(len) if len <= self.payload_max.max(PAYLOAD_DEFAULT_MAX) => Ok(len),
            _ => Err(CloseReason::PayloadTooLong(len)),
        }
    }

    #[inline]
    fn check(&self, header: &RequestHeader, has_payload: bool) -> Result<Command, Refused> {
        let RequestHeader { flags, command, offset, len, .. } = *header;
        let fua = flags & CMD_FLAG_FUA != 0;
        // The flags that the command may have besides FUA, whether it is offered, and the command.
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
            _ => return refused(NbdError::Inval, "unknown command"),
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
                "the export does not support this command"
            };
            return refused(NbdError::Inval, message);
        }
        let fua_flag = if self.can.fua { CMD_FLAG_FUA } else { 0 };
        if flags & !(known_flags | fua_flag) != 0 {
            return refused(NbdError::Inval, "a flag is not supported for this command");
        }
        self.check_range(wanted, offset, len)?;
        Ok(wanted)
    }

    #[inline]
    fn check_range(&self, wanted: Command, offset: u64, len: u64) -> Result<(), Refused> {
        if wanted == Command::Flush {
            if offset != 0 || len != 0 {
                return refused(NbdError::Inval, "a flush must have offset 0 and length 0");
            }
            return Ok(());
        }
        if len == 0 {
            return refused(NbdError::Inval, "the length is 0");
        }
        if offset.checked_add(len).is_none_or(|end| end > self.size_bytes) {
            let is_write = matches!(wanted, Command::Write { .. } | Command::WriteZeroes { .. });
            let error = if is_write { NbdError::NoSpc } else { NbdError::Inval };
            return refused(error, "the range exceeds the end of the export");
        }
        if (offset | len) & self.block_mask != 0 {
            return refused(
                NbdError::Inval,
                "offset or length is not a multiple of the smallest block",
            );
        }
        let has_data = matches!(wanted, Command::Read { .. } | Command::Write { .. });
        if has_data && len > u64::from(self.payload_max) {
            if wanted == (Command::Read { df: true }) {
                return refused(NbdError::Overflow, "the length exceeds the largest payload");
            }
            return refused(NbdError::Inval, "the length exceeds the largest payload");
        }
        Ok(())
    }

    /// Returns the size of the smallest block, minus 1.
    pub(super) fn block_mask(&self) -> u64 {
        self.block_mask
    }
}
