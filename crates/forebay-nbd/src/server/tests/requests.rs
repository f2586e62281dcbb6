//! The error of each refused request; and payloads, which are read in all cases.

use std::borrow::ToOwned;
use std::vec::Vec;

use super::client::{Client, SIZE, contexts, export, option};
use crate::export::Abilities;
use crate::server::{CloseReason, Command, NbdError, Refused, Request, TlsPolicy, Transmission};
use crate::wire::numbers::*;
use crate::wire::{BlockSizes, ChunkHeader, ErrorChunk, Framing, RequestHeader, SimpleReply};

const FRAMINGS: [Framing; 3] = [Framing::Simple, Framing::Structured, Framing::Extended];

/// Returns the transmission of an export that supports everything, except what `change` removes.
fn transmission(framing: Framing, change: Change) -> Transmission {
    let mut client = Client::new(TlsPolicy::Off);
    client.exports = [export("a")].into();
    change(&mut client.exports[0].can);
    match framing {
        Framing::Simple => {}
        Framing::Structured => drop(client.ask(&option(OPT_STRUCTURED_REPLY, b""))),
        Framing::Extended => drop(client.ask(&option(OPT_EXTENDED_HEADERS, b""))),
    }
    if framing != Framing::Simple {
        client.ask(&contexts(OPT_SET_META_CONTEXT, "a", &[BASE_ALLOCATION]));
    }
    client.go("a")
}

/// Returns a request in this framing. A write has the flag PAYLOAD_LEN if the framing needs it.
fn bytes(framing: Framing, command: u16, flags: u16, offset: u64, len: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut header = RequestHeader { flags, command, cookie: 0xc00c1e, offset, len };
    if framing == Framing::Extended {
        header.flags |= if command == CMD_WRITE { CMD_FLAG_PAYLOAD_LEN } else { 0 };
        header.emit_extended(&mut out);
    } else {
        header.emit_compact(&mut out);
    }
    out
}

fn parse(on: &Transmission, command: u16, flags: u16, offset: u64, len: u64) -> Request {
    let rq = on.parse(&bytes(on.framing(), command, flags, offset, len)).unwrap();
    assert_eq!((rq.cookie, rq.offset, rq.len), (0xc00c1e, offset, len));
    rq
}

fn error(rq: &Request) -> Option<NbdError> {
    rq.command.err().map(|Refused { error, message }| {
        assert!(!message.is_empty());
        error
    })
}

const FUA: u16 = CMD_FLAG_FUA;
/// Removes abilities of an export.
type Change = fn(&mut Abilities);
const ALL: Change = |_| {};

#[test]
fn every_command_and_flag_that_was_offered_is_taken() {
    let table = [
        (CMD_READ, 0, Command::Read { df: false }),
        (CMD_READ, FUA, Command::Read { df: false }),
        (CMD_WRITE, 0, Command::Write { fua: false }),
        (CMD_WRITE, FUA, Command::Write { fua: true }),
        (CMD_TRIM, 0, Command::Trim { fua: false }),
        (CMD_TRIM, FUA, Command::Trim { fua: true }),
        (CMD_CACHE, 0, Command::Cache),
        (CMD_CACHE, FUA, Command::Cache),
        (CMD_WRITE_ZEROES, 0, Command::WriteZeroes { fua: false, no_hole: false, fast: false }),
        (
            CMD_WRITE_ZEROES,
            CMD_FLAG_NO_HOLE | FUA,
            Command::WriteZeroes { fua: true, no_hole: true, fast: false },
        ),
        (
            CMD_WRITE_ZEROES,
            CMD_FLAG_FAST_ZERO,
            Command::WriteZeroes { fua: false, no_hole: false, fast: true },
        ),
    ];
    for framing in FRAMINGS {
        let on = transmission(framing, ALL);
        for (command, flags, wanted) in table {
            for (offset, len) in [(0, 512), (SIZE - 512, 512), (4096, 1 << 25)] {
                let rq = parse(&on, command, flags, offset, len);
                assert_eq!(rq.command, Ok(wanted));
                let payload_len = if command == CMD_WRITE { len } else { 0 };
                assert_eq!(u64::from(rq.payload_len), payload_len);
            }
        }
        assert_eq!(parse(&on, CMD_FLUSH, FUA, 0, 0).command, Ok(Command::Flush));
        for flags in [0, FUA, !CMD_FLAG_PAYLOAD_LEN] {
            assert_eq!(parse(&on, CMD_DISC, flags, 5, 7).command, Ok(Command::Disconnect));
        }
        if framing != Framing::Simple {
            let df = parse(&on, CMD_READ, CMD_FLAG_DF, 0, 512);
            assert_eq!(df.command, Ok(Command::Read { df: true }));
            let one = parse(&on, CMD_BLOCK_STATUS, CMD_FLAG_REQ_ONE | FUA, 0, SIZE);
            assert_eq!(one.command, Ok(Command::BlockStatus { one: true }));
        }
    }
}

