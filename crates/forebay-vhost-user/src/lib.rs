//! vhost-user-blk device: guest memory and rings, between a front end (QEMU) and the front of the
//! server.
//!
//! - `memory`: the memory of the guest, mapped into this process;
//! - `inflight`: the requests in flight, in memory that outlives this process;
//! - `setup`: the messages from the message channel to the thread of a ring.
//!
//! Sources: VIRTIO 1.2 (split rings, block device), and QEMU's "Vhost-user Protocol".
#![deny(missing_docs)]

mod inflight;
mod memory;
mod setup;

pub use inflight::{Inflight, InflightMemory, RecoverError, Recovered, Shape};
pub use memory::GuestMemory;
pub use setup::{RingCommand, RingSetup};
