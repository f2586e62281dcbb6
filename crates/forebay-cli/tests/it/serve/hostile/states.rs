//! The handshake as a state machine: options in every order, disconnects at every byte, and
//! messages that come too early or too late.
//!
//! After CVE-2013-7441 (a disconnect or an unknown name ended the server), CVE-2017-7539 (early
//! data), CVE-2019-14850 and CVE-2019-14851 (the order of options), CVE-2021-3716 (plaintext from
//! before TLS was kept).

use super::{Target, framing_after, names_default, queries};
use crate::common::folder;
use crate::serve::client::{Client, Framing, answer, command, option, request};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

const PEEK_EXPORT: u32 = 4;
const UNKNOWN: u32 = 99;
const OPTIONS: [u32; 9] = [
    option::LIST,
    PEEK_EXPORT,
    option::STARTTLS,
    option::INFO,
    option::STRUCTURED_REPLY,
    option::LIST_META_CONTEXT,
    option::SET_META_CONTEXT,
    option::EXTENDED_HEADERS,
    UNKNOWN,
];

fn data_of(option: u32) -> Vec<u8> {
    match option {
        option::INFO => names_default(),
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => queries(b"base:allocation"),
        _ => Vec::new(),
    }
}

/// Sends an option and receives its answers. Returns whether it was granted.
#[track_caller]
fn haggle(client: &mut Client, option: u32) -> bool {
    client.option(option, &data_of(option)).expect("it is sent");
    loop {
        let answer = client.answer().expect("an answer");
        assert_eq!(answer.option, option, "the answer to something else");
        if answer.kind == answer::ACK {
            return true;
        }
        if answer.kind & answer::ERROR != 0 {
            return false;
        }
    }
}

#[track_caller]
fn walk(target: &Target, options: &[u32]) {
    let mut client = target.haggling();
    for (nth, &option) in options.iter().enumerate() {
        let before = framing_after(&options[..nth]);
        let is_granted = haggle(&mut client, option);
        let expected = match option {
            option::LIST | option::INFO | option::EXTENDED_HEADERS => true,
            option::STRUCTURED_REPLY => before != Framing::Extended,
            option::SET_META_CONTEXT => before != Framing::Simple,
            // A list is allowed before structured replies are negotiated.
            option::LIST_META_CONTEXT => is_granted,
            _ => false,
        };
        assert_eq!(is_granted, expected, "{option} as number {nth} of {options:?}");
    }
    client.go("").expect("the default export");
    client.framing = framing_after(options);
    assert_eq!(client.read(0, 512).ok(), Some(vec![0; 512]), "{options:?}");
    // BLOCK_STATUS is available to clients that have selected the context.
    let has_contexts = (0..options.len()).any(|nth| {
        options[nth] == option::SET_META_CONTEXT
            && framing_after(&options[..nth]) != Framing::Simple
    });
    let error = client.ask((command::BLOCK_STATUS, 0), 0, 512, &[]).expect("a reply");
    // Negotiating extended headers may reset an earlier selection.
    if !has_contexts || options.last() == Some(&option::SET_META_CONTEXT) {
        assert_eq!(error == 0, has_contexts, "{options:?}: {error}");
    }
    assert!(client.read(0, 512).is_ok(), "{options:?}");
}

#[test]
fn options_may_come_in_any_order() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m");
    for first in OPTIONS {
        walk(&target, &[first]);
        for second in OPTIONS {
            walk(&target, &[first, second]);
            for third in OPTIONS {
                walk(&target, &[first, second, third]);
            }
        }
        target.is_alive(&format!("walks that begin with option {first}"));
    }
    // A sample of longer sequences, from a pseudorandom generator modulo 9.
    for seed in 0..400u32 {
        let step = |nth: u32| OPTIONS[(seed.wrapping_mul(2_654_435_761) >> (nth * 5)) as usize % 9];
        walk(&target, &[0, 1, 2, 3, 4].map(step));
    }
    target.end();
}

/// Returns all bytes that a client sends in a whole session.
fn session() -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    let mut add = |option: u32, data: &[u8]| {
        bytes.extend(crate::serve::client::IHAVEOPT.to_be_bytes());
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    };
    add(option::STRUCTURED_REPLY, &[]);
    add(option::SET_META_CONTEXT, &queries(b"base:allocation"));
    add(option::GO, &names_default());
    bytes.extend(request((command::READ, 0), 1, 0, 1024));
    bytes.extend(request((command::WRITE, command::FUA), 2, 4096, 512));
    bytes.extend([9; 512]);
    bytes.extend(request((command::BLOCK_STATUS, 0), 3, 0, 4096));
    bytes.extend(request((command::FLUSH, 0), 4, 0, 0));
    bytes.extend(request((command::DISCONNECT, 0), 5, 0, 0));
    bytes
}

#[test]
fn a_client_may_end_after_every_byte() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m --max-connections=2000");
    let session = session();
    for len in 0..=session.len() {
        for is_half in [false, true] {
            let mut stream = UnixStream::connect(target.server.socket()).expect("a connection");
            stream.write_all(&session[..len]).expect("it is sent");
            if is_half {
                // The client can still receive.
                stream.shutdown(Shutdown::Write).expect("it can be");
                stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("it can");
                let mut rest = Vec::new();
                let read = std::io::Read::read_to_end(&mut stream, &mut rest);
                let is_closed = match &read {
                    Ok(_) => true,
                    Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
                };
                assert!(is_closed, "the server does not hang up after {len} bytes: {read:?}");
            }
        }
    }
    target.is_alive("ends");
    target.end();
}

#[test]
fn bytes_may_come_one_by_one() {
    let folder = folder();
    let target = Target::start(&folder, "ram:1m");
    let mut stream = UnixStream::connect(target.server.socket()).expect("a connection");
    for byte in session() {
        stream.write_all(&[byte]).expect("it is sent");
    }
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("it can be set");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut rest).expect("replies, and the end");
    // Two replies of each kind: simple ones to the writes and flushes, and structured ones.
    for magic in [[0x67, 0x44, 0x66, 0x98], [0x66, 0x8e, 0x33, 0xef]] {
        let nr_replies = rest.windows(4).filter(|word| *word == magic).count();
        assert_eq!(nr_replies, 2, "replies with {magic:x?}");
    }
    target.end();
}

#[test]
fn client_out_of_step_is_disconnected() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m");
    // Requests before an export was chosen, options after it, noise, another protocol.
    let read = request((command::READ, 0), 1, 0, 512);
    let http = b"GET / HTTP/1.1\r\nHost: forebay\r\n\r\n";
    for noise in [&read[..], &[0xff; 64], &http[..], &[0; 64]] {
        let mut client = target.haggling();
        client.stream.write_all(noise).expect("it is sent");
        assert!(client.is_closed());
        let mut client = Client::greeted(target.server.socket()).expect("a connection");
        client.stream.write_all(noise).expect("it is sent");
        assert!(client.is_closed());
        if noise == read {
            continue;
        }
        let mut client = target.connect();
        client.stream.write_all(noise).expect("it is sent");
        assert!(client.is_closed());
    }
    let mut client = target.connect();
    client.option(option::LIST, &[0; 12]).expect("it is sent");
    assert!(client.is_closed());
    target.is_alive("noise");
    target.end();
}
