//! Servers that violate the protocol: the client returns a reason, and does not panic.

use super::*;
use crate::client::{
    Broken, Command, Event, Handshake, HandshakeError, Next, Request, Transmission,
};
use crate::wire::numbers as wire;
use crate::wire::{
    ChunkHeader, ErrorChunk, Hole, Info, MetaContext, OptionReplyHeader, SimpleReply, Sink,
};
use alloc::vec;
use alloc::vec::Vec;

fn greeting(flags: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(wire::INIT_MAGIC);
    bytes.put_u64(wire::OPTION_MAGIC);
    bytes.put_u16(flags);
    bytes
}

const FIXED: u16 = wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES;

/// Feeds these replies to a client: the option, type and data of each.
fn negotiate(answers: &[(u32, u32, &[u8])]) -> Result<Next, HandshakeError> {
    let mut client = Handshake::new("disk", false);
    let mut out = Vec::new();
    let mut bytes = greeting(FIXED);
    for &(option, kind, data) in answers {
        OptionReplyHeader::emit_with(option, kind, data, &mut bytes);
    }
    client.feed(&bytes, &mut out).map(|fed| fed.next)
}

/// Returns the data of a reply about the export.
fn info(info: Info<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    info.emit(wire::OPT_GO, &mut bytes);
    bytes.split_off(OptionReplyHeader::LEN)
}

const SIMPLE: (u32, u32, &[u8]) = (wire::OPT_STRUCTURED_REPLY, wire::REP_ERR_UNSUP, &[]);
const STRUCTURED: (u32, u32, &[u8]) = (wire::OPT_STRUCTURED_REPLY, wire::REP_ACK, &[]);
const COMPACT: (u32, u32, &[u8]) = (wire::OPT_EXTENDED_HEADERS, wire::REP_ERR_UNSUP, &[]);
const GONE: (u32, u32, &[u8]) = (wire::OPT_GO, wire::REP_ACK, &[]);

#[test]
fn a_greeting_that_is_none_is_refused() {
    let feed = |bytes: &[u8]| Handshake::new("", false).feed(bytes, &mut Vec::new());
    assert_eq!(feed(b"SSH-2.0-OpenSSH"), Err(HandshakeError::NotNbd));
    assert_eq!(feed(b"H"), Err(HandshakeError::NotNbd), "it may say no more");
    assert_eq!(feed(b"NBDMAGICxxxxxxxx"), Err(HandshakeError::NotNbd));
    let mut old = b"NBDMAGIC".to_vec();
    old.put_u64(wire::OLDSTYLE_MAGIC);
    assert_eq!(feed(&old), Err(HandshakeError::OldStyle));
    for len in 0..18 {
        let fed = feed(&greeting(FIXED)[..len]).expect("it may go on");
        assert_eq!((fed.consumed, fed.next), (0, Next::More));
    }
    // Without fixed newstyle there are no options, and so no TLS.
    let mut client = Handshake::new("", true);
    assert_eq!(client.feed(&greeting(0), &mut Vec::new()), Err(HandshakeError::NoTls));
}

