//! Fuzzes the client side of NBD against any server. Data are placed inside their reads and only
//! once; each request ends at most once; a refused reply has no earlier effect; and the same bytes
//! have the same result in any segmentation.
//!
//! An input is either a raw handshake, or a framing followed by requests and reply chunks. The
//! fields of these are drawn near values that matter, or are raw bytes.

#![no_main]

use forebay_fuzz::{Choices, Feature, reach, start};
use forebay_nbd::client::{Command, Event, Handshake, Negotiated, Next, Request, Transmission};
use forebay_nbd::export::Abilities;
use forebay_nbd::uri::Uri;
use forebay_nbd::wire::numbers::*;
use forebay_nbd::wire::{ChunkHeader, Framing, SimpleReply, Sink};
use libfuzzer_sys::fuzz_target;

const NR_SLOTS: usize = 4;

/// `done` is a framing and an error flag.
const WANTED: &[Feature] = &[
    ("done", 0x00),
    ("done", 0x01),
    ("done", 0x10),
    ("done", 0x11),
    ("done", 0x20),
    ("done", 0x21),
    ("data", 0),
    ("data", 1),
    ("data", 2),
    ("zeroes", 1),
    ("zeroes", 2),
    ("extent", 1),
    ("extent", 2),
    ("broken", 0),
    ("more", 0),
    ("in-two", 0),
    ("ready", 0),
    ("ready", 2),
    ("start-tls", 0),
    ("refused", 0),
    ("uri", 0),
];

fn export(framing: Framing) -> Negotiated {
    Negotiated {
        name: String::new(),
        description: String::new(),
        size_bytes: 1 << 40,
        can: Abilities::default(),
        block_size: None,
        framing,
        allocation: Some(1),
    }
}

/// A request in flight, and which of its bytes have arrived: it has at most 64.
#[derive(Clone, Copy)]
struct Asked {
    request: Request,
    came: u64,
}

fn begin(
    choices: &mut Choices<'_>,
    replies: &mut Transmission,
    asked: &mut [Option<Asked>; NR_SLOTS],
) {
    let slot = usize::from(choices.byte()) % NR_SLOTS;
    if asked[slot].is_some() {
        return;
    }
    let command = match choices.byte() % 6 {
        0 => Command::Write { fua: true },
        1 => Command::Flush,
        2 => Command::BlockStatus,
        3 => Command::WriteZeroes { fua: false },
        _ => Command::Read,
    };
    let (offset, len) = (u64::from(choices.byte()) << 8, u64::from(choices.byte()) % 64 + 1);
    let request = Request { command, offset, len };
    replies.begin(slot, request, &mut Vec::new());
    asked[slot] = Some(Asked { request, came: 0 });
}

/// Returns a server message. Its cookie names a slot with a generation that is at most a few old.
fn message(
    choices: &mut Choices<'_>,
    framing: Framing,
    asked: &[Option<Asked>; NR_SLOTS],
) -> Vec<u8> {
    let mut out = Vec::new();
    let shape = choices.byte();
    if shape & 7 == 7 {
        return choices.bytes(usize::from(shape >> 3)).to_vec();
    }
    let slot = usize::from(choices.byte()) % NR_SLOTS;
    let cookie = u64::from(choices.byte() & 7) << 32 | slot as u64;
    let request = asked[slot]
        .map_or(Request { command: Command::Read, offset: 0, len: 8 }, |asked| asked.request);
    if framing == Framing::Simple || shape & 7 == 6 {
        let error = u32::from(choices.byte() & 1) * 5;
        SimpleReply { error, cookie }.emit(&mut out);
        let has_data = request.command == Command::Read && error == 0;
        out.resize(out.len() + if has_data { request.len as usize } else { 0 }, 1);
        return out;
    }
    let at = request.offset + u64::from(choices.byte()) % 66;
    let len =
        u64::from(choices.byte()) % (request.offset + request.len + 2).saturating_sub(at).max(1);
    let mut payload = Vec::new();
    let kind = match shape & 7 {
        0 => REPLY_NONE,
        1 => {
            payload.put_u64(at);
            payload.resize(8 + len as usize, 1);
            REPLY_OFFSET_DATA
        }
        2 => {
            payload.put_u64(at);
            payload.put_u32(len as u32);
            REPLY_OFFSET_HOLE
        }
        3 => {
            payload.put_u32(u32::from(choices.byte() & 7));
            payload.put_u16(len as u16);
            payload.resize(6 + len as usize, b'x');
            REPLY_ERROR
        }
        4 => {
            payload.put_u32(1 + u32::from(choices.byte() & 8));
            let nr = u32::from(choices.byte() & 3);
            if framing == Framing::Extended {
                payload.put_u32(nr);
            }
            for _ in 0..nr {
                let len = u64::from(choices.byte());
                if framing == Framing::Extended {
                    payload.put_u64(len);
                    payload.put_u64(3);
                } else {
                    payload.put_u32(len as u32);
                    payload.put_u32(3);
                }
            }
            if framing == Framing::Extended { REPLY_BLOCK_STATUS_EXT } else { REPLY_BLOCK_STATUS }
        }
        _ => choices.number(2) as u16,
    };
    let bits = choices.byte();
    let offset = if bits & 6 == 6 { at } else { request.offset };
    let len = payload.len() as u64 + u64::from(bits & 0xF0 == 0xF0);
    let header = ChunkHeader { flags: u16::from(bits & 1), kind, cookie, offset, len };
    header.emit(framing, &mut out);
    out.extend(payload);
    out
}