#[test]
fn every_flag_elsewhere_is_refused() {
    let known = |framing, command| match command {
        CMD_READ if framing != Framing::Simple => FUA | CMD_FLAG_DF,
        CMD_WRITE if framing == Framing::Extended => FUA | CMD_FLAG_PAYLOAD_LEN,
        CMD_WRITE_ZEROES => FUA | CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO,
        CMD_BLOCK_STATUS => FUA | CMD_FLAG_REQ_ONE,
        _ => FUA,
    };
    for framing in FRAMINGS {
        let on = transmission(framing, ALL);
        for command in 0..=9 {
            if command == CMD_DISC {
                continue;
            }
            for flag in (0..16).map(|bit| 1 << bit) {
                let len = if command == CMD_FLUSH { 0 } else { 512 };
                let rq = parse(&on, command, flag, 0, len);
                let is_known = flag & known(framing, command) != 0 && command < 8;
                let is_there = command != CMD_BLOCK_STATUS || framing != Framing::Simple;
                let expected = (!is_known || !is_there).then_some(NbdError::Inval);
                assert_eq!(error(&rq), expected, "{framing:?} {command} {flag:#x}");
                let has_payload = command == CMD_WRITE
                    || (framing == Framing::Extended && flag == CMD_FLAG_PAYLOAD_LEN);
                assert_eq!(u64::from(rq.payload_len), if has_payload { len } else { 0 });
            }
        }
    }
}

#[test]
fn command_that_was_not_offered_is_refused() {
    let table: [(Change, u16, u16, u64); 7] = [
        (|can| can.flush = false, CMD_FLUSH, 0, 0),
        (|can| can.fua = false, CMD_WRITE, FUA, 512),
        (|can| can.fua = false, CMD_READ, FUA, 512),
        (|can| can.trim = false, CMD_TRIM, 0, 512),
        (|can| can.write_zeroes = false, CMD_WRITE_ZEROES, 0, 512),
        (|can| can.fast_zero = false, CMD_WRITE_ZEROES, CMD_FLAG_FAST_ZERO, 512),
        (|can| can.cache = false, CMD_CACHE, 0, 512),
    ];
    for framing in FRAMINGS {
        for (change, command, flags, len) in table {
            let rq = parse(&transmission(framing, change), command, flags, 0, len);
            assert_eq!(error(&rq), Some(NbdError::Inval), "{framing:?} {command} {flags}");
            let rq = parse(&transmission(framing, ALL), command, flags, 0, len);
            assert_eq!(error(&rq), None);
        }
    }
    let no_contexts = Client::new(TlsPolicy::Off).go("a");
    let rq = parse(&no_contexts, CMD_BLOCK_STATUS, 0, 0, 512);
    assert_eq!(error(&rq), Some(NbdError::Inval));
}

