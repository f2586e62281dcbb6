//! Error paths: each request gets one reply, its tag is freed, and no stale memory is sent.
//!
//! After CVE-2020-10761 (an error message that was too long), and after information leaks: short or
//! failed reads, padded with the previous content of the buffer.

use super::{Target, lists};
use crate::common::folder;
use crate::serve::client::{Client, Framing, answer, command, option};
use std::fs::File;

/// Data of other clients, which no client may receive.
const SECRET: u8 = 0xa5;
const EIO: u32 = 5;

#[test]
fn each_failure_has_its_reply_and_the_next_request_works() {
    let folder = folder();
    // Each operation fails more often than there are tags.
    let rules = "rule=read:medium:range=64k+4k&rule=write:io:range=64k+4k&\
                 rule=discard:io:range=64k+4k&rule=write_zeroes:io:range=64k+4k";
    let spec = format!("fault:ram:1m?queue_depth=8&{rules}");
    let mut target = Target::start(&folder, &spec);
    for framing in [Framing::Simple, Framing::Structured, Framing::Extended] {
        let mut client = target.haggling();
        agree(&mut client, framing);
        for _ in 0..64 {
            for command in [command::READ, command::TRIM, command::WRITE_ZEROES] {
                let error = client.ask((command, 0), 65_536, 4096, &[]).expect("a reply");
                assert_eq!(error, EIO, "command {command}");
            }
            let write = (command::WRITE, 0);
            assert_eq!(client.ask(write, 65_536, 4096, &[1; 4096]).ok(), Some(EIO));
            assert_eq!(client.ask(write, 4096, 4096, &[2; 4096]).ok(), Some(0));
            assert_eq!(client.read(4096, 4096).ok(), Some(vec![2; 4096]));
            // A read that fails in part returns no data as if it were valid.
            let error = client.ask((command::READ, 0), 60 << 10, 64 << 10, &[]);
            assert_eq!(error.expect("a reply"), EIO, "{framing:?}");
        }
    }
    // Commands that do not exist.
    for framing in [Framing::Simple, Framing::Structured, Framing::Extended] {
        let mut client = target.haggling();
        agree(&mut client, framing);
        for command in [8, 9, 100, u16::MAX] {
            let error = client.ask((command, 0), 0, 512, &[]).expect("a reply");
            assert!(error == 22 || error == 95, "command {command}: {error}");
            assert!(client.read(4096, 512).is_ok());
        }
    }
    target.is_alive("failures");
    target.end();
}

/// The flush of one connection covers the writes of another, and its failure is reported.
#[test]
fn failed_flush_is_reported() {
    let folder = folder();
    std::fs::write(folder.path().join("disk.img"), vec![0; 1 << 20]).expect("a file");
    let target = Target::start(&folder, "fault:disk.img?rule=flush:io:after=2");
    let (mut first, mut second) = (target.connect(), target.connect());
    let (write, flush) = ((command::WRITE, 0), (command::FLUSH, 0));
    assert_eq!(first.ask(write, 0, 512, &[1; 512]).ok(), Some(0));
    assert_eq!(second.ask(flush, 0, 0, &[]).ok(), Some(0), "the first is good");
    assert_eq!(first.ask(write, 0, 512, &[2; 512]).ok(), Some(0));
    assert_eq!(second.ask(flush, 0, 0, &[]).ok(), Some(EIO));
    assert_eq!(first.ask(flush, 0, 0, &[]).ok(), Some(EIO), "it is not tried again in silence");
    assert_eq!(first.read(0, 512).ok(), Some(vec![2; 512]), "the connection goes on");
}

#[track_caller]
fn agree(client: &mut Client, framing: Framing) {
    let option = match framing {
        Framing::Simple => None,
        Framing::Structured => Some(option::STRUCTURED_REPLY),
        Framing::Extended => Some(option::EXTENDED_HEADERS),
    };
    if let Some(option) = option {
        client.option(option, &[]).expect("it is sent");
        assert_eq!(client.answer().expect("an answer").kind, answer::ACK);
    }
    client.go("").expect("the default export");
    client.framing = framing;
}

#[test]
fn long_and_strange_names_are_refused_in_few_words() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m");
    let strange = [
        "x".repeat(4096).into_bytes(),
        "x".repeat(4097).into_bytes(),
        vec![0xff; 4096],
        vec![0; 100],
        b"../../../etc/passwd".to_vec(),
        b"/etc/passwd".to_vec(),
        b"ram:1g".to_vec(),
        b"%s%n%x\x1b[2J\r\n".to_vec(),
    ];
    for name in strange {
        for option in [option::INFO, option::GO] {
            let mut data = (name.len() as u32).to_be_bytes().to_vec();
            data.extend(&name);
            data.extend([0, 0]);
            let mut client = target.haggling();
            client.option(option, &data).expect("it is sent");
            let answer = client.answer().expect("an answer");
            assert!(answer.kind & answer::ERROR != 0, "{:#x}", answer.kind);
            assert!(answer.data.len() <= 4096);
            assert!(lists(&mut client));
        }
        let mut client = target.haggling();
        client.option(option::EXPORT_NAME, &name).expect("it is sent");
        assert!(client.is_closed());
    }
    target.is_alive("names");
    assert!(!target.server.log().contains('\x1b'), "the log is for terminals");
    target.end();
}

/// Fills the server's memory with data that no other client may receive.
#[track_caller]
fn poison(target: &Target, name: &str) {
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = Client::connect(target.server.socket(), name).expect("a connection");
            for len in [512, 4096, 65_536, 1 << 20] {
                for _ in 0..8 {
                    let payload = vec![SECRET; len as usize];
                    assert_eq!(client.ask((command::WRITE, 0), 0, len, &payload).ok(), Some(0));
                    assert_eq!(client.read(0, len).ok(), Some(payload));
                }
            }
            client
        })
        .collect();
    drop(clients);
}

#[test]
fn no_client_reads_stale_memory() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    let file = File::create(&path).expect("a file");
    file.set_len(4 << 20).expect("it grows");
    let bad = "fault:ram:4m?rule=read:short=1k:rate=0.5&rule=read:io:rate=0.3";
    let args = format!("ram:4m disk.img {bad} --name secret --name file --name bad");
    let mut target = Target::start(&folder, &args);
    poison(&target, "secret");
    // The file is truncated while it is served.
    file.set_len(100_000).expect("it shrinks");
    for framing in [Framing::Simple, Framing::Structured] {
        for name in ["file", "bad"] {
            let mut client = target.haggling();
            if framing == Framing::Structured {
                client.option(option::STRUCTURED_REPLY, &[]).expect("it is sent");
                client.answer().expect("an answer");
            }
            client.go(name).expect("the export");
            client.framing = framing;
            for (offset, len) in [(0, 65_536), (98_304, 4096), (65_536, 1 << 20), (3 << 20, 65_536)]
            {
                for _ in 0..8 {
                    poison_one(&mut target.witness);
                    // A failed read has no data, and the data of a successful read are zero.
                    if let Ok(data) = client.read(offset, len) {
                        assert!(data.iter().all(|byte| *byte == 0), "{name} at {offset}");
                    }
                    if client.read(0, 512).is_err() {
                        // If the header is already sent, simple replies cannot report an error and
                        // end the connection.
                        client = Client::connect(target.server.socket(), name).expect("another");
                        client.framing = Framing::Simple;
                    }
                }
            }
        }
    }
    target.is_alive("leaks");
    drop(target);
}

fn poison_one(client: &mut Client) {
    let error = client.ask((command::WRITE, 0), 0, 65_536, &vec![SECRET; 65_536]);
    assert!(error.is_ok());
}
