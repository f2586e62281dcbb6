//! Each error of the handshake: its reply conforms to the document, and the next option works.

use std::vec::Vec;

use super::client::{Client, End, FLAGS, contexts, export, go, option, words};
use crate::server::handshake::{NR_OPTIONS_MAX, OPTION_MAX, REPLIES_PAUSE, SKIPPED_MAX};
use crate::server::{CloseReason, Next, TlsPolicy};
use crate::wire::numbers::*;
use crate::wire::{OptionHeader, Sink};

const UNSUP: &str = "error 1";
const POLICY: &str = "error 2";
const INVALID: &str = "error 3";
const TLS_REQD: &str = "error 5";
const UNKNOWN: &str = "error 6";
const TOO_BIG: &str = "error 9";
const EXT_HEADER_REQD: &str = "error 10";

/// Returns the data of a GO whose fields may contradict each other.
fn raw_go(name_len: u32, name: &[u8], nr_infos: u16, infos: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u32(name_len);
    data.put(name);
    data.put_u16(nr_infos);
    data.put(infos);
    data
}

/// Returns the data of a SET_META_CONTEXT whose fields may contradict each other.
fn raw_set(name_len: u32, name: &[u8], nr_queries: u32, queries: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u32(name_len);
    data.put(name);
    data.put_u32(nr_queries);
    data.put(queries);
    data
}

/// Checks that the stream is in step: the server parses the next option.
fn is_in_step(client: &mut Client) {
    let told = client.ask(&option(OPT_LIST, b""));
    assert_eq!(told.len(), client.exports.len() + 1);
    assert_eq!(told.last().unwrap(), "ack");
}

#[test]
fn every_refused_option_is_answered_and_the_next_one_is_understood() {
    let long = "n".repeat(4097);
    let table: Vec<(&str, Vec<u8>, &str)> = [
        ("unknown", option(4, b""), UNSUP),
        ("unknown, with data", option(0xffff_ffff, &[7; 5000]), UNSUP),
        ("unknown, with more data than are kept", option(12, &[7; 100_000]), UNSUP),
        ("LIST with data", option(OPT_LIST, b"x"), INVALID),
        ("LIST with many", option(OPT_LIST, &[0; 100_000]), INVALID),
        ("STARTTLS where there is none", option(OPT_STARTTLS, b""), POLICY),
        ("STARTTLS with data", option(OPT_STARTTLS, b"x"), INVALID),
        ("STRUCTURED_REPLY with data", option(OPT_STRUCTURED_REPLY, b"x"), INVALID),
        ("EXTENDED_HEADERS with data", option(OPT_EXTENDED_HEADERS, b"x"), INVALID),
        ("GO without data", option(OPT_GO, b""), INVALID),
        ("GO with half a length", option(OPT_GO, b"\0\0\0"), INVALID),
        ("GO without a number of infos", option(OPT_GO, b"\0\0\0\0"), INVALID),
        ("GO, name longer than it", option(OPT_GO, &raw_go(9, b"a", 0, b"")), INVALID),
        ("GO, name up to its end", option(OPT_GO, &raw_go(3, b"a", 0, b"")), INVALID),
        ("GO, too few infos", option(OPT_GO, &raw_go(1, b"a", 2, b"\0\0")), INVALID),
        ("GO, half an info", option(OPT_GO, &raw_go(1, b"a", 1, b"\0")), INVALID),
        ("GO, too many infos", option(OPT_GO, &raw_go(1, b"a", 0, b"\0\0")), INVALID),
        ("GO to nowhere", go(OPT_GO, "nowhere", &[]), UNKNOWN),
        ("INFO of nothing", go(OPT_INFO, "nowhere", &[]), UNKNOWN),
        ("GO, a name cut short", go(OPT_GO, "aa", &[]), UNKNOWN),
        ("GO, a name with a NUL", go(OPT_GO, "a\0", &[]), UNKNOWN),
        ("GO, a name too long", go(OPT_GO, &long, &[]), TOO_BIG),
        ("GO, data too long", option(OPT_GO, &[0; 17000]), TOO_BIG),
        ("SET too early", contexts(OPT_SET_META_CONTEXT, "a", &[BASE_ALLOCATION]), INVALID),
        ("LIST of contexts of nothing", contexts(OPT_LIST_META_CONTEXT, "c", &[]), UNKNOWN),
    ]
    .into();
    let mut client = Client::new(TlsPolicy::Off);
    for (what, bytes, answer) in table {
        assert_eq!(client.ask(&bytes), [answer], "{what}");
        is_in_step(&mut client);
    }
}