#[test]
fn a_read_only_export_is_not_written_to() {
    for framing in FRAMINGS {
        // The request fails with EPERM even if it has other errors, or is not supported.
        for change in [
            |can: &mut Abilities| can.read_only = true,
            |can: &mut Abilities| {
                *can = Abilities { read_only: true, ..Abilities::default() };
            },
        ] {
            let on = transmission(framing, change);
            for command in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
                for (flags, offset, len) in [(0, 0, 512), (FUA, 0, 512), (0, SIZE, 1)] {
                    let rq = parse(&on, command, flags, offset, len);
                    assert_eq!(error(&rq), Some(NbdError::Perm));
                    let payload_len = if command == CMD_WRITE { len } else { 0 };
                    assert_eq!(u64::from(rq.payload_len), payload_len);
                }
            }
            assert_eq!(error(&parse(&on, CMD_READ, 0, 0, 512)), None);
        }
    }
}

#[test]
fn requests_beyond_the_end_fail_by_kind() {
    let places = [
        (SIZE, 512),
        (SIZE - 512, 1024),
        (0, SIZE + 512),
        (u64::MAX - 511, 512),
        (u64::MAX - 511, 1024),
        (1 << 63, 1 << 31),
    ];
    let commands = [
        (CMD_READ, NbdError::Inval),
        (CMD_WRITE, NbdError::NoSpc),
        (CMD_TRIM, NbdError::Inval),
        (CMD_CACHE, NbdError::Inval),
        (CMD_WRITE_ZEROES, NbdError::NoSpc),
        (CMD_BLOCK_STATUS, NbdError::Inval),
    ];
    for framing in FRAMINGS {
        let on = transmission(framing, ALL);
        for (command, expected) in commands {
            for (offset, len) in places {
                let is_long = len > u64::from(PAYLOAD_DEFAULT_MAX);
                if command == CMD_WRITE && is_long {
                    let header = bytes(framing, command, 0, offset, len);
                    assert_eq!(on.parse(&header), Err(CloseReason::PayloadTooLong(len)));
                    continue;
                }
                let rq = parse(&on, command, 0, offset, len);
                assert_eq!(error(&rq), Some(expected), "{framing:?} {command} {offset} {len}");
            }
        }
    }
}

#[test]
fn the_last_byte_is_there_and_none_behind_it() {
    let mut client = Client::new(TlsPolicy::Off);
    client.exports[0].block_size.min = 1;
    client.exports[0].size_bytes = 1001;
    let on = client.go("a");
    for (offset, len, is_there) in [
        (1000, 1, true),
        (0, 1001, true),
        (1000, 2, false),
        (1001, 1, false),
        (0, 1002, false),
        (u64::MAX, 1, false),
    ] {
        for command in [CMD_READ, CMD_WRITE, CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES] {
            assert_eq!(error(&parse(&on, command, 0, offset, len)).is_none(), is_there);
        }
    }
}

#[test]
fn lengths_of_0_and_parts_of_blocks_are_refused() {
    for framing in FRAMINGS {
        let on = transmission(framing, ALL);
        for command in
            [CMD_READ, CMD_WRITE, CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES, CMD_BLOCK_STATUS]
        {
            for (offset, len) in [(0, 0), (512, 0), (1, 512), (0, 513), (511, 1), (256, 256)] {
                let rq = parse(&on, command, 0, offset, len);
                assert_eq!(error(&rq), Some(NbdError::Inval), "{framing:?} {command}");
            }
        }
        for (offset, len) in [(1, 0), (0, 1), (512, 512)] {
            assert_eq!(error(&parse(&on, CMD_FLUSH, 0, offset, len)), Some(NbdError::Inval));
        }
    }
}