/// Parses a stream up to its end or a refusal. Returns the events, or an error for a refusal.
fn take(
    replies: &mut Transmission,
    asked: &mut [Option<Asked>; NR_SLOTS],
    stream: &mut Vec<u8>,
    skip: &mut u64,
    framing: Framing,
) -> Result<Vec<Event>, ()> {
    let mut events = Vec::new();
    loop {
        let here = (*skip).min(stream.len() as u64);
        stream.drain(..here as usize);
        *skip -= here;
        if *skip > 0 {
            return Ok(events);
        }
        let Ok(taken) = replies.take(stream) else {
            reach("broken", 0);
            return Err(());
        };
        stream.drain(..taken.consumed);
        match taken.event {
            Event::More => {
                assert!(stream.len() < Transmission::HEADER_MAX, "it would wait forever");
                reach("more", 0);
                return Ok(events);
            }
            Event::Data { slot, at, len } | Event::Zeroes { slot, at, len } => {
                let asked = asked[slot].as_mut().expect("it is under way");
                assert_eq!(asked.request.command, Command::Read);
                assert!(len > 0 && at + len <= asked.request.len);
                for byte in at..at + len {
                    assert!(asked.came & 1 << byte == 0, "it comes once");
                    asked.came |= 1 << byte;
                }
                if matches!(taken.event, Event::Data { .. }) {
                    reach("data", framing as u64);
                    *skip = len;
                } else {
                    reach("zeroes", framing as u64);
                }
            }
            Event::Extent { slot, len, state } => {
                let asked = asked[slot].expect("it is under way");
                assert_eq!(asked.request.command, Command::BlockStatus);
                assert!(len > 0 && state <= 3);
                reach("extent", framing as u64);
            }
            Event::Done { slot, result } => {
                let asked = asked[slot].take().expect("it ends once");
                let is_read = asked.request.command == Command::Read;
                assert!(
                    !is_read
                        || result.is_err()
                        || asked.came.count_ones() as u64 == asked.request.len
                );
                reach("done", (framing as u64) << 4 | u64::from(result.is_err()));
            }
        }
        events.push(taken.event);
    }
}

fn transmission(choices: &mut Choices<'_>) {
    let framing =
        [Framing::Simple, Framing::Structured, Framing::Extended][usize::from(choices.byte()) % 3];
    // Two clients of the same server; one receives its bytes in pieces.
    let new = || Transmission::new(&export(framing), NR_SLOTS);
    let (mut whole, mut pieces) = (new(), new());
    let mut asked = [[None; NR_SLOTS]; 2];
    let (mut streams, mut skips) = ([Vec::new(), Vec::new()], [0, 0]);
    while !choices.is_empty() {
        if choices.byte() & 1 == 0 {
            let before = *choices_at(choices);
            begin(choices, &mut whole, &mut asked[0]);
            begin(&mut Choices(before), &mut pieces, &mut asked[1]);
            continue;
        }
        let bytes = message(choices, framing, &asked[0]);
        streams[0].extend(&bytes);
        let first = take(&mut whole, &mut asked[0], &mut streams[0], &mut skips[0], framing);
        let mut second = Ok(Vec::new());
        for piece in bytes.chunks(usize::from(choices.byte()) % 20 + 1) {
            streams[1].extend(piece);
            let more = take(&mut pieces, &mut asked[1], &mut streams[1], &mut skips[1], framing);
            second = match (second, more) {
                (Ok(events), Ok(more)) => Ok([events, more].concat()),
                _ => Err(()),
            };
            if second.is_err() {
                break;
            }
            reach("in-two", 0);
        }
        assert_eq!(first, second);
        if first.is_err() {
            return;
        }
    }
}

