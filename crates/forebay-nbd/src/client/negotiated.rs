//! Result of a handshake: the chosen export and the negotiated protocol.

use crate::export::Abilities;
use crate::wire::numbers::FLAG_HAS_FLAGS;
use crate::wire::{BlockSizes, Framing};
use alloc::string::String;

/// The chosen export, as the server describes it, and the negotiated protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Name, as the client requested it.
    pub name: String,
    /// Description from the server, in one line; may be empty.
    pub description: String,
    /// Size, bytes; below 2^63.
    pub size_bytes: u64,
    /// Supported commands and flags.
    pub can: Abilities,
    /// Block sizes, if the server has sent them.
    pub block_size: Option<BlockSizes>,
    /// Framing of requests and replies.
    pub framing: Framing,
    /// Number of the context `base:allocation`, if the server has it.
    pub allocation: Option<u32>,
}

/// Returns the abilities for the transmission flags of an export.
pub(super) fn abilities(flags: u16) -> Abilities {
    match flags & FLAG_HAS_FLAGS {
        0 => Abilities::default(),
        _ => Abilities::of_flags(flags),
    }
}
