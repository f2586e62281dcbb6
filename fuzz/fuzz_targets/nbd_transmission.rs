//! Fuzzes requests and replies. An accepted request is within the export and of an offered kind; a
//! refused request keeps the stream in step; and a client can parse every reply.
//!
//! An input chooses an export and a framing, followed by requests with replies to them. Fields are
//! drawn near values that matter, or are raw.

#![no_main]

use forebay_fuzz::{Choices, Feature, reach, start};
use forebay_nbd::export::{Abilities, ExportInfo};
use forebay_nbd::server::{
    CloseReason, Command, Handshake, NbdError, Next, Request, TlsPolicy, Transmission,
};
use forebay_nbd::wire::numbers::*;
use forebay_nbd::wire::{
    BlockSizes, ChunkHeader, ContextRequest, ErrorChunk, ExportRequest, Framing, OptionHeader,
    RequestHeader, SimpleReply, StatusChunk,
};
use libfuzzer_sys::fuzz_target;

/// `taken` is a command and a framing; `refused` is an error.
const WANTED: &[Feature] = &[
    ("taken", 0x00),
    ("taken", 0x01),
    ("taken", 0x02),
    ("taken", 0x10),
    ("taken", 0x11),
    ("taken", 0x12),
    ("taken", 0x20),
    ("taken", 0x30),
    ("taken", 0x40),
    ("taken", 0x42),
    ("taken", 0x50),
    ("taken", 0x60),
    ("taken", 0x62),
    ("taken", 0x71),
    ("taken", 0x72),
    ("refused", 1),
    ("refused", 22),
    ("refused", 28),
    ("refused", 75),
    ("closed", 0),
    ("closed", 1),
    ("payload-of-refused", 0),
    ("fast-zero", 0),
    ("late-error", 0),
    ("error", 0),
    ("error", 1),
    ("error", 2),
    ("extents-one", 1),
    ("extents-many", 2),
];

struct Session {
    export: ExportInfo,
    on: Transmission,
    framing: Framing,
}

fn connect(choices: &mut Choices<'_>) -> Session {
    let framing =
        [Framing::Simple, Framing::Structured, Framing::Extended][usize::from(choices.byte()) % 3];
    let can = Abilities::of_flags(!choices.number(2) as u16 & !FLAG_READ_ONLY);
    let can = Abilities { read_only: choices.byte() & 7 == 1, ..can };
    let min = 1 << (choices.byte() % 17);
    let sizes = [1 << 30, 1 << 40, u64::MAX, 513, 0, 1 << 32];
    let size_bytes = sizes[usize::from(choices.byte()) % sizes.len()];
    let max = [1 << 25, 1 << 20, u32::MAX, 1 << 16][usize::from(choices.byte()) % 4];
    let block_size = BlockSizes { min, preferred: 1 << 16, max };
    let [name, description] = [String::from("a"), String::new()];
    let export = ExportInfo { name, description, size_bytes, can, block_size };
    let mut stream = vec![0, 0, 0, 3];
    let option = match framing {
        Framing::Simple => OPT_LIST,
        Framing::Structured => OPT_STRUCTURED_REPLY,
        Framing::Extended => OPT_EXTENDED_HEADERS,
    };
    OptionHeader::emit_with(option, b"", &mut stream);
    let query = BASE_ALLOCATION.as_bytes();
    ContextRequest::emit(OPT_SET_META_CONTEXT, b"a", &[query], &mut stream);
    ExportRequest::emit(OPT_GO, b"a", &[], &mut stream);
    let mut handshake = Handshake::new(TlsPolicy::Off, &mut Vec::new());
    let exports = [export.clone()];
    match handshake.feed(&exports, &stream, &mut Vec::new()).next {
        Next::Transmission(on) => Session { export, on, framing },
        other => panic!("{other:?}"),
    }
}

/// Returns a number near one that matters, or a raw one.
fn near(choices: &mut Choices<'_>, session: &Session) -> u64 {
    let ExportInfo { size_bytes, block_size, .. } = &session.export;
    let [min, max] = [u64::from(block_size.min), u64::from(block_size.max)];
    let shape = choices.byte();
    let base = match shape & 15 {
        0 => 0,
        1 => min,
        2 => *size_bytes,
        3 => size_bytes.wrapping_sub(min) & !(min - 1),
        4 => max,
        5 => u64::from(PAYLOAD_DEFAULT_MAX),
        6 => u64::MAX,
        7 => 1 << 32,
        8 => size_bytes / 2 & !(min - 1),
        9..=12 => u64::from(choices.byte()) * min,
        _ => choices.number(8),
    };
    match shape >> 4 {
        1 => base.wrapping_add(1),
        2 => base.wrapping_sub(1),
        3 => base.wrapping_add(min),
        4 => base.wrapping_sub(min),
        _ => base,
    }
}