#[test]
fn answers_that_do_not_fit_are_refused() {
    let malformed = |answers: &[(u32, u32, &[u8])], problem: &str| match negotiate(answers) {
        Err(HandshakeError::Malformed { problem: found, .. }) => assert_eq!(found, problem),
        other => panic!("{problem}: {other:?}"),
    };
    malformed(&[(wire::OPT_LIST, wire::REP_ACK, &[])], "it is for another option");
    malformed(&[(wire::OPT_STRUCTURED_REPLY, wire::REP_ACK, &[0])], "an acknowledgement with data");
    malformed(&[(wire::OPT_STRUCTURED_REPLY, 77, &[])], "it has an unknown type");
    malformed(
        &[(wire::OPT_STRUCTURED_REPLY, wire::REP_INFO, &info(Info::Name(b"x")))],
        "it has an unknown type",
    );
    malformed(&[SIMPLE, GONE], "the size of the export is missing");
    malformed(
        &[SIMPLE, (wire::OPT_GO, wire::REP_INFO, &[0, 0, 1])],
        "information with a wrong length",
    );
    let size = |size_bytes| info(Info::Export { size_bytes, flags: wire::FLAG_HAS_FLAGS });
    let twice = (wire::OPT_GO, wire::REP_INFO, &*size(512));
    malformed(&[SIMPLE, twice, twice], "the size of the export twice");
    for (min, preferred, max) in [
        (0, 4096, 1 << 20),
        (3, 4096, 1 << 20),
        (1 << 17, 1 << 17, 1 << 20),
        (512, 256, 1 << 20),
        (1024, 512, 1 << 20),
        (512, 4095, 1 << 20),
        (512, 4096, 1 << 20 | 1),
        (512, 4096, 256),
        (512, 4096, 0),
        (512, 4096, 1024),
        (u32::MAX, u32::MAX, u32::MAX),
    ] {
        let sizes = BlockSizes { min, preferred, max };
        let told = info(Info::BlockSize(sizes));
        let about = [
            (wire::OPT_GO, wire::REP_INFO, &*told),
            (wire::OPT_GO, wire::REP_INFO, &size(1 << 20)),
        ];
        let problem = sizes.check(1 << 20).expect_err("they are impossible");
        malformed(&[SIMPLE, about[0], about[1], GONE], problem);
    }
    let context = |name: &[u8]| {
        let mut bytes = Vec::new();
        MetaContext { id: 1, name }.emit(wire::OPT_SET_META_CONTEXT, &mut bytes);
        bytes.split_off(OptionReplyHeader::LEN)
    };
    fn answer(data: &[u8]) -> (u32, u32, &[u8]) {
        (wire::OPT_SET_META_CONTEXT, wire::REP_META_CONTEXT, data)
    }
    let (good, other) = (context(b"base:allocation"), context(b"qemu:dirty"));
    malformed(&[STRUCTURED, COMPACT, answer(&other)], "a context that was not requested");
    malformed(&[STRUCTURED, COMPACT, answer(&[0])], "a context that was not requested");
    malformed(&[STRUCTURED, COMPACT, answer(&good), answer(&good)], "the same context twice");
    let many = vec![(wire::OPT_GO, wire::REP_INFO, [9, 9].as_slice()); 1001];
    malformed(&[&[SIMPLE], &*many].concat(), "it has too many parts");
    // The length alone is enough: the client does not wait for 4 GiB.
    let mut client = Handshake::new("disk", false);
    let mut bytes = greeting(FIXED);
    let (option, kind) = (wire::OPT_STRUCTURED_REPLY, wire::REP_ERR_UNSUP);
    OptionReplyHeader { option, kind, len: u32::MAX }.emit(&mut bytes);
    let fed = client.feed(&bytes, &mut Vec::new());
    assert!(matches!(fed, Err(HandshakeError::Malformed { problem: "it is too long", .. })));
}

#[test]
fn sizes_are_positive_numbers_of_64_bits() {
    let with = |size_bytes| {
        let flags = wire::FLAG_HAS_FLAGS;
        let size = info(Info::Export { size_bytes, flags });
        negotiate(&[SIMPLE, (wire::OPT_GO, wire::REP_INFO, &size), GONE])
    };
    for size in [1 << 63, u64::MAX] {
        assert_eq!(with(size), Err(HandshakeError::Size(size)));
    }
    assert!(matches!(with(i64::MAX as u64), Ok(Next::Ready(_))));
    assert!(matches!(with(0), Ok(Next::Ready(_))));
    // The same with EXPORT_NAME.
    let mut client = Handshake::new("disk", false);
    let mut bytes = greeting(0);
    bytes.put_u64(u64::MAX);
    bytes.put_u16(1);
    bytes.extend([0; 124]);
    assert_eq!(client.feed(&bytes, &mut Vec::new()), Err(HandshakeError::Size(u64::MAX)));
}

#[test]
fn a_servers_words_do_not_reach_the_terminal_raw() {
    let words = [b"\x1b[31mno\n\xff".as_slice(), &[b'x'; 5000]].concat();
    let Err(HandshakeError::Refused { message, .. }) =
        negotiate(&[SIMPLE, (wire::OPT_GO, wire::REP_ERR_POLICY, &words)])
    else {
        panic!("it is refused")
    };
    assert!(message.starts_with("[31mno\u{fffd}xxx"), "{message}");
    assert_eq!(message.chars().count(), 200);
}

/// Feeds bytes to a connection on which a read of 4096 bytes at 8192 is slot 0, and a BLOCK_STATUS
/// is slot 1. Returns the events, or the first error.
fn take(framing: Framing, bytes: &[u8]) -> Result<Vec<Event>, Broken> {
    let mut replies = Transmission::new(&export(framing), 2);
    let rq = Request { command: Command::Read, offset: 8192, len: 4096 };
    replies.begin(0, rq, &mut Vec::new());
    let rq = Request { command: Command::BlockStatus, offset: 0, len: 1 << 20 };
    replies.begin(1, rq, &mut Vec::new());
    let (mut rest, mut events) = (bytes, Vec::new());
    loop {
        let taken = replies.take(rest)?;
        rest = &rest[taken.consumed..];
        if let Event::Data { len, .. } = taken.event {
            rest = rest.get(len as usize..).unwrap_or_default();
        }
        if taken.event == Event::More {
            return Ok(events);
        }
        events.push(taken.event);
    }
}

