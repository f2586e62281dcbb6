//! The plain course of a connection, in each framing.

use std::vec::Vec;

use super::client::{Client, End, FLAGS, SIZE, contexts, go, option};
use crate::server::{CloseReason, Command, NbdError, TlsPolicy};
use crate::wire::numbers::*;
use crate::wire::{ChunkHeader, ErrorChunk, Framing, RequestHeader, SimpleReply, StatusChunk};

#[test]
fn export_name_goes_with_and_without_zeroes() {
    for (flags, zeroes) in [(FLAGS, 0), ([0, 0, 0, 1], 124), ([0, 0, 0, 0], 124), ([0, 0, 0, 2], 0)]
    {
        let mut client = Client::greeted(TlsPolicy::Off);
        client.send(&flags);
        let (out, end) = client.send(&option(OPT_EXPORT_NAME, b"b"));
        assert_eq!(out.len(), 10 + zeroes);
        assert_eq!(out[..8], SIZE.to_be_bytes());
        assert_eq!(out[8..10], 0x0d6d_u16.to_be_bytes());
        assert!(out[10..].iter().all(|&byte| byte == 0));
        let End::Transmission(transmission) = end else { panic!("{end:?}") };
        assert_eq!((transmission.export(), transmission.header_len()), (1, 28));
    }
}

#[test]
fn go_and_info_return_the_requested_items() {
    let mut client = Client::new(TlsPolicy::Off);
    let always = ["export 1073741824 0xd6d", "block 512 4096 33554432"];
    assert_eq!(client.ask(&go(OPT_INFO, "a", &[])), [always[0], always[1], "ack"]);
    let all = [INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_NAME, 77, INFO_NAME];
    let told = client.ask(&go(OPT_INFO, "", &all));
    assert_eq!(told, [always[0], always[1], "name a", "description it is a", "ack"]);
    assert_eq!(client.ask(&option(OPT_STRUCTURED_REPLY, b"")), ["ack"]);
    let told = client.ask(&go(OPT_INFO, "b", &[]));
    assert_eq!(told[0], "export 1073741824 0xded");
    assert_eq!(client.ask(&go(OPT_GO, "c", &[])), ["error 6"]);
    assert_eq!(client.go("b").export(), 1);
}

#[test]
fn a_full_server_says_so_and_lets_clients_look_and_try_again() {
    let mut client = Client::new(TlsPolicy::Off);
    client.handshake.set_full(true);
    assert_eq!(client.ask(&go(OPT_GO, "a", &[])), ["error 2"]);
    assert_eq!(client.ask(&go(OPT_INFO, "a", &[])).last().unwrap(), "ack");
    assert_eq!(client.ask(&go(OPT_GO, "c", &[])), ["error 6"]);
    client.handshake.set_full(false);
    assert_eq!(client.go("b").export(), 1);
    let mut client = Client::new(TlsPolicy::Off);
    client.handshake.set_full(true);
    let (out, end) = client.send(&option(OPT_EXPORT_NAME, b"a"));
    assert!(out.is_empty() && end == End::Close(CloseReason::Full), "{end:?}");
}

#[test]
fn a_list_has_every_export() {
    let mut client = Client::new(TlsPolicy::Off);
    let told = client.ask(&option(OPT_LIST, b""));
    assert_eq!(told, ["server a (it is a)", "server b (it is b)", "ack"]);
}

#[test]
fn contexts_are_listed_and_set() {
    let mut client = Client::new(TlsPolicy::Off);
    client.ask(&option(OPT_STRUCTURED_REPLY, b""));
    let mut ask = |option, queries: &[&str]| client.ask(&contexts(option, "a", queries));
    let listed = ["context 0 base:allocation", "ack"];
    assert_eq!(ask(OPT_LIST_META_CONTEXT, &[]), listed);
    assert_eq!(ask(OPT_LIST_META_CONTEXT, &["base:"]), listed);
    assert_eq!(ask(OPT_LIST_META_CONTEXT, &["x-y:", "base:allocation", "base:"]), listed);
    assert_eq!(ask(OPT_LIST_META_CONTEXT, &["qemu:allocation-depth", "base:else"]), ["ack"]);
    assert_eq!(ask(OPT_SET_META_CONTEXT, &[]), ["ack"]);
    assert_eq!(ask(OPT_SET_META_CONTEXT, &["base:"]), ["ack"]);
    let set = ["context 1 base:allocation", "ack"];
    assert_eq!(ask(OPT_SET_META_CONTEXT, &["base:", "base:allocation", "base:allocation"]), set);
    assert!(client.go("a").has_contexts);
}

fn read(offset: u64, len: u64, flags: u16) -> RequestHeader {
    RequestHeader { flags, command: CMD_READ, cookie: 0x1122, offset, len }
}