fn request(choices: &mut Choices<'_>, session: &Session) -> (RequestHeader, Vec<u8>) {
    let command = u16::from(choices.byte()) % 9;
    let mut flags = match choices.byte() {
        0..=63 => 0,
        64..=127 => CMD_FLAG_FUA,
        bits @ 128..=223 => u16::from(bits) & 0x3f,
        _ => choices.number(2) as u16,
    };
    if command == CMD_WRITE && session.framing == Framing::Extended {
        flags ^= CMD_FLAG_PAYLOAD_LEN;
    }
    let [offset, len] = [near(choices, session), near(choices, session)];
    let mut header = RequestHeader { flags, command, cookie: choices.number(2), offset, len };
    let mut bytes = Vec::new();
    if session.framing == Framing::Extended {
        header.emit_extended(&mut bytes);
    } else {
        header.len &= u64::from(u32::MAX);
        header.emit_compact(&mut bytes);
    }
    (header, bytes)
}

/// Checks that an accepted request can be executed as it is, and that a refused one keeps the
/// stream in step.
fn check(session: &Session, header: &RequestHeader, parsed: &Result<Request, CloseReason>) {
    let Session { export, framing, .. } = session;
    let has_payload = match framing {
        Framing::Extended => header.flags & CMD_FLAG_PAYLOAD_LEN != 0,
        _ => header.command == CMD_WRITE,
    };
    // A chunk's length has 32 bits and includes 8 further bytes.
    let payload_max = export.block_size.max.min(u32::MAX - 8);
    let bearable = u64::from(payload_max.max(PAYLOAD_DEFAULT_MAX));
    let rq = match parsed {
        Ok(rq) => rq,
        Err(CloseReason::PayloadTooLong(len)) => {
            assert!(has_payload && *len == header.len && *len > bearable);
            return reach("closed", 0);
        }
        Err(other) => panic!("{other}"),
    };
    assert_eq!((rq.cookie, rq.offset, rq.len), (header.cookie, header.offset, header.len));
    let is_leaving = header.command == CMD_DISC;
    let payload_len = if has_payload && !is_leaving { header.len } else { 0 };
    assert_eq!(u64::from(rq.payload_len), payload_len);
    match rq.command {
        Err(refused) => {
            assert!(!is_leaving && !refused.message.is_empty());
            assert!(refused.error != NbdError::Perm || export.can.read_only);
            reach("refused", u64::from(refused.error.number()));
            if rq.payload_len > 0 {
                reach("payload-of-refused", 0);
            }
        }
        Ok(command) => {
            reach("taken", u64::from(header.command) << 4 | *framing as u64);
            check_taken(session, header, command);
        }
    }
}

fn check_taken(session: &Session, header: &RequestHeader, command: Command) {
    let ExportInfo { size_bytes, can, block_size, .. } = session.export;
    let RequestHeader { flags, offset, len, .. } = *header;
    let flag = |bit| flags & bit != 0;
    assert!(command == Command::Disconnect || !flag(CMD_FLAG_FUA) || can.fua);
    let is_extended = session.framing == Framing::Extended;
    let (is_offered, is_write, has_data) = match command {
        Command::Disconnect => return,
        Command::Flush => {
            assert!(can.flush && offset == 0 && len == 0);
            return;
        }
        Command::Read { df } => {
            assert_eq!(df, flag(CMD_FLAG_DF));
            (!df || session.framing != Framing::Simple, false, true)
        }
        Command::Write { fua } => {
            assert_eq!(fua, flag(CMD_FLAG_FUA));
            (flag(CMD_FLAG_PAYLOAD_LEN) == is_extended, true, true)
        }
        Command::Trim { fua } => {
            assert_eq!(fua, flag(CMD_FLAG_FUA));
            (can.trim, true, false)
        }
        Command::Cache => (can.cache, false, false),
        Command::WriteZeroes { fua, no_hole, fast } => {
            assert_eq!((fua, no_hole), (flag(CMD_FLAG_FUA), flag(CMD_FLAG_NO_HOLE)));
            assert_eq!(fast, flag(CMD_FLAG_FAST_ZERO));
            if fast {
                reach("fast-zero", 0);
            }
            (can.write_zeroes && (!fast || can.fast_zero), true, false)
        }
        Command::BlockStatus { one } => {
            assert_eq!(one, flag(CMD_FLAG_REQ_ONE));
            (session.framing != Framing::Simple, false, false)
        }
    };
    assert!(is_offered && !(is_write && can.read_only), "{command:?} {can:?}");
    assert!(len > 0 && offset.checked_add(len).is_some_and(|end| end <= size_bytes));
    let min = u64::from(block_size.min);
    assert!(offset % min == 0 && len % min == 0);
    assert!(!has_data || len <= u64::from(block_size.max));
}