#[test]
fn refused_contexts_are_answered_and_forget_those_before() {
    let long = "n".repeat(4097);
    let set = |data: &[u8]| option(OPT_SET_META_CONTEXT, data);
    let query = b"\0\0\0\x0fbase:allocation";
    let table = [
        ("no data", set(b""), INVALID),
        ("name longer than it", set(&raw_set(100, b"a", 0, b"")), INVALID),
        ("no number of queries", set(b"\0\0\0\x01a"), INVALID),
        ("too few queries", set(&raw_set(1, b"a", 2, query)), INVALID),
        ("far too few queries", set(&raw_set(1, b"a", u32::MAX, query)), INVALID),
        ("too many queries", set(&raw_set(1, b"a", 0, query)), INVALID),
        ("query longer than it", set(&raw_set(1, b"a", 1, b"\0\0\0\x10base:allocation")), INVALID),
        ("bytes behind", set(&raw_set(1, b"a", 1, b"\0\0\0\x0ebase:allocation")), INVALID),
        ("no such export", contexts(OPT_SET_META_CONTEXT, "c", &[BASE_ALLOCATION]), UNKNOWN),
        ("name too long", contexts(OPT_SET_META_CONTEXT, &long, &[BASE_ALLOCATION]), TOO_BIG),
        ("data too long", set(&[0; 17000]), TOO_BIG),
    ];
    for (what, bytes, answer) in table {
        let mut client = Client::new(TlsPolicy::Off);
        client.ask(&option(OPT_STRUCTURED_REPLY, b""));
        let selected = client.ask(&contexts(OPT_SET_META_CONTEXT, "a", &[BASE_ALLOCATION]));
        assert_eq!(selected, ["context 1 base:allocation", "ack"]);
        assert_eq!(client.ask(&bytes), [answer], "{what}");
        is_in_step(&mut client);
        assert!(!client.go("a").has_contexts, "{what}");
    }
}

#[test]
fn contexts_count_for_the_export_that_they_were_selected_for() {
    for (selected, gone_to, counts) in
        [("a", "a", true), ("a", "b", false), ("b", "b", true), ("", "a", true), ("a", "", true)]
    {
        let mut client = Client::new(TlsPolicy::Off);
        client.ask(&option(OPT_EXTENDED_HEADERS, b""));
        client.ask(&contexts(OPT_SET_META_CONTEXT, selected, &[BASE_ALLOCATION]));
        client.ask(&go(OPT_INFO, "b", &[]));
        client.ask(&go(OPT_GO, "nowhere", &[]));
        client.ask(&contexts(OPT_LIST_META_CONTEXT, "b", &[]));
        assert_eq!(client.go(gone_to).has_contexts, counts, "{selected} {gone_to}");
    }
}

#[test]
fn an_empty_name_prefers_the_export_that_has_it() {
    let mut client = Client::new(TlsPolicy::Off);
    client.exports.push(export(""));
    assert_eq!(client.go("").export(), 2);
    let mut client = Client::new(TlsPolicy::Off);
    client.exports.clear();
    assert_eq!(client.ask(&go(OPT_GO, "", &[])), [UNKNOWN]);
    assert_eq!(client.ask(&option(OPT_LIST, b"")), ["ack"]);
}

#[test]
fn extended_headers_win_over_structured_replies() {
    let mut client = Client::new(TlsPolicy::Off);
    assert_eq!(client.ask(&option(OPT_STRUCTURED_REPLY, b"")), ["ack"]);
    assert_eq!(client.ask(&option(OPT_STRUCTURED_REPLY, b"")), ["ack"]);
    assert_eq!(client.ask(&option(OPT_EXTENDED_HEADERS, b"")), ["ack"]);
    assert_eq!(client.ask(&option(OPT_EXTENDED_HEADERS, b"")), ["ack"]);
    assert_eq!(client.ask(&option(OPT_STRUCTURED_REPLY, b"")), [EXT_HEADER_REQD]);
    assert_eq!(client.go("a").header_len(), 32);
}