const DONE: u16 = wire::REPLY_FLAG_DONE;

/// Returns a chunk for slot 0, or 1.
fn chunk(framing: Framing, flags: u16, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let offset = if cookie == 0 { 8192 } else { 0 };
    let len = payload.len() as u64;
    ChunkHeader { flags, kind, cookie, offset, len }.emit(framing, &mut bytes);
    bytes.extend(payload);
    bytes
}

fn data(framing: Framing, flags: u16, offset: u64, len: usize) -> Vec<u8> {
    let payload = [&offset.to_be_bytes(), &*vec![1; len]].concat();
    chunk(framing, flags, wire::REPLY_OFFSET_DATA, 0, &payload)
}

fn hole(framing: Framing, flags: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    Hole { offset, len }.emit(&mut payload);
    chunk(framing, flags, wire::REPLY_OFFSET_HOLE, 0, &payload)
}

const CHUNKED: [Framing; 2] = [Framing::Structured, Framing::Extended];

#[test]
fn replies_begin_as_was_agreed_on() {
    let mut simple = Vec::new();
    SimpleReply { error: 0, cookie: 0 }.emit(&mut simple);
    let structured = chunk(Framing::Structured, DONE, wire::REPLY_NONE, 0, &[]);
    let extended = chunk(Framing::Extended, DONE, wire::REPLY_NONE, 0, &[]);
    let magic = |result| matches!(result, Err(Broken::Magic(_)));
    assert!(magic(take(Framing::Simple, &structured)));
    assert!(magic(take(Framing::Simple, &extended)));
    assert!(magic(take(Framing::Structured, &extended)));
    assert!(magic(take(Framing::Extended, &simple)));
    assert!(magic(take(Framing::Extended, &structured)));
    assert!(magic(take(Framing::Structured, b"GET ")));
    // Data in a simple reply although structured replies were negotiated; and a BLOCK_STATUS
    // without extents.
    assert_eq!(take(Framing::Structured, &simple), Err(Broken::Unasked("data in a simple reply")));
    let mut answer = Vec::new();
    SimpleReply { error: 0, cookie: 1 }.emit(&mut answer);
    assert_eq!(take(Framing::Structured, &answer), Err(Broken::Missing("extents")));
}

#[test]
fn reply_with_an_unknown_cookie_is_an_error() {
    for cookie in [2, 3, 1 << 32, u64::MAX] {
        for framing in CHUNKED {
            let bytes = chunk(framing, DONE, wire::REPLY_NONE, cookie, &[]);
            assert_eq!(take(framing, &bytes), Err(Broken::Cookie(cookie)));
        }
        let mut bytes = Vec::new();
        SimpleReply { error: 5, cookie }.emit(&mut bytes);
        assert_eq!(take(Framing::Simple, &bytes), Err(Broken::Cookie(cookie)));
    }
    // The same may not be sent twice either.
    for framing in CHUNKED {
        let once = data(framing, DONE, 8192, 4096);
        assert_eq!(take(framing, &once).expect("a reply").len(), 2);
        assert_eq!(take(framing, &[&*once, &*once].concat()), Err(Broken::Cookie(0)));
    }
    let mut other_place = Vec::new();
    let header = ChunkHeader { flags: DONE, kind: 0, cookie: 0, offset: 1, len: 0 };
    header.emit(Framing::Extended, &mut other_place);
    assert_eq!(take(Framing::Extended, &other_place), Err(Broken::Offset(1)));
}