/// Parses the reply to one request as a client, and checks that it is complete and nothing follows.
fn read_reply(session: &Session, rq: &Request, mut bytes: &[u8], expected: Option<NbdError>) {
    let is_read = matches!(rq.command, Ok(Command::Read { .. }));
    let (mut is_done, mut covered, mut error, mut nr_content) = (false, 0, None, 0);
    while !bytes.is_empty() {
        assert!(!is_done, "bytes behind the end");
        if let Some(simple) = SimpleReply::parse(bytes) {
            assert_eq!(simple.cookie, rq.cookie);
            assert!(session.framing != Framing::Extended);
            assert!(session.framing == Framing::Simple || !is_read);
            bytes = &bytes[SimpleReply::LEN..];
            (is_done, error) = (true, Some(simple.error).filter(|&number| number != 0));
            if session.framing == Framing::Simple && is_read && error.is_none() {
                // The test sends one byte of data for each chunk, not `len` bytes.
                return;
            }
            continue;
        }
        let (chunk, header_len) = if session.framing == Framing::Extended {
            (ChunkHeader::parse_extended(bytes).unwrap(), ChunkHeader::EXTENDED_LEN)
        } else {
            (ChunkHeader::parse_structured(bytes).unwrap(), ChunkHeader::STRUCTURED_LEN)
        };
        assert_eq!(chunk.cookie, rq.cookie);
        is_done = chunk.flags == REPLY_FLAG_DONE;
        bytes = &bytes[header_len..];
        match chunk.kind {
            REPLY_NONE => assert!(is_done && chunk.len == 0),
            REPLY_OFFSET_DATA => {
                let at = u64::from_be_bytes(*bytes.first_chunk().unwrap());
                assert_eq!(at, rq.offset + covered);
                covered += chunk.len - 8;
                nr_content += 1;
                bytes = &bytes[8..];
            }
            kind if kind & REPLY_ERR != 0 => {
                let payload = &bytes[..chunk.len as usize];
                let chunk = ErrorChunk::parse(kind, payload).unwrap();
                assert!(std::str::from_utf8(chunk.message).is_ok());
                assert!(
                    chunk.message.len() <= STRING_MAX && payload.len() == chunk.message.len() + 6
                );
                error = Some(chunk.error);
                bytes = &bytes[payload.len()..];
            }
            kind => {
                let payload = &bytes[..chunk.len as usize];
                let status = StatusChunk::parse(kind, payload).unwrap();
                let min = u64::from(session.export.block_size.min);
                assert!(status.extents.into_iter().all(|(len, _)| len % min == 0));
                let nr = status.extents.count();
                assert!(status.extents.map(|(len, _)| len).sum::<u64>() <= rq.len);
                let is_one = rq.command == Ok(Command::BlockStatus { one: true });
                assert!(nr > 0 && !(is_one && nr > 1));
                reach(if is_one { "extents-one" } else { "extents-many" }, nr.min(2) as u64);
                bytes = &bytes[payload.len()..];
            }
        }
    }
    assert!(is_done);
    assert_eq!(error, expected.map(NbdError::number));
    assert!(error.is_some() || !is_read || covered == rq.len);
    assert!(nr_content <= 1 || rq.command != Ok(Command::Read { df: true }));
}

