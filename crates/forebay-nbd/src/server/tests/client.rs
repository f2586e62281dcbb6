//! A client for tests: builds messages, and parses the replies.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use crate::export::{Abilities, ExportInfo};
use crate::server::{CloseReason, Handshake, Next, TlsPolicy, Transmission};
use crate::wire::numbers::*;
use crate::wire::{
    BlockSizes, ContextRequest, ExportRequest, Info, MetaContext, OptionHeader, OptionReplyHeader,
    ServerEntry,
};

pub(super) const SIZE: u64 = 1 << 30;

/// Returns an export that supports everything.
pub(super) fn export(name: &str) -> ExportInfo {
    ExportInfo {
        name: name.to_string(),
        description: format!("it is {name}"),
        size_bytes: SIZE,
        can: Abilities {
            read_only: false,
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            cache: true,
            multi_conn: true,
            rotational: false,
        },
        block_size: BlockSizes { min: 512, preferred: 4096, max: 1 << 25 },
    }
}

pub(super) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    OptionHeader::emit_with(option, data, &mut out);
    out
}

pub(super) fn go(option: u32, name: &str, infos: &[u16]) -> Vec<u8> {
    let mut out = Vec::new();
    ExportRequest::emit(option, name.as_bytes(), infos, &mut out);
    out
}

pub(super) fn contexts(option: u32, name: &str, queries: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    let queries: Vec<_> = queries.iter().map(|query| query.as_bytes()).collect();
    ContextRequest::emit(option, name.as_bytes(), &queries, &mut out);
    out
}

/// Flags of a client that supports fixed newstyle and NO_ZEROES.
pub(super) const FLAGS: [u8; 4] = [0, 0, 0, 3];

/// A connection in its handshake.
pub(super) struct Client {
    pub(super) handshake: Handshake,
    pub(super) exports: Vec<ExportInfo>,
}

/// Result of feeding bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    More,
    StartTls,
    Transmission(Transmission),
    Close(CloseReason),
}

impl Client {
    /// Creates a client after the greeting.
    pub(super) fn new(tls: TlsPolicy) -> Client {
        let mut client = Client::greeted(tls);
        assert_eq!(client.send(&FLAGS), (Vec::new(), End::More));
        client
    }

    pub(super) fn greeted(tls: TlsPolicy) -> Client {
        let mut out = Vec::new();
        let handshake = Handshake::new(tls, &mut out);
        assert_eq!(out, b"NBDMAGICIHAVEOPT\0\x03");
        Client { handshake, exports: [export("a"), export("b")].into() }
    }

    /// Sends all bytes in one piece, and returns the reply.
    pub(super) fn send(&mut self, bytes: &[u8]) -> (Vec<u8>, End) {
        let mut out = Vec::new();
        let fed = self.handshake.feed(&self.exports, bytes, &mut out);
        let end = match fed.next {
            Next::More => End::More,
            Next::StartTls => End::StartTls,
            Next::Transmission(transmission) => End::Transmission(transmission),
            Next::Close(reason) => End::Close(reason),
        };
        if matches!(end, End::More) {
            assert_eq!(fed.consumed, bytes.len());
        }
        (out, end)
    }

    /// Sends bytes, and returns the replies in words. The handshake must go on.
    pub(super) fn ask(&mut self, bytes: &[u8]) -> Vec<String> {
        let (out, end) = self.send(bytes);
        assert_eq!(end, End::More);
        words(&out)
    }

    /// Chooses the export `name`.
    pub(super) fn go(&mut self, name: &str) -> Transmission {
        match self.send(&go(OPT_GO, name, &[])) {
            (_, End::Transmission(transmission)) => transmission,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the replies to options, each as a word for its type, and its content.
pub(super) fn words(mut bytes: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    while !bytes.is_empty() {
        let header = OptionReplyHeader::parse(bytes).unwrap();
        let (data, rest) = bytes[OptionReplyHeader::LEN..].split_at(header.len as usize);
        bytes = rest;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        words.push(match header.kind {
            REP_ACK => {
                assert!(data.is_empty());
                "ack".to_string()
            }
            REP_SERVER => {
                let entry = ServerEntry::parse(data).unwrap();
                format!("server {} ({})", text(entry.name), text(entry.description))
            }
            REP_INFO => match Info::parse(data).unwrap() {
                Info::Export { size_bytes, flags } => format!("export {size_bytes} {flags:#x}"),
                Info::Name(name) => format!("name {}", text(name)),
                Info::Description(name) => format!("description {}", text(name)),
                Info::BlockSize(sizes) => {
                    format!("block {} {} {}", sizes.min, sizes.preferred, sizes.max)
                }
                Info::Other { .. } => panic!("{data:?}"),
            },
            REP_META_CONTEXT => {
                let context = MetaContext::parse(data).unwrap();
                format!("context {} {}", context.id, text(context.name))
            }
            kind => {
                assert!(kind & REP_ERR != 0 && !data.is_empty() && data.len() <= STRING_MAX);
                format!("error {}", kind ^ REP_ERR)
            }
        });
    }
    words
}
