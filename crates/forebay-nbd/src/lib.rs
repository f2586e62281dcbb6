//! The NBD protocol, both halves, without I/O: bytes in, values and bytes out.
//!
//! What it implements is the NBD protocol document of the NetworkBlockDevice project: fixed
//! newstyle with every option of the document, structured replies, and its extension
//! EXTENDED_HEADERS. [`wire`] turns bytes into values and back, for both halves; [`mod@server`] is
//! the server's half, [`mod@client`] the client's; [`uri`] names exports. Whoever uses them owns
//! sockets, clocks and limits of time.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
// A peer's bytes are hostile: nothing here may panic on them. (Tests may.)
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::panic
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod client;
pub mod export;
pub mod server;
pub mod uri;
pub mod wire;
