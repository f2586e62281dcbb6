//! Fuzzes the NBD handshake. The server answers any client stream option by option and in order,
//! with the same answers in any segmentation, and buffers little.
//!
//! An input is either the raw stream, or a list of options encoded with correct or wrong lengths.
//! So the fuzzer need not find the magic numbers and lengths by chance.

#![no_main]

use forebay_fuzz::{Choices, Feature, reach, start};
use forebay_nbd::export::{Abilities, ExportInfo};
use forebay_nbd::server::{CloseReason, Handshake, Next, TlsPolicy, Transmission};
use forebay_nbd::wire::numbers::*;
use forebay_nbd::wire::{
    BlockSizes, ContextRequest, ExportRequest, Framing, Info, MetaContext, OptionHeader,
    OptionReplyHeader, RequestHeader, ServerEntry, Sink,
};
use libfuzzer_sys::fuzz_target;

/// How the handshake ended; `answer` is an option and the low byte of its final reply.
const WANTED: &[Feature] = &[
    ("end-more", 0),
    ("end-tls", 0),
    ("end-transmission", 0),
    ("end-transmission", 1),
    ("end-transmission", 2),
    ("contexts", 0),
    ("contexts", 1),
    ("zeroes", 0),
    ("zeroes", 1),
    ("close", 0),
    ("close", 1),
    ("close", 2),
    ("close", 3),
    ("close", 5),
    ("close", 6),
    ("close", 7),
    ("close", 8),
    ("answer", answer(OPT_LIST, REP_ACK)),
    ("answer", answer(OPT_LIST, REP_ERR_INVALID)),
    ("answer", answer(OPT_LIST, REP_ERR_TLS_REQD)),
    ("answer", answer(OPT_STARTTLS, REP_ACK)),
    ("answer", answer(OPT_STARTTLS, REP_ERR_POLICY)),
    ("answer", answer(OPT_STARTTLS, REP_ERR_INVALID)),
    ("answer", answer(OPT_INFO, REP_ACK)),
    ("answer", answer(OPT_INFO, REP_ERR_INVALID)),
    ("answer", answer(OPT_GO, REP_ACK)),
    ("answer", answer(OPT_GO, REP_ERR_UNKNOWN)),
    ("answer", answer(OPT_GO, REP_ERR_TOO_BIG)),
    ("answer", answer(OPT_STRUCTURED_REPLY, REP_ACK)),
    ("answer", answer(OPT_STRUCTURED_REPLY, REP_ERR_EXT_HEADER_REQD)),
    ("answer", answer(OPT_LIST_META_CONTEXT, REP_ACK)),
    ("answer", answer(OPT_SET_META_CONTEXT, REP_ACK)),
    ("answer", answer(OPT_SET_META_CONTEXT, REP_ERR_INVALID)),
    ("answer", answer(OPT_SET_META_CONTEXT, REP_ERR_UNKNOWN)),
    ("answer", answer(OPT_EXTENDED_HEADERS, REP_ACK)),
    ("answer", answer(OPT_EXTENDED_HEADERS, REP_ERR_INVALID)),
    ("answer", answer(12, REP_ERR_UNSUP)),
];

const fn answer(option: u32, kind: u32) -> u64 {
    (option as u64) << 8 | (kind & 0xff) as u64
}

const NAMES: [&str; 4] = ["a", "bb", "", "nowhere"];
const QUERIES: [&str; 4] = ["base:allocation", "base:", "qemu:dirty", "no colon"];

fn exports() -> [ExportInfo; 2] {
    ["a", "bb"].map(|name| ExportInfo {
        name: name.to_string(),
        description: format!("{name} {name}"),
        size_bytes: 1 << 40,
        can: Abilities::of_flags(u16::MAX & !FLAG_READ_ONLY),
        block_size: BlockSizes { min: 1, preferred: 4096, max: 1 << 25 },
    })
}