#[test]
fn a_read_is_answered_simply() {
    let transmission = Client::new(TlsPolicy::Off).go("a");
    let mut bytes = Vec::new();
    read(4096, 1024, 0).emit_compact(&mut bytes);
    let rq = transmission.parse(&bytes).unwrap();
    assert_eq!((rq.cookie, rq.offset, rq.len, rq.payload_len), (0x1122, 4096, 1024, 0));
    assert_eq!(rq.command, Ok(Command::Read { df: false }));
    let head = transmission.data(&rq, 4096, 512, true, false);
    assert_eq!(SimpleReply::parse(head.as_slice()), Some(SimpleReply { error: 0, cookie: 0x1122 }));
    assert_eq!(transmission.data(&rq, 4608, 512, false, true).as_slice(), b"");
    assert!(!transmission.can_fail_late());
    let mut out = Vec::new();
    transmission.error(&rq, NbdError::Io, "not sent", &mut out);
    assert_eq!(SimpleReply::parse(&out), Some(SimpleReply { error: 5, cookie: 0x1122 }));
    assert_eq!(out.len(), SimpleReply::LEN);
}

#[test]
fn a_read_is_answered_in_chunks() {
    for (opt, framing) in
        [(OPT_STRUCTURED_REPLY, Framing::Structured), (OPT_EXTENDED_HEADERS, Framing::Extended)]
    {
        let is_extended = framing == Framing::Extended;
        let mut client = Client::new(TlsPolicy::Off);
        client.ask(&option(opt, b""));
        let transmission = client.go("a");
        let mut bytes = Vec::new();
        if is_extended {
            read(4096, 1024, 0).emit_extended(&mut bytes);
        } else {
            read(4096, 1024, 0).emit_compact(&mut bytes);
        }
        assert_eq!(bytes.len(), transmission.header_len());
        let rq = transmission.parse(&bytes).unwrap();
        assert_eq!(rq.command, Ok(Command::Read { df: false }));
        let header_len = if is_extended { 32 } else { 20 };
        let parse = |bytes: &[u8]| {
            let header = if is_extended {
                ChunkHeader::parse_extended(bytes)
            } else {
                ChunkHeader::parse_structured(bytes)
            };
            let header = header.unwrap();
            assert_eq!(header.cookie, 0x1122);
            assert_eq!(header.offset, if is_extended { 4096 } else { 0 });
            (header.kind, header.flags, header.len)
        };
        let head = transmission.data(&rq, 4608, 512, true, false);
        assert_eq!(parse(head.as_slice()), (REPLY_OFFSET_DATA, 0, 520));
        assert_eq!(head.as_slice()[header_len..], 4608_u64.to_be_bytes());
        assert_eq!(parse(transmission.done(&rq).as_slice()), (REPLY_NONE, 1, 0));
        assert!(transmission.can_fail_late());
        let mut out = Vec::new();
        transmission.error(&rq, NbdError::Io, "it burns", &mut out);
        assert_eq!(parse(&out), (REPLY_ERROR, 1, 14));
        let error = ErrorChunk::parse(REPLY_ERROR, &out[header_len..]).unwrap();
        assert_eq!((error.error, error.message), (5, &b"it burns"[..]));
    }
}

#[test]
fn block_status_is_cut_to_the_request_and_joined() {
    for (opt, kind) in
        [(OPT_STRUCTURED_REPLY, REPLY_BLOCK_STATUS), (OPT_EXTENDED_HEADERS, REPLY_BLOCK_STATUS_EXT)]
    {
        let mut client = Client::new(TlsPolicy::Off);
        client.ask(&option(opt, b""));
        client.ask(&contexts(OPT_SET_META_CONTEXT, "a", &[BASE_ALLOCATION]));
        let transmission = client.go("a");
        let is_extended = opt == OPT_EXTENDED_HEADERS;
        let status = |flags, given: &[(u64, u32)]| {
            let mut bytes = Vec::new();
            let header =
                RequestHeader { flags, command: CMD_BLOCK_STATUS, cookie: 7, offset: 0, len: 8192 };
            if is_extended {
                header.emit_extended(&mut bytes);
            } else {
                header.emit_compact(&mut bytes);
            }
            let rq = transmission.parse(&bytes).unwrap();
            assert_eq!(rq.command, Ok(Command::BlockStatus { one: flags != 0 }));
            let mut out = Vec::new();
            transmission.extents(&rq, given, &mut out);
            let payload = &out[if is_extended { 32 } else { 20 }..];
            let status = StatusChunk::parse(kind, payload).unwrap();
            assert_eq!(status.context, 1);
            status.extents.collect::<Vec<_>>()
        };
        assert_eq!(status(0, &[(4096, 3), (512, 3), (1 << 40, 0)]), [(4608, 3), (3584, 0)]);
        assert_eq!(status(CMD_FLAG_REQ_ONE, &[(4096, 3), (512, 3), (512, 0)]), [(4608, 3)]);
        assert_eq!(status(0, &[(100, 3), (200, 3), (300, 2), (8192, 0)]), [(512, 2), (7680, 0)]);
        assert_eq!(status(0, &[]), [(8192, 0)]);
        assert_eq!(status(0, &[(0, 3), (600, 1)]), [(512, 1)]);
        assert_eq!(status(0, &[(500, 3)]), [(8192, 0)]);
    }
}
