//! The export that a handshake has chosen, and how to talk of it.

use crate::export::{Abilities, BlockSizes};
use crate::wire::Framing;
use crate::wire::numbers::FLAG_HAS_FLAGS;
use alloc::string::String;

/// An export that was chosen, as the server describes it, and what was agreed on for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Its name, as it was asked for.
    pub name: String,
    /// What the server says of it, in one line; may be empty.
    pub description: String,
    /// Its size, bytes; below 2^63.
    pub size_bytes: u64,
    /// What it can do.
    pub can: Abilities,
    /// What the server says of sizes of requests, if it does.
    pub block_size: Option<BlockSizes>,
    /// How requests and replies look.
    pub framing: Framing,
    /// The number of the context `base:allocation`, if the server has it.
    pub allocation: Option<u32>,
}

/// What the flags of an export say.
pub(super) fn abilities(flags: u16) -> Abilities {
    match flags & FLAG_HAS_FLAGS {
        0 => Abilities::default(),
        _ => Abilities::of_flags(flags),
    }
}
