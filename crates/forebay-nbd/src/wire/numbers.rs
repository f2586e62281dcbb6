//! Constants of the protocol, under their names in the NBD protocol document without `NBD_`.
//!
//! They are numbers, not enums: a peer may send an unknown one, which is not a parse error.

/// Longest string, bytes: names, descriptions, queries, messages.
pub const STRING_MAX: usize = 4096;
/// Largest payload that a peer must accept if no other limit was negotiated, bytes.
pub const PAYLOAD_DEFAULT_MAX: u32 = 1 << 25;
/// TCP port that IANA has assigned to NBD.
pub const PORT: u16 = 10809;

/// First word of the greeting: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of the greeting, and first word of each option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Second word of the oldstyle greeting, of servers without options.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// First word of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a request with an extended header.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// First word of a chunk with an extended header.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Length of the greeting, bytes.
pub const GREETING_LEN: usize = 18;
/// Number of zero bytes behind the reply to EXPORT_NAME, unless NO_ZEROES was negotiated.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Handshake flag, of both sides: fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag, of both sides: no zero bytes behind the reply to EXPORT_NAME.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Option: choose an export; without an error reply.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: abort the handshake.
pub const OPT_ABORT: u32 = 2;
/// Option: list the exports.
pub const OPT_LIST: u32 = 3;
/// Option: start TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Option: request information on an export.
pub const OPT_INFO: u32 = 6;
/// Option: request information on an export, and choose it.
pub const OPT_GO: u32 = 7;
/// Option: use structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: list metadata contexts.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: select metadata contexts.
pub const OPT_SET_META_CONTEXT: u32 = 10;
/// Option: use extended headers.
pub const OPT_EXTENDED_HEADERS: u32 = 11;

/// Option reply: success, and end of the replies.
pub const REP_ACK: u32 = 1;
/// Option reply: name and description of an export.
pub const REP_SERVER: u32 = 2;
/// Option reply: information on an export.
pub const REP_INFO: u32 = 3;
/// Option reply: a metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// Bit that all errors among the option replies have.
pub const REP_ERR: u32 = 1 << 31;
/// Option reply: the option is not supported.
pub const REP_ERR_UNSUP: u32 = REP_ERR | 1;
/// Option reply: the policy of the server forbids it.
pub const REP_ERR_POLICY: u32 = REP_ERR | 2;
/// Option reply: the option is malformed, or not allowed now.
pub const REP_ERR_INVALID: u32 = REP_ERR | 3;
/// Option reply: the platform does not support it.
pub const REP_ERR_PLATFORM: u32 = REP_ERR | 4;
/// Option reply: TLS is required.
pub const REP_ERR_TLS_REQD: u32 = REP_ERR | 5;
/// Option reply: unknown export.
pub const REP_ERR_UNKNOWN: u32 = REP_ERR | 6;
/// Option reply: the server is shutting down.
pub const REP_ERR_SHUTDOWN: u32 = REP_ERR | 7;
/// Option reply: a query for block sizes is required.
pub const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_ERR | 8;
/// Option reply: the option is too large.
pub const REP_ERR_TOO_BIG: u32 = REP_ERR | 9;
/// Option reply: extended headers are required.
pub const REP_ERR_EXT_HEADER_REQD: u32 = REP_ERR | 10;

/// Information: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Information: canonical name of the export.
pub const INFO_NAME: u16 = 1;
/// Information: human-readable description.
pub const INFO_DESCRIPTION: u16 = 2;
/// Information: block sizes.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flag: always set.
pub const FLAG_HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: the export is read-only.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// Transmission flag: FLUSH is supported.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: FUA is supported.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// Transmission flag: the disk is rotational.
pub const FLAG_ROTATIONAL: u16 = 1 << 4;
/// Transmission flag: TRIM is supported.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: WRITE_ZEROES is supported.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: DF is supported.
pub const FLAG_SEND_DF: u16 = 1 << 7;
/// Transmission flag: a flush on one connection covers the writes of all.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag: CACHE is supported.
pub const FLAG_SEND_CACHE: u16 = 1 << 10;
/// Transmission flag: FAST_ZERO is supported.
pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;
/// Transmission flag: BLOCK_STATUS may have a payload.
pub const FLAG_BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write.
pub const CMD_WRITE: u16 = 1;
/// Command: disconnect.
pub const CMD_DISC: u16 = 2;
/// Command: flush.
pub const CMD_FLUSH: u16 = 3;
/// Command: discard.
pub const CMD_TRIM: u16 = 4;
/// Command: read ahead.
pub const CMD_CACHE: u16 = 5;
/// Command: write zeroes.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Command: return which parts are holes or zeroes.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Command flag: durable before the reply.
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// Command flag of WRITE_ZEROES: the range stays allocated.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flag of READ: at most one data chunk.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// Command flag of BLOCK_STATUS: at most one extent.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Command flag of WRITE_ZEROES: fail if it is not fast.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;
/// Command flag with extended headers: the length is that of a payload.
pub const CMD_FLAG_PAYLOAD_LEN: u16 = 1 << 5;

/// Flag of a chunk: last chunk of its reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;
/// Chunk: no content.
pub const REPLY_NONE: u16 = 0;
/// Chunk: data.
pub const REPLY_OFFSET_DATA: u16 = 1;
/// Chunk: zeroes.
pub const REPLY_OFFSET_HOLE: u16 = 2;
/// Chunk: extents, with lengths of 32 bits.
pub const REPLY_BLOCK_STATUS: u16 = 5;
/// Chunk: extents, with lengths of 64 bits.
pub const REPLY_BLOCK_STATUS_EXT: u16 = 6;
/// Bit that all error chunks have.
pub const REPLY_ERR: u16 = 1 << 15;
/// Chunk: an error.
pub const REPLY_ERROR: u16 = REPLY_ERR | 1;
/// Chunk: an error with an offset.
pub const REPLY_ERROR_OFFSET: u16 = REPLY_ERR | 2;

/// Metadata context of the protocol document.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// State of an extent in `base:allocation`: not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// State of an extent in `base:allocation`: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;