/// Encodes an input that is a list of options.
fn written_out(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    stream.put_u32(u32::from(choices.byte() & 7));
    while !choices.is_empty() {
        let option = u32::from(choices.byte()) % 13;
        let shape = choices.byte();
        let nr_bytes = usize::from(choices.byte() % 32);
        let name = NAMES[usize::from(shape >> 4 & 3)].as_bytes();
        match (shape & 7, option) {
            (0, OPT_EXPORT_NAME) => OptionHeader::emit_with(option, name, &mut stream),
            (0..=2, OPT_INFO | OPT_GO) => {
                let infos = choices.bytes(nr_bytes).iter().map(|&byte| u16::from(byte));
                ExportRequest::emit(option, name, &infos.collect::<Vec<_>>(), &mut stream);
            }
            (0..=2, OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT) => {
                let queries = choices.bytes(nr_bytes % 4).iter();
                let queries = queries.map(|&byte| QUERIES[usize::from(byte) % 4].as_bytes());
                ContextRequest::emit(option, name, &queries.collect::<Vec<_>>(), &mut stream);
            }
            (0..=3, _) => OptionHeader { option, len: 0 }.emit(&mut stream),
            (4, _) => OptionHeader::emit_with(option, choices.bytes(nr_bytes), &mut stream),
            // A long option, complete.
            (5, _) => OptionHeader::emit_with(option, &vec![shape; nr_bytes << 10], &mut stream),
            // The announced length differs from the data.
            _ => {
                let len = choices.number(4) as u32 >> (shape >> 3);
                OptionHeader { option, len }.emit(&mut stream);
                stream.put(choices.bytes(nr_bytes));
            }
        }
    }
    stream
}

struct Outcome {
    out: Vec<u8>,
    consumed: usize,
    end: String,
}

/// Feeds the stream in pieces of at most `piece_len` bytes.
fn serve(tls: TlsPolicy, stream: &[u8], piece_len: usize) -> Outcome {
    let exports = exports();
    let mut out = Vec::new();
    let mut handshake = Handshake::new(tls, &mut out);
    let mut is_tls = false;
    let mut consumed = 0;
    loop {
        let rest = &stream[consumed..];
        let piece = &rest[..rest.len().min(piece_len)];
        let fed = handshake.feed(&exports, piece, &mut out);
        assert!(fed.consumed <= piece.len());
        consumed += fed.consumed;
        let end = match fed.next {
            Next::More if consumed < stream.len() => {
                assert!(fed.consumed > 0, "no progress");
                continue;
            }
            Next::More => {
                reach("end-more", 0);
                String::from("more")
            }
            Next::StartTls => {
                assert!(tls != TlsPolicy::Off && !is_tls);
                reach("end-tls", 0);
                handshake.tls_started();
                is_tls = true;
                continue;
            }
            Next::Transmission(transmission) => {
                assert!(tls != TlsPolicy::Require || is_tls, "without TLS");
                assert!(transmission.export() < exports.len());
                let framing = transmission.framing();
                let has_contexts = has_contexts(&transmission);
                assert!(!has_contexts || framing != Framing::Simple);
                reach("end-transmission", framing as u64);
                reach("contexts", u64::from(has_contexts));
                format!("{transmission:?}")
            }
            Next::Close(reason) => {
                reach("close", class(reason));
                reason.to_string()
            }
        };
        return Outcome { out, consumed, end };
    }
}

/// Returns whether BLOCK_STATUS was negotiated. Without it, the server refuses the request before
/// it checks the length.
fn has_contexts(transmission: &Transmission) -> bool {
    let command = CMD_BLOCK_STATUS;
    let header = RequestHeader { flags: 0, command, cookie: 0, offset: 0, len: 0 };
    let mut bytes = Vec::new();
    match transmission.framing() {
        Framing::Extended => header.emit_extended(&mut bytes),
        Framing::Simple | Framing::Structured => header.emit_compact(&mut bytes),
    }
    let refused = transmission.parse(&bytes).unwrap().command.unwrap_err();
    match refused.message {
        "the length is 0" => true,
        "the export does not support this command" => false,
        other => panic!("{other}"),
    }
}

fn class(reason: CloseReason) -> u64 {
    match reason {
        CloseReason::Aborted => 0,
        CloseReason::ClientFlags(_) => 1,
        CloseReason::OptionMagic => 2,
        CloseReason::OptionTooLong { .. } => 3,
        CloseReason::TooManyOptions => 4,
        CloseReason::NotFixedNewstyle(_) => 5,
        CloseReason::UnknownExport => 6,
        CloseReason::TlsRequired => 7,
        CloseReason::ExportNameExtended => 8,
        other => panic!("{other} in a handshake that is fed as it should be"),
    }
}

/// Returns the complete options in a stream, in order. It parses lengths only.
fn options(stream: &[u8]) -> Vec<u32> {
    let mut options = Vec::new();
    let mut rest = stream.get(4..).unwrap_or_default();
    while let Some(header) = OptionHeader::parse(rest) {
        let Some(behind) = rest.get(OptionHeader::LEN + header.len as usize..) else { break };
        options.push(header.option);
        rest = behind;
    }
    options
}

