//! Handshakes with the server side, which declines various options.

use super::*;
use crate::client::{Handshake, HandshakeError, Next};
use crate::server::{self, TlsPolicy};
use crate::wire::numbers as wire;
use crate::wire::{OptionHeader, OptionReplyHeader};
use alloc::string::ToString;
use alloc::vec::Vec;

/// A server that does not support some options, and whose bytes arrive in pieces.
struct Server {
    half: server::Handshake,
    exports: [ExportInfo; 1],
    declined: Vec<u32>,
    is_greeted: bool,
    piece: usize,
}

impl Server {
    fn new(tls: TlsPolicy, declined: &[u32]) -> (Server, Vec<u8>) {
        let mut greeting = Vec::new();
        let half = server::Handshake::new(tls, &mut greeting);
        let (exports, declined) = ([offered()], declined.to_vec());
        (Server { half, exports, declined, is_greeted: false, piece: usize::MAX }, greeting)
    }

    /// Answers a message of the client: its flags, or one option.
    fn answer(&mut self, input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        // The flags, and the first option after them.
        let (flags, option) = input.split_at(if self.is_greeted { 0 } else { 4 });
        self.is_greeted = true;
        self.half.feed(&self.exports, flags, &mut out);
        if let Some(header) = OptionHeader::parse(option)
            && self.declined.contains(&header.option)
        {
            let (kind, words) = (wire::REP_ERR_UNSUP, b"what?\x1b[2J".as_slice());
            OptionReplyHeader::emit_with(header.option, kind, words, &mut out);
            return out;
        }
        self.half.feed(&self.exports, option, &mut out);
        out
    }

    /// Runs the handshake until something else than more input is needed.
    fn shake(
        &mut self,
        client: &mut Handshake,
        mut input: Vec<u8>,
    ) -> Result<Next, HandshakeError> {
        let (mut nr_given, mut out) = (0, Vec::new());
        loop {
            nr_given = input.len().min(nr_given + self.piece.min(input.len()));
            let fed = client.feed(&input[..nr_given], &mut out)?;
            input.drain(..fed.consumed);
            nr_given -= fed.consumed;
            if fed.next != Next::More {
                assert!(input.is_empty(), "the server sent bytes that were not requested");
                return Ok(fed.next);
            }
            if nr_given == input.len() {
                assert!(!out.is_empty(), "both sides wait");
                let sent = core::mem::take(&mut out);
                input.extend(self.answer(&sent));
            }
        }
    }
}

fn shake(name: &str, tls: TlsPolicy, declined: &[u32]) -> Result<Next, HandshakeError> {
    let (mut server, greeting) = Server::new(tls, declined);
    server.shake(&mut Handshake::new(name, false), greeting)
}

#[test]
fn client_uses_offered_options_and_works_without_declined_ones() {
    let options = [
        wire::OPT_STRUCTURED_REPLY,
        wire::OPT_EXTENDED_HEADERS,
        wire::OPT_SET_META_CONTEXT,
        wire::OPT_GO,
    ];
    for subset in 0..16 {
        let is_declined = |nth: usize| subset & 1 << nth != 0;
        let declined: Vec<u32> =
            (0..4).filter(|&nth| is_declined(nth)).map(|nth| options[nth]).collect();
        let shaken = shake("disk", TlsPolicy::Off, &declined);
        if is_declined(3) && !is_declined(0) && !is_declined(1) {
            // EXPORT_NAME is not allowed with extended headers.
            assert!(matches!(shaken, Err(HandshakeError::Refused { asked: "GO", .. })));
            continue;
        }
        let Ok(Next::Ready(export)) = shaken else { panic!("{declined:?}: {shaken:?}") };
        let framing = match (is_declined(0), is_declined(1)) {
            (true, _) => Framing::Simple,
            (false, true) => Framing::Structured,
            (false, false) => Framing::Extended,
        };
        assert_eq!(export.framing, framing, "{declined:?}");
        let has_status = !is_declined(0) && !is_declined(2);
        assert_eq!(export.allocation.is_some(), has_status, "{declined:?}");
        let ExportInfo { size_bytes, can, block_size, description, .. } = offered();
        assert_eq!((export.size_bytes, export.can), (size_bytes, can), "{declined:?}");
        // The reply to EXPORT_NAME has no block sizes.
        assert_eq!(export.block_size, (!is_declined(3)).then_some(block_size));
        assert_eq!(export.description == description, !is_declined(3));
    }
}

#[test]
fn bytes_that_come_one_by_one_say_the_same() {
    let whole = shake("disk", TlsPolicy::Off, &[]);
    for piece in [1, 2, 7, 19] {
        let (mut server, greeting) = Server::new(TlsPolicy::Off, &[]);
        server.piece = piece;
        assert_eq!(server.shake(&mut Handshake::new("disk", false), greeting), whole);
    }
}

#[test]
fn an_export_that_is_not_there_is_said_so() {
    let error = shake("other", TlsPolicy::Off, &[]).expect_err("there is none");
    assert!(
        matches!(error, HandshakeError::Refused { reply: wire::REP_ERR_UNKNOWN, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("it has no export of this name"), "{error}");
}

#[test]
fn tls_is_insisted_on_or_gone_without() {
    let error = shake("disk", TlsPolicy::Require, &[]).expect_err("it is required");
    assert!(error.to_string().contains("use nbds://"), "{error}");
    let mut client = Handshake::new("disk", true);
    let (mut server, greeting) = Server::new(TlsPolicy::Off, &[]);
    assert_eq!(server.shake(&mut client, greeting), Err(HandshakeError::NoTls));
    for tls in [TlsPolicy::On, TlsPolicy::Require] {
        let mut client = Handshake::new("disk", true);
        let (mut server, greeting) = Server::new(tls, &[]);
        assert_eq!(server.shake(&mut client, greeting), Ok(Next::StartTls));
        server.half.tls_started();
        let mut out = Vec::new();
        client.tls_started(&mut out);
        let answer = server.answer(&out);
        let shaken = server.shake(&mut client, answer);
        assert!(matches!(shaken, Ok(Next::Ready(_))), "{shaken:?}");
    }
}

#[test]
fn bytes_after_the_start_of_tls_are_not_consumed() {
    let mut client = Handshake::new("disk", true);
    let (mut server, greeting) = Server::new(TlsPolicy::On, &[]);
    let mut out = Vec::new();
    client.feed(&greeting, &mut out).expect("a greeting");
    let mut answer = server.answer(&out);
    let len = answer.len();
    answer.extend([0; 40]);
    let fed = client.feed(&answer, &mut out).expect("a begin");
    assert_eq!((fed.consumed, fed.next), (len, Next::StartTls));
}