#[test]
fn data_are_those_that_were_asked_for_once_and_all_of_them() {
    for framing in CHUNKED {
        for (offset, len) in [
            (8191, 4096),
            (8192, 4097),
            (0, 1),
            (12288, 1),
            (u64::MAX, 1),
            (u64::MAX - 10, 100),
            (8192, 0),
        ] {
            let outside = Err(Broken::Outside { offset, len: len as u64 });
            assert_eq!(take(framing, &data(framing, 0, offset, len)), outside);
        }
        assert_eq!(
            take(framing, &hole(framing, 0, 8192, 8192)),
            Err(Broken::Outside { offset: 8192, len: 8192 })
        );
        for (offset, len) in [(8192, 1), (8200, 8), (12287, 1), (8192, 4096)] {
            let twice = [data(framing, 0, 8192, 4096), data(framing, 0, offset, len)].concat();
            assert_eq!(take(framing, &twice), Err(Broken::Twice { offset, len: len as u64 }));
        }
        let overlap = [hole(framing, 0, 9000, 100), data(framing, 0, 8990, 11)].concat();
        assert_eq!(take(framing, &overlap), Err(Broken::Twice { offset: 8990, len: 11 }));
        for short in [
            data(framing, DONE, 8192, 4095),
            data(framing, DONE, 8193, 4095),
            hole(framing, DONE, 8192, 1),
            chunk(framing, DONE, wire::REPLY_NONE, 0, &[]),
        ] {
            assert_eq!(take(framing, &short), Err(Broken::Missing("data")));
        }
        let scattered: Vec<u8> =
            (0..1026).flat_map(|nth| data(framing, 0, 8192 + 1 + 2 * nth, 1)).collect();
        assert_eq!(take(framing, &scattered), Err(Broken::Scattered));
        let to_a_question = chunk(framing, 0, wire::REPLY_OFFSET_DATA, 1, &[0; 9]);
        assert_eq!(take(framing, &to_a_question), Err(Broken::Unasked("data")));
    }
}

#[test]
fn lengths_and_kinds_of_chunks_fit() {
    for framing in CHUNKED {
        let length = |kind, len| Err(Broken::Length { kind, len });
        let of = |kind: u16, len: usize| take(framing, &chunk(framing, 0, kind, 0, &vec![0; len]));
        assert_eq!(of(wire::REPLY_NONE, 0), length(wire::REPLY_NONE, 0), "without an end");
        assert_eq!(of(wire::REPLY_NONE, 1), length(wire::REPLY_NONE, 1));
        assert_eq!(of(wire::REPLY_OFFSET_DATA, 7), length(wire::REPLY_OFFSET_DATA, 7));
        assert_eq!(of(wire::REPLY_OFFSET_HOLE, 11), length(wire::REPLY_OFFSET_HOLE, 11));
        assert_eq!(of(wire::REPLY_OFFSET_HOLE, 13), length(wire::REPLY_OFFSET_HOLE, 13));
        assert_eq!(of(wire::REPLY_OFFSET_HOLE, 12), length(wire::REPLY_OFFSET_HOLE, 12), "of none");
        assert_eq!(of(3, 0), Err(Broken::Kind(3)));
        assert_eq!(of(0x7FFF, 8), Err(Broken::Kind(0x7FFF)));
        // The client does not wait for the rest of these.
        for kind in [wire::REPLY_ERROR, 0xFFFF, wire::REPLY_BLOCK_STATUS, wire::REPLY_OFFSET_DATA] {
            let mut bytes = Vec::new();
            let len = u64::from(u32::MAX);
            let cookie = u64::from(kind == wire::REPLY_BLOCK_STATUS);
            let offset = if cookie == 0 { 8192 } else { 0 };
            ChunkHeader { flags: 0, kind, cookie, offset, len }.emit(framing, &mut bytes);
            bytes.put_u64(8192);
            assert!(take(framing, &bytes).is_err(), "{kind}");
        }
    }
}

#[test]
fn errors_are_whole_and_have_a_number() {
    for framing in CHUNKED {
        let error = |kind: u16, error, message: &[u8], offset| {
            let mut payload = Vec::new();
            ErrorChunk { error, message, offset }.emit(&mut payload);
            take(framing, &chunk(framing, DONE, kind, 0, &payload))
        };
        let place = wire::REPLY_ERROR_OFFSET;
        assert_eq!(error(wire::REPLY_ERROR, 0, b"", None), Err(Broken::Error));
        assert_eq!(error(place, 5, b"", Some(8191)), Err(Broken::Error));
        assert_eq!(error(place, 5, b"", Some(u64::MAX)), Err(Broken::Error));
        assert_eq!(error(place, 5, b"", None), Err(Broken::Error));
        let payload = [0, 0, 0, 5, 0, 9, b'x'];
        let bytes = chunk(framing, DONE, wire::REPLY_ERROR, 0, &payload);
        assert_eq!(take(framing, &bytes), Err(Broken::Error));
        // All others are reported, also one of an unknown type, and with the longest message.
        for kind in [wire::REPLY_ERROR, place, 0x8765] {
            let offset = (kind == place).then_some(9000);
            let told = error(kind, 28, &[b'x'; 4096], offset).expect("an error");
            let result = Err(crate::wire::NbdError::NoSpc);
            assert_eq!(told, [Event::Done { slot: 0, result }]);
        }
        // An error before the end counts, whatever follows.
        let mut payload = Vec::new();
        ErrorChunk { error: 5, message: b"", offset: None }.emit(&mut payload);
        let bytes =
            [chunk(framing, 0, wire::REPLY_ERROR, 0, &payload), data(framing, DONE, 8192, 4096)];
        let events = take(framing, &bytes.concat()).expect("a reply");
        let result = Err(crate::wire::NbdError::Io);
        assert_eq!(events.last(), Some(&Event::Done { slot: 0, result }));
    }
}