/// Checks that every reply is well-formed, and that each option has one final reply, in order.
fn check(stream: &[u8], outcome: &Outcome) {
    let mut rest = &outcome.out[GREETING_LEN..];
    let mut asked = options(&stream[..outcome.consumed]).into_iter();
    while rest.len() >= OptionReplyHeader::LEN {
        let Some(header) = OptionReplyHeader::parse(rest) else { break };
        let (data, behind) = rest[OptionReplyHeader::LEN..].split_at(header.len as usize);
        rest = behind;
        match header.kind {
            REP_SERVER => assert!(ServerEntry::parse(data).is_some()),
            REP_INFO => assert!(Info::parse(data).is_some()),
            REP_META_CONTEXT => assert!(MetaContext::parse(data).is_some()),
            REP_ACK => assert!(data.is_empty()),
            kind => {
                assert!(kind & REP_ERR != 0 && kind <= REP_ERR_EXT_HEADER_REQD);
                assert!(data.len() <= STRING_MAX && std::str::from_utf8(data).is_ok());
            }
        }
        if header.kind == REP_ACK || header.kind & REP_ERR != 0 {
            assert_eq!(asked.next(), Some(header.option), "out of step");
            reach("answer", answer(header.option.min(12), header.kind));
        }
    }
    // The remaining bytes are the answer to EXPORT_NAME, which has no header.
    if !rest.is_empty() {
        assert!(rest.len() == 10 || rest.len() == 10 + EXPORT_NAME_ZEROES);
        assert_eq!(asked.next(), Some(OPT_EXPORT_NAME));
        reach("zeroes", u64::from(rest.len() > 10));
    }
    let nr_unanswered = asked.count();
    let is_silent = nr_unanswered == 1 && !outcome.end.starts_with("more");
    assert!(nr_unanswered == 0 || is_silent, "{nr_unanswered} without an answer");
}

fn run(input: &[u8]) {
    let mut choices = Choices(input);
    let tls = [TlsPolicy::Off, TlsPolicy::On, TlsPolicy::Require][usize::from(choices.byte()) % 3];
    let piece_len = usize::from(choices.byte()) + 1;
    let stream =
        if choices.byte() & 1 == 0 { written_out(&mut choices) } else { choices.0.to_vec() };
    let whole = serve(tls, &stream, usize::MAX);
    check(&stream, &whole);
    let pieces = serve(tls, &stream, piece_len);
    assert_eq!(whole.out, pieces.out);
    assert_eq!((whole.consumed, whole.end), (pieces.consumed, pieces.end));
}

/// Returns seeds for each option in each state, and for each way to end the handshake.
fn seeds() -> Vec<Vec<u8>> {
    const GO: [u8; 5] = [7, 0, 2, 0, 3];
    let mut seeds = Vec::new();
    for tls in 0..3 {
        let mut add = |flags: u8, options: &[&[u8]]| {
            seeds.push([&[tls, 9, 0, flags], &options.concat()[..]].concat());
        };
        for option in 0..13 {
            for before in [[5, 0, 0], [8, 0, 0], [11, 0, 0]] {
                add(3, &[&before, &[option, 0, 0], &GO]);
                add(3, &[&before, &[option, 0x30, 0], &GO]);
                add(3, &[&before, &[option, 4, 3, 1, 2, 3], &GO]);
            }
        }
        add(3, &[&[8, 0, 0, 10, 0, 1, 0], &GO]);
        add(3, &[&[11, 0, 0, 10, 0, 1, 0, 9, 0, 2, 1, 2], &GO]);
        add(3, &[&[7, 5, 31], &GO]);
        add(1, &[&[1, 0, 0]]);
        add(2, &[&[3, 0, 0]]);
        add(4, &[]);
        add(3, &[&[12, 6, 0, 255, 255, 255, 255]]);
    }
    let mut stream = vec![0, 3, 1];
    stream.put_u32(3);
    OptionHeader::emit_with(OPT_LIST, b"", &mut stream);
    ExportRequest::emit(OPT_GO, b"a", &[INFO_NAME, INFO_BLOCK_SIZE], &mut stream);
    seeds.push(stream);
    seeds.push(b"\0\x03\x01\0\0\0\x03GET / HTTP/1.1\r\n\r\n".to_vec());
    seeds
}

const CORPUS: &str = include_str!("../corpus-seeds/nbd_handshake.hex");

fuzz_target!(init: start(WANTED, &seeds(), CORPUS), |input: &[u8]| run(input));