#[test]
fn with_extended_headers_only_a_flag_means_a_payload() {
    let on = transmission(Framing::Extended, ALL);
    let parse = |command, flags, len| {
        let mut out = Vec::new();
        RequestHeader { flags, command, cookie: 1, offset: 0, len }.emit_extended(&mut out);
        on.parse(&out)
    };
    let rq = parse(CMD_WRITE, 0, 512).unwrap();
    assert_eq!((error(&rq), rq.payload_len), (Some(NbdError::Inval), 0));
    for command in [CMD_READ, CMD_FLUSH, CMD_TRIM, CMD_BLOCK_STATUS, 99] {
        for len in [8, 512, 1 << 25] {
            let rq = parse(command, CMD_FLAG_PAYLOAD_LEN, len).unwrap();
            let payload_len = u32::try_from(len).unwrap();
            assert_eq!((error(&rq), rq.payload_len), (Some(NbdError::Inval), payload_len));
        }
        let len = (1 << 25) + 1;
        let closed = parse(command, CMD_FLAG_PAYLOAD_LEN, len);
        assert_eq!(closed, Err(CloseReason::PayloadTooLong(len)));
        let closed = parse(command, CMD_FLAG_PAYLOAD_LEN, u64::MAX);
        assert_eq!(closed, Err(CloseReason::PayloadTooLong(u64::MAX)));
    }
    // Without it, the length may be that of the whole export.
    assert_eq!(error(&parse(CMD_TRIM, 0, SIZE).unwrap()), None);
    // The stream needs not stay in step for a client that disconnects.
    assert_eq!(parse(CMD_DISC, CMD_FLAG_PAYLOAD_LEN, u64::MAX).unwrap().payload_len, 0);
}

#[test]
fn a_payload_is_borne_as_far_as_a_client_may_go() {
    // A server with a smaller limit still skips what a client may send by default.
    let mut client = Client::new(TlsPolicy::Off);
    client.exports[0].block_size.max = 4096;
    let on = client.go("a");
    for (len, expected) in
        [(4096, None), (4608, Some(NbdError::Inval)), (1 << 25, Some(NbdError::Inval))]
    {
        let rq = parse(&on, CMD_WRITE, 0, 0, len);
        assert_eq!((error(&rq), u64::from(rq.payload_len)), (expected, len));
        assert_eq!(error(&parse(&on, CMD_READ, 0, 0, len)), expected);
    }
    let long = bytes(Framing::Simple, CMD_WRITE, 0, 0, (1 << 25) + 1);
    assert!(matches!(on.parse(&long), Err(CloseReason::PayloadTooLong(_))));
    // A server with a larger limit accepts more.
    let mut client = Client::new(TlsPolicy::Off);
    client.exports[0].block_size.max = 1 << 26;
    assert_eq!(error(&parse(&client.go("a"), CMD_WRITE, 0, 0, 1 << 26)), None);
}

#[test]
fn a_long_read_in_one_chunk_overflows() {
    let on = transmission(Framing::Structured, ALL);
    let len = (1 << 25) + 512;
    assert_eq!(error(&parse(&on, CMD_READ, CMD_FLAG_DF, 0, len)), Some(NbdError::Overflow));
    assert_eq!(error(&parse(&on, CMD_READ, 0, 0, len)), Some(NbdError::Inval));
}

#[test]
fn a_read_fits_the_length_field_of_a_chunk() {
    // Found by fuzzing: an export without a limit, and a chunk whose length was cut to 32 bits.
    let mut client = Client::new(TlsPolicy::Off);
    client.exports[0].block_size = BlockSizes { min: 1, preferred: 512, max: u32::MAX };
    client.exports[0].size_bytes = 1 << 40;
    client.ask(&option(OPT_STRUCTURED_REPLY, b""));
    let on = client.go("a");
    let longest = u32::MAX - 8;
    let rq = parse(&on, CMD_READ, 0, 0, longest.into());
    assert_eq!(error(&rq), None);
    let head = on.data(&rq, 0, longest, true, true);
    assert_eq!(ChunkHeader::parse_structured(head.as_slice()).unwrap().len, u32::MAX.into());
    assert_eq!(error(&parse(&on, CMD_READ, 0, 0, (1 << 32) - 8)), Some(NbdError::Inval));
}

