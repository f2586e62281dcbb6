//! The options of a client's handshake: the bytes to send, and the replies that must come.

use super::scenario::ClientLoad;
use forebay_model::Random;
use forebay_nbd::wire::numbers::*;
use forebay_nbd::wire::{ContextRequest, ExportRequest, OptionHeader};
use std::collections::VecDeque;

/// The reply that an option must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// ACK, and nothing before it.
    Ack,
    /// So many REP_SERVER, and ACK.
    Servers(usize),
    /// Some REP_INFO, and ACK.
    Infos,
    /// A context, and ACK.
    Context,
    /// This error.
    Error(u32),
    /// The export, without a header.
    Export,
    /// The connection is closed without a reply.
    Close,
    /// ACK, and then the connection is closed.
    AckClose,
}

/// An option.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) option: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) nr_bytes: usize,
    pub(crate) answer: Answer,
    /// The number of intermediate replies so far.
    pub(crate) nr_before: usize,
}

/// Draws the options of one connection. The last one chooses an export, or ends the connection.
pub(crate) fn draw(load: &ClientLoad, nr_exports: usize, random: &mut Random) -> VecDeque<Ask> {
    let mut asks = VecDeque::new();
    let option = |option, data: &[u8], answer| {
        let mut bytes = Vec::new();
        OptionHeader::emit_with(option, data, &mut bytes);
        Ask { option, nr_bytes: bytes.len(), bytes, answer, nr_before: 0 }
    };
    let choose = |option, name: &[u8], answer| {
        let mut bytes = Vec::new();
        ExportRequest::emit(option, name, &[INFO_NAME, INFO_BLOCK_SIZE], &mut bytes);
        Ask { option, nr_bytes: bytes.len(), bytes, answer, nr_before: 0 }
    };
    let nr_others = if load.asks_much { random.below(5) } else { 0 };
    for _ in 0..nr_others {
        let noise: Vec<u8> = (0..random.below(300)).map(|_| random.draw() as u8).collect();
        asks.push_back(match random.below(9) {
            0 => option(OPT_LIST, b"", Answer::Servers(nr_exports)),
            1 => option(OPT_LIST, b"no", Answer::Error(REP_ERR_INVALID)),
            2 => option(99, &noise, Answer::Error(REP_ERR_UNSUP)),
            3 => option(OPT_STARTTLS, b"", Answer::Error(REP_ERR_POLICY)),
            4 => option(OPT_INFO, &noise[..noise.len().min(3)], Answer::Error(REP_ERR_INVALID)),
            5 => choose(OPT_INFO, b"main", Answer::Infos),
            6 => choose(OPT_INFO, b"none", Answer::Error(REP_ERR_UNKNOWN)),
            7 => choose(OPT_GO, b"none", Answer::Error(REP_ERR_UNKNOWN)),
            _ => option(OPT_LIST, &vec![7; 20 << 10], Answer::Error(REP_ERR_INVALID)),
        });
    }
    let framing = random.below(3);
    let wants_extended = load.may_extend && framing == 2;
    if load.may_structure && framing == 1 {
        asks.push_back(option(OPT_STRUCTURED_REPLY, b"", Answer::Ack));
    }
    if wants_extended {
        asks.push_back(option(OPT_EXTENDED_HEADERS, b"", Answer::Ack));
    }
    let has_chunks = asks.back().is_some_and(|ask| ask.answer == Answer::Ack);
    if has_chunks && random.chance(1, 2) {
        let mut bytes = Vec::new();
        let query = BASE_ALLOCATION.as_bytes();
        ContextRequest::emit(OPT_SET_META_CONTEXT, b"main", &[query], &mut bytes);
        let (option, answer) = (OPT_SET_META_CONTEXT, Answer::Context);
        asks.push_back(Ask { option, nr_bytes: bytes.len(), bytes, answer, nr_before: 0 });
    }
    asks.push_back(match random.below(if load.gives_up { 8 } else { 6 }) {
        0 if !wants_extended => option(OPT_EXPORT_NAME, b"main", Answer::Export),
        1 => choose(OPT_GO, b"", Answer::Infos),
        6 => option(OPT_ABORT, b"", Answer::AckClose),
        7 => option(OPT_EXPORT_NAME, b"none", Answer::Close),
        _ => choose(OPT_GO, b"main", Answer::Infos),
    });
    asks
}