#[test]
fn required_tls_grants_no_other_option() {
    let table = [
        option(OPT_LIST, b""),
        option(OPT_LIST, &[0; 100_000]),
        option(77, b"x"),
        option(OPT_STRUCTURED_REPLY, b""),
        option(OPT_EXTENDED_HEADERS, b""),
        go(OPT_INFO, "a", &[]),
        go(OPT_GO, "a", &[]),
        go(OPT_GO, "nowhere", &[]),
        option(OPT_GO, b"?"),
        contexts(OPT_LIST_META_CONTEXT, "a", &[]),
        contexts(OPT_SET_META_CONTEXT, "a", &[]),
    ];
    let mut client = Client::new(TlsPolicy::Require);
    for bytes in &table {
        assert_eq!(client.ask(bytes), [TLS_REQD]);
    }
    assert_eq!(client.ask(&option(OPT_STARTTLS, b"x")), [INVALID]);
    let (out, end) = client.send(&option(OPT_STARTTLS, b""));
    assert_eq!((words(&out), end), (["ack".into()].into(), End::StartTls));
    client.handshake.tls_started();
    assert_eq!(client.ask(&option(OPT_STARTTLS, b"")), [INVALID]);
    is_in_step(&mut client);
    assert_eq!(client.go("a").header_len(), 28);
}

#[test]
fn required_tls_closes_on_export_name() {
    let mut client = Client::new(TlsPolicy::Require);
    let (out, end) = client.send(&option(OPT_EXPORT_NAME, b"a"));
    assert_eq!((out, end), (Vec::new(), End::Close(CloseReason::TlsRequired)));
}

#[test]
fn negotiation_before_tls_is_discarded() {
    let mut client = Client::new(TlsPolicy::On);
    client.ask(&option(OPT_STRUCTURED_REPLY, b""));
    client.ask(&contexts(OPT_SET_META_CONTEXT, "a", &[BASE_ALLOCATION]));
    client.ask(&option(OPT_EXTENDED_HEADERS, b""));
    assert_eq!(client.send(&option(OPT_STARTTLS, b"")).1, End::StartTls);
    client.handshake.tls_started();
    let select = contexts(OPT_SET_META_CONTEXT, "a", &[BASE_ALLOCATION]);
    assert_eq!(client.ask(&select), [INVALID]);
    let told = client.ask(&go(OPT_INFO, "a", &[]));
    assert_eq!(told[0], "export 1073741824 0xd6d", "without DF");
    let transmission = client.go("a");
    assert_eq!((transmission.header_len(), transmission.has_contexts), (28, false));
}

#[test]
fn plaintext_behind_starttls_is_left_alone_and_ends_the_connection_if_fed() {
    for behind in [option(OPT_STRUCTURED_REPLY, b""), b"x".to_vec(), [0; 100].to_vec()] {
        let mut client = Client::new(TlsPolicy::On);
        let starttls = option(OPT_STARTTLS, b"");
        let both = [&starttls[..], &behind].concat();
        let mut out = Vec::new();
        let fed = client.handshake.feed(&client.exports, &both, &mut out);
        assert_eq!(fed.consumed, starttls.len());
        assert!(matches!(fed.next, Next::StartTls));
        assert_eq!(words(&out), ["ack"]);
        let (out, end) = client.send(b"");
        assert_eq!((out, end), (Vec::new(), End::More));
        let (out, end) = client.send(&behind);
        assert_eq!((out, end), (Vec::new(), End::Close(CloseReason::PlaintextAfterStartTls)));
        let (out, end) = client.send(&behind);
        assert_eq!((out, end), (Vec::new(), End::Close(CloseReason::HandshakeIsOver)));
    }
}

#[test]
fn abort_is_acknowledged_with_any_payload_at_any_time() {
    for tls in [TlsPolicy::Off, TlsPolicy::On, TlsPolicy::Require] {
        for data in [&b""[..], b"so long", &[0; 100_000]] {
            let (out, end) = Client::new(tls).send(&option(OPT_ABORT, data));
            assert_eq!((words(&out), end), (["ack".into()].into(), closed(CloseReason::Aborted)));
        }
    }
}

fn closed(reason: CloseReason) -> End {
    End::Close(reason)
}

