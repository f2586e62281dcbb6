//! Lengths: every length that a client may announce, at and around each limit, sent in full or not.
//!
//! After CVE-2022-26495, CVE-2022-26496, CVE-2017-15118 (names and options longer than their
//! allocation), CVE-2017-15119 (an option of 4 GiB), CVE-2025-47711 and CVE-2025-47712 (the largest
//! legal request).

use super::{Target, lists, names_default, queries};
use crate::common::folder;
use crate::serve::client::{Client, answer, command, option};
use std::io::Write;

const LENGTHS: [u32; 14] = [
    0,
    1,
    4,
    4095,
    4096,
    4097,
    (16 << 10) - 1,
    16 << 10,
    (16 << 10) + 1,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX - 1,
    u32::MAX,
];
/// Upper limit of the bytes that are sent of an announced length.
const MOST_SENT: u32 = 64 << 10;

#[test]
fn options_of_every_length_are_answered_or_cut_off() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m");
    for option in (0..=12).chain([255, u32::MAX]) {
        for len in LENGTHS {
            for fill in [0, 0xff] {
                let mut client = target.haggling();
                let data = vec![fill; len.min(MOST_SENT) as usize];
                // The server may have hung up by then.
                let sent = client.option_of_len(option, len, &data);
                if sent.is_err() || len > MOST_SENT {
                    continue;
                }
                in_step_or_closed(&mut client, option, len);
            }
        }
        target.is_alive(&format!("option {option}"));
    }
    target.end();
}

/// Checks that an option that was sent in full is answered, and that later options are too; or that
/// the connection is closed. The answer to `EXPORT_NAME` is an export or the end of the connection.
#[track_caller]
fn in_step_or_closed(client: &mut Client, option: u32, len: u32) {
    if option == option::EXPORT_NAME {
        if len == 0 {
            let size: [u8; 8] = client.take().expect("the default export");
            assert_eq!(u64::from_be_bytes(size), 1 << 20);
        } else {
            assert!(client.is_closed(), "there is no such export");
        }
        return;
    }
    loop {
        let Ok(answer) = client.answer() else { return };
        assert_eq!(answer.option, option);
        assert!(answer.data.len() < 8192, "{option} of {len} bytes: {} back", answer.data.len());
        if answer.kind == answer::ACK || answer.kind & answer::ERROR != 0 {
            break;
        }
    }
    if option == option::ABORT || option == option::GO {
        return;
    }
    assert!(lists(client), "option {option} of {len} bytes: out of step");
}

#[test]
fn lengths_within_options_are_checked_against_the_option() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m");
    let good = [
        (option::GO, names_default()),
        (option::INFO, names_default()),
        (option::LIST_META_CONTEXT, queries(b"base:allocation")),
        (option::SET_META_CONTEXT, queries(b"base:allocation")),
    ];
    for (option, good) in good {
        for at in [0, 4, 8] {
            for len in LENGTHS {
                let mut data = good.clone();
                let end = good.len().min(at + 4);
                if at >= end {
                    continue;
                }
                data[at..end].copy_from_slice(&len.to_be_bytes()[..end - at]);
                if data == good {
                    continue;
                }
                let mut client = target.haggling();
                client.option(option::STRUCTURED_REPLY, &[]).expect("it is sent");
                assert_eq!(client.answer().expect("an answer").kind, answer::ACK);
                client.option(option, &data).expect("it is sent");
                let kind = client.answer().expect("an answer").kind;
                assert!(kind & answer::ERROR != 0, "{option} {at} {len}: {kind:#x}");
                assert!(lists(&mut client), "{option} {at} {len}: out of step");
            }
        }
        target.is_alive(&format!("option {option}"));
    }
    target.end();
}

#[test]
fn many_queries_and_many_options_are_borne() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m");
    // As many queries as fit, all of length 0.
    let mut data = vec![0; 4];
    data.extend(3000u32.to_be_bytes());
    (0..3000).for_each(|_| data.extend([0; 4]));
    for option in [option::LIST_META_CONTEXT, option::SET_META_CONTEXT] {
        let mut client = target.haggling();
        client.option(option::STRUCTURED_REPLY, &[]).expect("it is sent");
        client.answer().expect("an answer");
        client.option(option, &data).expect("it is sent");
        while client.answer().expect("an answer").kind == 4 {}
        assert!(lists(&mut client));
    }
    // Endless options, and the client receives no answers.
    let mut client = target.haggling();
    client.stream.set_nonblocking(true).expect("it can be");
    for _ in 0..1_000_000 {
        if client.option(option::LIST, &[]).is_err() {
            break;
        }
    }
    target.is_alive("options without end");
    drop(client);
    target.end();
}

/// The largest requests, on a disk that is large enough and on one that is not.
#[test]
fn requests_of_every_length_are_done_or_refused() {
    let folder = folder();
    let mut target = Target::start(&folder, "null:8g");
    let lengths = [0, 1, 511, 512, 4096, 1 << 20, (64 << 20) - 512, 64 << 20, (64 << 20) + 512];
    let commands = [
        command::READ,
        command::TRIM,
        command::CACHE,
        command::WRITE_ZEROES,
        command::BLOCK_STATUS,
        command::FLUSH,
        command::WRITE,
    ];
    for command in commands {
        for len in lengths.into_iter().chain(LENGTHS) {
            let mut client = target.connect();
            let cookie = client.send((command, 0), 0, len, &[]).expect("it is sent");
            if command == command::WRITE && !pays(&mut client, len) {
                continue;
            }
            // The server closes the connection after a request that may be an attack.
            let Ok(reply) = client.reply() else { continue };
            assert_eq!(reply.cookie, cookie);
            if command == command::READ && reply.error == 0 {
                let mut left = len as usize;
                let mut piece = vec![0; 1 << 20];
                while left > 0 {
                    let nr = left.min(piece.len());
                    std::io::Read::read_exact(&mut client.stream, &mut piece[..nr]).expect("data");
                    left -= nr;
                }
            }
            assert!(client.read(0, 512).is_ok(), "command {command} of {len} bytes: out of step");
        }
        target.is_alive(&format!("command {command}"));
    }
    target.end();
}

/// Sends the payload of a write. Returns whether all of it was sent.
fn pays(client: &mut Client, len: u32) -> bool {
    let piece = vec![3; 1 << 20];
    let mut left = len as usize;
    // For a payload longer than 80 MiB, the server closes the connection long before its end.
    while left > 0 && len < 80 << 20 {
        let nr = left.min(piece.len());
        if client.stream.write_all(&piece[..nr]).is_err() {
            return false;
        }
        left -= nr;
    }
    left == 0
}