#[test]
fn a_request_that_is_none_closes() {
    for framing in FRAMINGS {
        let on = transmission(framing, ALL);
        let good = bytes(framing, CMD_READ, 0, 0, 512);
        assert!(on.parse(&good).is_ok());
        assert!(on.parse(&[&good[..], b"behind"].concat()).is_ok());
        for bit in 0..32 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(on.parse(&bad), Err(CloseReason::RequestMagic));
        }
        for len in 0..good.len() {
            assert_eq!(on.parse(&good[..len]), Err(CloseReason::RequestMagic));
        }
    }
    // The magic number of another framing is wrong as well.
    let other = bytes(Framing::Extended, CMD_READ, 0, 0, 512);
    let on = transmission(Framing::Structured, ALL);
    assert_eq!(on.parse(&other), Err(CloseReason::RequestMagic));
}

#[test]
fn an_error_reply_is_as_long_as_it_says_and_clipped() {
    // No character ends at the limit.
    let long = "x".to_owned() + &"ä".repeat(9000);
    for framing in FRAMINGS {
        let on = transmission(framing, ALL);
        for message in ["", "short", &long] {
            for number in NbdError::ALL {
                let rq = parse(&on, CMD_READ, 0, 0, 512);
                let mut out = Vec::new();
                on.error(&rq, number, message, &mut out);
                let number = if number == NbdError::NotSup { NbdError::Inval } else { number };
                if framing == Framing::Simple {
                    let reply = SimpleReply::parse(&out).unwrap();
                    assert_eq!((reply.error, out.len()), (number.number(), 16));
                    continue;
                }
                let (header, header_len) = if framing == Framing::Extended {
                    (ChunkHeader::parse_extended(&out).unwrap(), 32)
                } else {
                    (ChunkHeader::parse_structured(&out).unwrap(), 20)
                };
                assert_eq!((header.kind, header.flags), (REPLY_ERROR, REPLY_FLAG_DONE));
                let payload = &out[header_len..];
                assert_eq!(payload.len() as u64, header.len);
                let chunk = ErrorChunk::parse(REPLY_ERROR, payload).unwrap();
                assert_eq!(chunk.error, number.number());
                assert_eq!(payload.len(), 6 + chunk.message.len());
                let said = core::str::from_utf8(chunk.message).unwrap();
                assert!(message.starts_with(said) && said.len() == message.len().min(4095));
            }
        }
    }
}

#[test]
fn only_fast_zeroes_are_not_supported() {
    let on = transmission(Framing::Simple, ALL);
    let told = |flags| {
        let mut out = Vec::new();
        let rq = parse(&on, CMD_WRITE_ZEROES, flags, 0, 512);
        on.error(&rq, NbdError::NotSup, "", &mut out);
        SimpleReply::parse(&out).unwrap().error
    };
    assert_eq!(told(CMD_FLAG_FAST_ZERO), 95);
    assert_eq!(told(0), 22);
}

#[test]
fn completed_write_has_a_short_reply() {
    for (framing, len) in
        [(Framing::Simple, 16), (Framing::Structured, 16), (Framing::Extended, 32)]
    {
        let on = transmission(framing, ALL);
        let rq = parse(&on, CMD_WRITE, 0, 0, 512);
        assert_eq!(on.done(&rq).as_slice().len(), len);
    }
}

#[test]
fn resized_export_accepts_requests_up_to_its_new_end() {
    for framing in FRAMINGS {
        let mut on = transmission(framing, ALL);
        for size in [SIZE, SIZE + 4096, SIZE - 4096] {
            on.resize(size);
            let last = |command, offset| error(&parse(&on, command, 0, offset, 4096));
            assert_eq!(last(CMD_WRITE, size - 4096), None);
            assert_eq!(last(CMD_WRITE, size), Some(NbdError::NoSpc));
            assert_eq!(last(CMD_READ, size - 4096), None);
            assert_eq!(last(CMD_READ, size), Some(NbdError::Inval));
        }
    }
}