#[test]
fn request_without_a_legal_reply_closes_the_connection() {
    let header = |option, len| {
        let mut out = Vec::new();
        OptionHeader { option, len }.emit(&mut out);
        out
    };
    let table = [
        (option(OPT_EXPORT_NAME, b"nowhere"), CloseReason::UnknownExport),
        (
            header(OPT_EXPORT_NAME, 4097),
            CloseReason::OptionTooLong { option: OPT_EXPORT_NAME, len: 4097 },
        ),
        (header(99, u32::MAX), CloseReason::OptionTooLong { option: 99, len: u32::MAX }),
        (b"NBDMAGICNBDMAGIC".to_vec(), CloseReason::OptionMagic),
        (b"GET / HTTP/1.1\r\n".to_vec(), CloseReason::OptionMagic),
    ];
    for (bytes, reason) in table {
        let (out, end) = Client::new(TlsPolicy::Off).send(&bytes);
        assert_eq!((out, end), (Vec::new(), closed(reason)));
    }
    let mut client = Client::new(TlsPolicy::Off);
    client.ask(&option(OPT_EXTENDED_HEADERS, b""));
    let (out, end) = client.send(&option(OPT_EXPORT_NAME, b"a"));
    assert_eq!((out, end), (Vec::new(), closed(CloseReason::ExportNameExtended)));
}

#[test]
fn flags_that_were_not_offered_close() {
    for flags in [4_u32, 1 << 31, 0x0300_0000, u32::MAX] {
        let (out, end) = Client::greeted(TlsPolicy::Off).send(&flags.to_be_bytes());
        assert_eq!((out, end), (Vec::new(), closed(CloseReason::ClientFlags(flags))));
    }
}

#[test]
fn without_fixed_newstyle_there_is_export_name_alone() {
    for flags in [[0, 0, 0, 0], [0, 0, 0, 2]] {
        let mut client = Client::greeted(TlsPolicy::On);
        client.send(&flags);
        let (out, end) = client.send(&option(OPT_STARTTLS, b""));
        let reason = CloseReason::NotFixedNewstyle(OPT_STARTTLS);
        assert_eq!((out, end), (Vec::new(), closed(reason)));
    }
}

#[test]
fn a_handshake_has_an_end() {
    let mut client = Client::new(TlsPolicy::Off);
    for _ in 0..NR_OPTIONS_MAX {
        assert_eq!(client.ask(&option(4, b"")), [UNSUP]);
    }
    assert_eq!(client.send(&option(4, b"")).1, closed(CloseReason::TooManyOptions));
    // TLS does not reset the count.
    let mut client = Client::new(TlsPolicy::On);
    for _ in 1..NR_OPTIONS_MAX {
        client.ask(&option(4, b""));
    }
    assert_eq!(client.send(&option(OPT_STARTTLS, b"")).1, End::StartTls);
    client.handshake.tls_started();
    assert_eq!(client.send(&option(4, b"")).1, closed(CloseReason::TooManyOptions));
}

#[test]
fn skipped_option_bytes_are_limited() {
    let mut client = Client::new(TlsPolicy::Off);
    let half = option(99, &std::vec![0; SKIPPED_MAX as usize / 2]);
    assert_eq!(client.ask(&half), [UNSUP]);
    assert_eq!(client.ask(&half), [UNSUP]);
    is_in_step(&mut client);
    assert_eq!(
        client.send(&option(99, b"x")).1,
        closed(CloseReason::OptionTooLong { option: 99, len: 1 })
    );
}

#[test]
fn an_option_that_matters_may_be_as_long_as_said() {
    let mut client = Client::new(TlsPolicy::Off);
    let nr_infos = (OPTION_MAX as usize - 7) / 2;
    let mut infos = std::vec![0x77; nr_infos];
    assert_eq!(client.ask(&go(OPT_INFO, "aa", &infos)), [UNKNOWN]);
    infos.push(0);
    assert_eq!(client.ask(&go(OPT_INFO, "aa", &infos)), [TOO_BIG]);
    is_in_step(&mut client);
}

#[test]
fn a_client_that_does_not_wait_for_replies_gets_them_in_parts() {
    let mut client = Client::new(TlsPolicy::Off);
    client.exports[0].description = "d".repeat(4096);
    let lists = option(OPT_LIST, b"").repeat(100);
    let (mut rest, mut out, mut nr_calls) = (&lists[..], Vec::new(), 0);
    while !rest.is_empty() {
        let before = out.len();
        let fed = client.handshake.feed(&client.exports, rest, &mut out);
        assert!(fed.consumed > 0 && matches!(fed.next, Next::More));
        assert!(out.len() - before < REPLIES_PAUSE + 8192);
        rest = &rest[fed.consumed..];
        nr_calls += 1;
    }
    assert!(nr_calls > 4);
    assert_eq!(words(&out).len(), 300);
}

#[test]
fn client_flags_are_read_once() {
    let mut client = Client::greeted(TlsPolicy::Off);
    client.send(&FLAGS[..2]);
    client.send(&FLAGS[2..]);
    is_in_step(&mut client);
}
