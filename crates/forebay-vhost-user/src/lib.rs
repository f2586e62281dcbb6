//! vhost-user-blk device: the layer between a front end (QEMU) and the front of the server.
//!
//! - `channel`: the messages of a front end; `backend_channel`: the message of the device to it;
//! - `config`: features and configuration space;
//! - `memory`: the memory of the guest, mapped into this process;
//! - `truncated`: the handler of accesses to memory that the front end has truncated;
//! - `ring`: the rings in that memory;
//! - `inflight`: the requests in flight, in memory that outlives this process;
//! - `setup`: commands of the message channel to the thread of a ring; `eventfd`: signals.
//!
//! Sources: VIRTIO 1.2 (split rings, block device), and QEMU's "Vhost-user Protocol".
#![deny(missing_docs)]

mod backend_channel;
mod channel;
mod config;
mod eventfd;
mod inflight;
mod memory;
mod ring;
mod setup;
mod truncated;

pub use backend_channel::Notified;
pub use channel::{Rings, serve};
pub use config::{
    Capabilities, Config, MAX_QUEUE_SIZE, MAX_QUEUES, MAX_RANGE_SECTORS, MAX_RANGES,
    MAX_SEGMENT_BYTES, MAX_SEGMENTS, MIN_QUEUE_SIZE, Shape, WriteCache,
};
pub use eventfd::signal;
pub use inflight::{InflightMemory, InflightShape, RecoverError};
pub use memory::{GuestData, GuestMemory, OutsideMemory};
pub use ring::{Ring, RingError};
pub use setup::{RingCommand, RingSetup};
pub use truncated::survive_truncated_memory;
