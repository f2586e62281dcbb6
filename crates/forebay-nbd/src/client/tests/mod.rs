//! The client side against the server side, and against hostile servers.

mod handshake;
mod hostile;
mod replies;

use super::Negotiated;
use crate::export::{Abilities, ExportInfo};
use crate::wire::{BlockSizes, Framing};
use alloc::string::String;

/// A pseudo-random stream of numbers.
struct Numbers(u64);

impl Numbers {
    /// Returns the next number, below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Returns the export of the server.
fn offered() -> ExportInfo {
    let can = Abilities {
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        multi_conn: true,
        ..Abilities::default()
    };
    ExportInfo {
        name: String::from("disk"),
        description: String::from("a disk"),
        size_bytes: 1 << 20,
        can,
        block_size: BlockSizes { min: 512, preferred: 4096, max: 1 << 20 },
    }
}

/// Returns a chosen export, with this framing.
fn export(framing: Framing) -> Negotiated {
    let ExportInfo { name, description, size_bytes, can, block_size } = offered();
    let allocation = (framing != Framing::Simple).then_some(7);
    let block_size = Some(block_size);
    Negotiated { name, description, size_bytes, can, block_size, framing, allocation }
}
