//! NBD protocol for servers and clients, without I/O: bytes in, values and bytes out.
//!
//! It implements the NBD protocol document of the NetworkBlockDevice project: fixed newstyle with
//! every option of the document, structured replies, and the extension EXTENDED_HEADERS. [`wire`]
//! encodes and decodes messages for both sides; [`mod@server`] is the server side, [`mod@client`]
//! the client side; [`uri`] parses and formats NBD URIs. The caller owns sockets, clocks and
//! timeouts.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
// The bytes of a peer are hostile: no code here may panic on them. (Tests may.)
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