#[test]
fn extents_are_of_the_context_and_reported_once() {
    for framing in CHUNKED {
        let is_wide = framing == Framing::Extended;
        let kinds = [wire::REPLY_BLOCK_STATUS, wire::REPLY_BLOCK_STATUS_EXT];
        let (kind, other) = if is_wide { (kinds[1], kinds[0]) } else { (kinds[0], kinds[1]) };
        let payload = |context: u32, extents: &[u64]| {
            let mut payload = context.to_be_bytes().to_vec();
            if is_wide {
                payload.put_u32(extents.len() as u32);
            }
            for &len in extents {
                match is_wide {
                    true => [len, 3].iter().for_each(|&number| payload.put_u64(number)),
                    false => [len, 3].iter().for_each(|&number| payload.put_u32(number as u32)),
                }
            }
            payload
        };
        let of = |kind, payload: &[u8]| take(framing, &chunk(framing, DONE, kind, 1, payload));
        assert_eq!(of(kind, &payload(7, &[512, 512])).expect("extents").len(), 3);
        assert_eq!(of(kind, &payload(8, &[512])), Err(Broken::Context(8)));
        assert_eq!(of(kind, &payload(7, &[512, 0])), Err(Broken::EmptyExtent));
        assert_eq!(of(other, &payload(7, &[512])), Err(Broken::Kind(other)));
        for cut in [1, 8] {
            let mut short = payload(7, &[512]);
            short.truncate(short.len() - cut);
            assert!(matches!(of(kind, &short), Err(Broken::Length { .. })), "{cut}");
        }
        let once = chunk(framing, 0, kind, 1, &payload(7, &[512]));
        let twice = [&*once, &*once].concat();
        assert_eq!(take(framing, &twice), Err(Broken::Unasked("extents")));
        let to_a_read = chunk(framing, 0, kind, 0, &payload(7, &[512]));
        assert_eq!(take(framing, &to_a_read), Err(Broken::Unasked("extents")));
        let none = chunk(framing, DONE, wire::REPLY_NONE, 1, &[]);
        assert_eq!(take(framing, &none), Err(Broken::Missing("extents")));
        if is_wide {
            let mut wrong = payload(7, &[512, 512]);
            wrong[7] = 3;
            assert!(matches!(of(kind, &wrong), Err(Broken::Length { .. })));
        }
    }
}

#[test]
fn no_bytes_at_all_make_it_panic() {
    let mut numbers = Numbers(3);
    let mut nr_refused = 0;
    for _ in 0..4_000 {
        let framing =
            [Framing::Simple, Framing::Structured, Framing::Extended][numbers.below(3) as usize];
        let mut bytes = Vec::new();
        for _ in 0..1 + numbers.below(4) {
            bytes.extend(match numbers.below(4) {
                0 => data(framing, numbers.below(2) as u16, 8192 + numbers.below(4096), 100),
                1 => hole(framing, 0, 8192 + numbers.below(5000), numbers.below(5000) as u32),
                2 => chunk(framing, 1, numbers.below(9) as u16, numbers.below(3), &[0; 44]),
                _ => chunk(framing, 1, wire::REPLY_ERROR, 0, &[0, 0, 0, 5, 0, 0]),
            });
        }
        for _ in 0..numbers.below(3) {
            let at = numbers.below(bytes.len() as u64) as usize;
            bytes[at] = numbers.below(256) as u8;
        }
        match take(framing, &bytes) {
            Err(_) => nr_refused += 1,
            Ok(events) => {
                let ends = events.iter().filter(|event| matches!(event, Event::Done { .. }));
                assert!(ends.count() <= 2, "each request ends once");
            }
        }
        // The same before an export is chosen.
        let mut start = greeting(FIXED);
        OptionReplyHeader::emit_with(wire::OPT_STRUCTURED_REPLY, wire::REP_ACK, &[], &mut start);
        start.extend(&bytes);
        let at = numbers.below(start.len() as u64) as usize;
        start[at] ^= 1 << numbers.below(8);
        let _ = Handshake::new("x", false).feed(&start, &mut Vec::new());
    }
    assert!(nr_refused > 500, "{nr_refused}");
}