fn reply_to_read(choices: &mut Choices<'_>, session: &Session, rq: &Request, df: bool) {
    let Session { on, .. } = session;
    let mut out = Vec::new();
    let nr_parts = if df { 1 } else { u64::from(choices.byte() % 3) + 1 };
    let mut at = rq.offset;
    let end = rq.offset + rq.len;
    for part in 0..nr_parts {
        let len = if part + 1 == nr_parts { end - at } else { (end - at) / 2 };
        if len == 0 {
            continue;
        }
        let is_last = at + len == end && choices.byte() & 1 == 0;
        let len = u32::try_from(len).unwrap();
        let head = on.data(rq, at, len, at == rq.offset, is_last);
        out.extend_from_slice(head.as_slice());
        at += u64::from(len);
        if is_last {
            return read_reply(session, rq, &out, None);
        }
        if on.can_fail_late() && choices.byte() & 7 == 0 {
            reach("late-error", 0);
            on.error(rq, NbdError::Io, "half of it", &mut out);
            return read_reply(session, rq, &out, Some(NbdError::Io));
        }
    }
    if session.framing != Framing::Simple {
        out.extend_from_slice(on.done(rq).as_slice());
    }
    read_reply(session, rq, &out, None);
}

fn reply(choices: &mut Choices<'_>, session: &Session, rq: &Request) {
    let Session { on, .. } = session;
    let mut out = Vec::new();
    let failure = match rq.command {
        Ok(Command::Disconnect) => return,
        Err(refused) => Some(refused.error),
        Ok(_) if choices.byte() & 7 == 0 => {
            Some(NbdError::ALL[usize::from(choices.byte()) % NbdError::ALL.len()])
        }
        Ok(_) => None,
    };
    if let Some(error) = failure {
        let text = String::from_utf8_lossy(choices.bytes(40)).repeat(usize::from(choices.byte()));
        on.error(rq, error, &text, &mut out);
        let is_fast = matches!(rq.command, Ok(Command::WriteZeroes { fast: true, .. }));
        let is_told = error != NbdError::NotSup || is_fast;
        let error = if is_told { error } else { NbdError::Inval };
        reach("error", session.framing as u64);
        return read_reply(session, rq, &out, Some(error));
    }
    match rq.command {
        Ok(Command::Read { df }) => return reply_to_read(choices, session, rq, df),
        Ok(Command::BlockStatus { .. }) => {
            let nr = choices.byte() % 8;
            let extents: Vec<_> =
                (0..nr).map(|_| (near(choices, session), u32::from(choices.byte() & 3))).collect();
            on.extents(rq, &extents, &mut out);
        }
        _ => out.extend_from_slice(on.done(rq).as_slice()),
    }
    read_reply(session, rq, &out, None);
}

fn run(input: &[u8]) {
    let mut choices = Choices(input);
    let session = connect(&mut choices);
    while !choices.is_empty() {
        let (header, mut bytes) = request(&mut choices, &session);
        assert_eq!(bytes.len(), session.on.header_len());
        let parsed = session.on.parse(&bytes);
        check(&session, &header, &parsed);
        if let Ok(rq) = parsed {
            reply(&mut choices, &session, &rq);
        }
        // Shifted by one byte, it is not a valid request.
        bytes.rotate_left(1);
        assert_eq!(session.on.parse(&bytes), Err(CloseReason::RequestMagic));
        reach("closed", 1);
    }
}

/// Returns seeds for each command in each framing, with and without each flag, and for special
/// shapes.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for framing in 0..3 {
        let mut add = |read_only: u8, size: u8, body: &[u8]| {
            seeds.push([&[framing, 0, 0, read_only, 9, size, 0], body].concat());
        };
        for command in 0..9 {
            for flags in [0, 64, 130, 132, 136, 144, 192] {
                let body = [command, flags, 9, 1, 9, 2, 0, 1, 1, 1, 1, 1];
                add(0, 0, &body.repeat(2));
                add(1, 0, &body);
            }
        }
        // A flush; a read in one chunk that is too long; two extents, and one.
        add(0, 0, &[3, 0, 0, 0, 0, 1, 1]);
        add(0, 1, &[0, 132, 0, 0x34, 0, 1]);
        let extents = [2, 9, 1, 3, 9, 2, 0];
        add(0, 0, &[&[7, 0, 9, 0, 9, 8, 0, 1, 1][..], &extents].concat());
        add(0, 0, &[&[7, 136, 9, 0, 9, 8, 0, 1, 1][..], &extents].concat());
    }
    seeds
}

const CORPUS: &str = include_str!("../corpus-seeds/nbd_transmission.hex");

fuzz_target!(init: start(WANTED, &seeds(), CORPUS), |input: &[u8]| run(input));
