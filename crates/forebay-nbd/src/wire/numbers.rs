//! The protocol's numbers, under their names in the NBD protocol document without `NBD_`.
//!
//! They are plain numbers and no enums: a peer may send any other, which is not an error of
//! reading.

/// The longest string, in bytes: names, descriptions, queries, messages.
pub const STRING_MAX: usize = 4096;
/// The largest payload that a peer must bear if it heard of no other limit, in bytes.
pub const PAYLOAD_DEFAULT_MAX: u32 = 1 << 25;
/// The port that IANA has given to NBD.
pub const PORT: u16 = 10809;

/// The first word of the greeting: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// The second word of the greeting, and the first of each option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The second word of the greeting of servers that know no options.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// The first word of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The first word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The first word of a request with an extended header.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// The first word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The first word of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// The first word of a chunk with an extended header.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// How long the server's greeting is, in bytes.
pub const GREETING_LEN: usize = 18;
/// How many zeroes follow the answer to EXPORT_NAME, unless NO_ZEROES was agreed on.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Handshake flag, of both sides: fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag, of both sides: no zeroes after the answer to EXPORT_NAME.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Option: choose an export and go; no error can be told.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: the client gives up.
pub const OPT_ABORT: u32 = 2;
/// Option: list the exports.
pub const OPT_LIST: u32 = 3;
/// Option: go on under TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Option: tell of an export.
pub const OPT_INFO: u32 = 6;
/// Option: tell of an export and go.
pub const OPT_GO: u32 = 7;
/// Option: structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: which metadata contexts there are.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: select metadata contexts.
pub const OPT_SET_META_CONTEXT: u32 = 10;
/// Option: extended headers.
pub const OPT_EXTENDED_HEADERS: u32 = 11;

/// Option reply: yes, and that is all.
pub const REP_ACK: u32 = 1;
/// Option reply: an export's name and description.
pub const REP_SERVER: u32 = 2;
/// Option reply: something about an export.
pub const REP_INFO: u32 = 3;
/// Option reply: a metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// The bit that all option replies have which are errors.
pub const REP_ERR: u32 = 1 << 31;
/// Option reply: this option is unknown.
pub const REP_ERR_UNSUP: u32 = REP_ERR | 1;
/// Option reply: the server was told not to.
pub const REP_ERR_POLICY: u32 = REP_ERR | 2;
/// Option reply: malformed, or not now.
pub const REP_ERR_INVALID: u32 = REP_ERR | 3;
/// Option reply: not on this machine.
pub const REP_ERR_PLATFORM: u32 = REP_ERR | 4;
/// Option reply: not without TLS.
pub const REP_ERR_TLS_REQD: u32 = REP_ERR | 5;
/// Option reply: no such export.
pub const REP_ERR_UNKNOWN: u32 = REP_ERR | 6;
/// Option reply: the server is about to end.
pub const REP_ERR_SHUTDOWN: u32 = REP_ERR | 7;
/// Option reply: ask for block sizes first.
pub const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_ERR | 8;
/// Option reply: too large.
pub const REP_ERR_TOO_BIG: u32 = REP_ERR | 9;
/// Option reply: only with extended headers.
pub const REP_ERR_EXT_HEADER_REQD: u32 = REP_ERR | 10;

/// Information: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Information: the name that the server uses.
pub const INFO_NAME: u16 = 1;
/// Information: a description for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Information: the three block sizes.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flag: always set.
pub const FLAG_HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: no writes.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// Transmission flag: FLUSH is known.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: FUA is known.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// Transmission flag: a disk that turns.
pub const FLAG_ROTATIONAL: u16 = 1 << 4;
/// Transmission flag: TRIM is known.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: WRITE_ZEROES is known.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: DF is known.
pub const FLAG_SEND_DF: u16 = 1 << 7;
/// Transmission flag: a flush on one connection covers all.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag: CACHE is known.
pub const FLAG_SEND_CACHE: u16 = 1 << 10;
/// Transmission flag: FAST_ZERO is known.
pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;
/// Transmission flag: BLOCK_STATUS may have a payload.
pub const FLAG_BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write.
pub const CMD_WRITE: u16 = 1;
/// Command: the client leaves.
pub const CMD_DISC: u16 = 2;
/// Command: flush.
pub const CMD_FLUSH: u16 = 3;
/// Command: discard.
pub const CMD_TRIM: u16 = 4;
/// Command: read ahead.
pub const CMD_CACHE: u16 = 5;
/// Command: write zeroes.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Command: which parts are holes or zeroes.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Command flag: durable before the reply.
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// Command flag of WRITE_ZEROES: no hole.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flag of READ: one chunk of data at most.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// Command flag of BLOCK_STATUS: one extent.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Command flag of WRITE_ZEROES: fast, or not at all.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;
/// Command flag with extended headers: the length is that of a payload.
pub const CMD_FLAG_PAYLOAD_LEN: u16 = 1 << 5;

/// Flag of a chunk: the last of its reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;
/// Chunk: nothing but the end.
pub const REPLY_NONE: u16 = 0;
/// Chunk: data.
pub const REPLY_OFFSET_DATA: u16 = 1;
/// Chunk: a stretch of zeroes.
pub const REPLY_OFFSET_HOLE: u16 = 2;
/// Chunk: extents, with lengths of 32 bits.
pub const REPLY_BLOCK_STATUS: u16 = 5;
/// Chunk: extents, with lengths of 64 bits.
pub const REPLY_BLOCK_STATUS_EXT: u16 = 6;
/// The bit that all chunks have which are errors.
pub const REPLY_ERR: u16 = 1 << 15;
/// Chunk: an error.
pub const REPLY_ERROR: u16 = REPLY_ERR | 1;
/// Chunk: an error, and where.
pub const REPLY_ERROR_OFFSET: u16 = REPLY_ERR | 2;

/// The one metadata context of the protocol document.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// State of an extent in `base:allocation`: not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// State of an extent in `base:allocation`: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;