/// Returns the remaining choices.
fn choices_at<'a, 'b>(choices: &'b Choices<'a>) -> &'b &'a [u8] {
    &choices.0
}

fn handshake(input: &[u8]) {
    let insists = input.first().is_some_and(|byte| byte & 1 == 1);
    let mut client = Handshake::new("disk", insists);
    let mut rest = input.get(1..).unwrap_or_default();
    let mut out = Vec::new();
    loop {
        match client.feed(rest, &mut out) {
            Err(error) => {
                assert!(!error.to_string().chars().any(char::is_control));
                return reach("refused", 0);
            }
            Ok(fed) => {
                rest = &rest[fed.consumed..];
                match fed.next {
                    Next::More => return,
                    Next::StartTls => {
                        assert!(insists);
                        reach("start-tls", 0);
                        client.tls_started(&mut out);
                    }
                    Next::Ready(export) => {
                        assert!(i64::try_from(export.size_bytes).is_ok());
                        assert!(export.framing != Framing::Simple || export.allocation.is_none());
                        return reach("ready", export.framing as u64);
                    }
                }
            }
        }
    }
}

fn run(input: &[u8]) {
    match input.first().map(|byte| byte % 8) {
        None => {}
        Some(0) => handshake(&input[1..]),
        Some(1) => {
            if let Ok(text) = std::str::from_utf8(&input[1..])
                && let Ok(uri) = Uri::parse(text)
            {
                reach("uri", 0);
                assert_eq!(Uri::parse(&uri.to_string()), Ok(uri));
            }
        }
        Some(_) => transmission(&mut Choices(&input[1..])),
    }
}

/// A handshake that accepts everything, one that declines everything, requests with replies, and
/// URIs.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![
        b"\x01nbd+unix:///a%20b?socket=%00name&tls-type=x509".to_vec(),
        b"\x01nbd:[::1]:99:exportname=x".to_vec(),
    ];
    for (tls, is_declined) in [(0, false), (0, true), (1, false)] {
        let mut says = vec![0, tls];
        says.put_u64(INIT_MAGIC);
        says.put_u64(OPTION_MAGIC);
        says.put_u16(3);
        let mut answer = |option: u32, kind: u32, data: &[u8]| {
            says.put_u64(OPTION_REPLY_MAGIC);
            says.put_u32(option);
            says.put_u32(kind);
            says.put_u32(data.len() as u32);
            says.put(data);
        };
        if tls == 1 {
            answer(OPT_STARTTLS, REP_ACK, b"");
        }
        let kind = if is_declined { REP_ERR_UNSUP } else { REP_ACK };
        answer(OPT_STRUCTURED_REPLY, kind, b"");
        if !is_declined {
            answer(OPT_EXTENDED_HEADERS, REP_ACK, b"");
            answer(OPT_SET_META_CONTEXT, REP_META_CONTEXT, b"\0\0\0\x01base:allocation");
            answer(OPT_SET_META_CONTEXT, REP_ACK, b"");
        }
        answer(OPT_GO, REP_INFO, &[0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 1, 0x6d]);
        answer(OPT_GO, REP_INFO, &[0, 3, 0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0]);
        answer(OPT_GO, REP_ACK, b"");
        seeds.push(says);
    }
    for framing in 0..3 {
        let read = [0, 0, 5, 1, 7];
        let status = [0, 1, 2, 1, 7];
        let message = |shape: u8, rest: &[u8]| [&[1, shape], rest, &[30]].concat();
        // Slot, generation, offset, length; then flags.
        seeds.push([&[2, framing][..], &read, &message(6, &[0, 0, 0])].concat());
        seeds.push([&[2, framing][..], &read, &message(6, &[0, 0, 1])].concat());
        seeds.push([&[2, framing][..], &read, &message(1, &[0, 0, 0, 8, 1])].concat());
        seeds.push([&[2, framing][..], &read, &message(2, &[0, 0, 0, 8, 1])].concat());
        seeds.push([&[2, framing][..], &read, &message(3, &[0, 0, 0, 2, 5, 1])].concat());
        let halves = [message(1, &[0, 0, 4, 4, 0]), message(2, &[0, 0, 0, 4, 1])].concat();
        seeds.push([&[2, framing][..], &read, &halves].concat());
        seeds
            .push([&[2, framing][..], &status, &message(4, &[1, 0, 0, 0, 0, 2, 9, 9, 1])].concat());
    }
    seeds
}

const CORPUS: &str = include_str!("../corpus-seeds/nbd_client.hex");

fuzz_target!(init: start(WANTED, &seeds(), CORPUS), |input: &[u8]| run(input));
