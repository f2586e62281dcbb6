//! vhost-user-blk device: what lies between a front end (QEMU) and the front of the server.
//!
//! - `memory`: the memory of the guest, mapped into this process;
//! - `setup`: what the message channel passes to the thread of a ring.
//!
//! Sources: VIRTIO 1.2 (split rings, block device), and QEMU's "Vhost-user Protocol".
#![deny(missing_docs)]

mod memory;
mod setup;

pub use memory::GuestMemory;
pub use setup::{RingCommand, RingSetup};
