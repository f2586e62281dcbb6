//! All sequences of up to five options, against a model that checks the whole history each time.
//!
//! The model keeps no state but the list of what was sent, so that it cannot forget or keep
//! something by the same mistake as the code.

use std::string::{String, ToString};
use std::vec::Vec;

use super::client::{Client, End, contexts, go, option, words};
use crate::server::{CloseReason, TlsPolicy};
use crate::wire::numbers::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    List,
    ListWithData,
    StartTls,
    StartTlsWithData,
    Structured,
    Extended,
    ListContexts,
    Select(&'static str),
    SelectNothing,
    SelectMalformed,
    Info,
    Go(&'static str),
    ExportName(&'static str),
    Unknown,
    Abort,
}

use Sent::*;

const ALPHABET: [Sent; 17] = [
    List,
    ListWithData,
    StartTls,
    StartTlsWithData,
    Structured,
    Extended,
    ListContexts,
    Select("a"),
    Select("b"),
    SelectNothing,
    SelectMalformed,
    Info,
    Go("a"),
    Go("c"),
    ExportName("b"),
    Unknown,
    Abort,
];

fn bytes(sent: Sent) -> Vec<u8> {
    match sent {
        List => option(OPT_LIST, b""),
        ListWithData => option(OPT_LIST, b"data"),
        StartTls => option(OPT_STARTTLS, b""),
        StartTlsWithData => option(OPT_STARTTLS, b"data"),
        Structured => option(OPT_STRUCTURED_REPLY, b""),
        Extended => option(OPT_EXTENDED_HEADERS, b""),
        ListContexts => contexts(OPT_LIST_META_CONTEXT, "a", &["base:"]),
        Select(name) => contexts(OPT_SET_META_CONTEXT, name, &[BASE_ALLOCATION]),
        SelectNothing => contexts(OPT_SET_META_CONTEXT, "a", &[]),
        SelectMalformed => option(OPT_SET_META_CONTEXT, b"data"),
        Info => go(OPT_INFO, "b", &[]),
        Go(name) => go(OPT_GO, name, &[]),
        ExportName(name) => option(OPT_EXPORT_NAME, name.as_bytes()),
        Unknown => option(4242, b"data"),
        Abort => option(OPT_ABORT, b""),
    }
}

/// Returns the replies to the last of `past`, whose others left the handshake open, and its result:
/// "" to go on, "tls", "close", or the transmission in words.
fn model(tls: TlsPolicy, past: &[Sent]) -> (Vec<String>, String) {
    let (&last, before) = past.split_last().unwrap();
    // STARTTLS is granted once, and what was sent before it does not count.
    let granted_at =
        (tls != TlsPolicy::Off).then(|| before.iter().position(|&sent| sent == StartTls)).flatten();
    let is_secret = granted_at.is_some();
    let counts = granted_at.map_or(before, |at| &before[at + 1..]);
    let is_bare = tls == TlsPolicy::Require && !is_secret;
    let counts: &[Sent] = if is_bare { &[] } else { counts };
    let is_extended = counts.contains(&Extended);
    let has_chunks = is_extended || counts.contains(&Structured);
    let selected = counts.iter().enumerate().rev().find_map(|(at, &sent)| {
        let had_chunks = counts[..at].iter().any(|&sent| matches!(sent, Structured | Extended));
        match sent {
            Select(name) => Some(had_chunks.then_some(name)),
            SelectNothing | SelectMalformed => Some(None),
            _ => None,
        }
    });
    let goes = |name: &str| {
        let header_len = if is_extended { 32 } else { 28 };
        let has_contexts = selected.flatten() == Some(name);
        std::format!("{name} {header_len} {has_contexts}")
    };
    let flags = if has_chunks { "0xded" } else { "0xd6d" };
    let export = [std::format!("export 1073741824 {flags}"), "block 512 4096 33554432".to_string()];
    let told = |words: &[&str], end: &str| {
        (words.iter().map(ToString::to_string).collect::<Vec<_>>(), end.to_string())
    };
    match last {
        Abort => told(&["ack"], "close"),
        StartTlsWithData => told(&["error 3"], ""),
        StartTls if is_secret => told(&["error 3"], ""),
        StartTls if tls == TlsPolicy::Off => told(&["error 2"], ""),
        StartTls => told(&["ack"], "tls"),
        ExportName(name) if !is_bare && !is_extended => told(&[], &goes(name)),
        ExportName(_) => told(&[], "close"),
        _ if is_bare => told(&["error 5"], ""),
        List => told(&["server a (it is a)", "server b (it is b)", "ack"], ""),
        ListWithData => told(&["error 3"], ""),
        Structured if is_extended => told(&["error 10"], ""),
        Structured | Extended => told(&["ack"], ""),
        Select(_) | SelectNothing | SelectMalformed if !has_chunks => told(&["error 3"], ""),
        ListContexts => told(&["context 0 base:allocation", "ack"], ""),
        Select(_) => told(&["context 1 base:allocation", "ack"], ""),
        SelectNothing => told(&["ack"], ""),
        SelectMalformed => told(&["error 3"], ""),
        Info => told(&[&export[0], &export[1], "ack"], ""),
        Go("c") => told(&["error 6"], ""),
        Go(name) => told(&[&export[0], &export[1], "ack"], &goes(name)),
        Unknown => told(&["error 1"], ""),
    }
}

/// Goes on from `client`, which has seen `past`, by every option. Returns how many were tried.
fn walk(tls: TlsPolicy, client: &Client, past: &mut Vec<Sent>, nr_left: usize) -> usize {
    let mut nr_tried = 0;
    for sent in ALPHABET {
        let mut client =
            Client { handshake: client.handshake.clone(), exports: client.exports.clone() };
        past.push(sent);
        let (out, end) = client.send(&bytes(sent));
        let end_in_words = match &end {
            End::More => String::new(),
            End::StartTls => "tls".to_string(),
            End::Close(_) => "close".to_string(),
            End::Transmission(transmission) => std::format!(
                "{} {} {}",
                client.exports[transmission.export()].name,
                transmission.header_len(),
                transmission.has_contexts
            ),
        };
        // EXPORT_NAME is not answered by a reply.
        let replies = if matches!(sent, ExportName(_)) { Vec::new() } else { words(&out) };
        assert_eq!((replies, end_in_words), model(tls, past), "{tls:?} {past:?}");
        if let End::Close(reason) = &end {
            assert_eq!(*reason == CloseReason::Aborted, sent == Abort);
        }
        if end == End::StartTls {
            client.handshake.tls_started();
        }
        nr_tried += 1;
        if nr_left > 1 && matches!(end, End::More | End::StartTls) {
            nr_tried += walk(tls, &client, past, nr_left - 1);
        }
        past.pop();
    }
    nr_tried
}

#[test]
fn every_sequence_of_five_options_goes_as_the_model_says() {
    for tls in [TlsPolicy::Off, TlsPolicy::On, TlsPolicy::Require] {
        let client = Client::new(tls);
        let nr_tried = walk(tls, &client, &mut Vec::new(), 5);
        // Those that end early have no children; all others were tried.
        assert!(nr_tried > 500_000, "{nr_tried}");
    }
}
