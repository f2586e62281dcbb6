//! Setup of a ring: commands of the message channel to the thread of a ring.

use crate::inflight::InflightMemory;
use crate::memory::GuestMemory;
use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;

/// All that a ring needs to start.
#[derive(Debug)]
pub struct RingSetup {
    /// Number of descriptors: a power of two.
    pub size: u16,
    /// Guest-physical address of the descriptor table.
    pub descriptors: u64,
    /// Guest-physical address of the available ring.
    pub available: u64,
    /// Guest-physical address of the used ring.
    pub used: u64,
    /// Index of the first available entry to take, and of the first used entry to write.
    pub base: u16,
    /// The negotiated VIRTIO features.
    pub features: u64,
    /// The memory of the guest.
    pub memory: GuestMemory,
    /// Eventfd that the driver signals.
    pub kick: OwnedFd,
    /// Eventfd by which the ring notifies the driver. `None`: the driver polls.
    pub call: Option<OwnedFd>,
    /// Eventfd by which the ring reports an error to the front end.
    pub err: Option<OwnedFd>,
    /// The in-flight region, and the number of the ring in it. `None`: the front end has none.
    pub inflight: Option<(InflightMemory, u16)>,
    /// Whether the ring is enabled. A disabled ring takes no requests.
    pub is_enabled: bool,
}

/// Command of the message channel to the thread of a ring.
#[derive(Debug)]
pub enum RingCommand {
    /// Starts the ring.
    Start(Box<RingSetup>),
    /// Enables or disables the ring. The thread answers once that is in force: a disabled ring
    /// takes no more requests.
    Enable(bool, SyncSender<()>),
    /// Replaces the memory of the guest. Requests in flight keep their regions. The thread answers
    /// once it takes no more requests with the former memory, and waits for no I/O.
    Memory(GuestMemory, SyncSender<()>),
    /// Replaces the eventfd that notifies the driver. The thread answers once it does not use the
    /// former one any more.
    Call(Option<OwnedFd>, SyncSender<()>),
    /// Replaces the eventfd that reports an error of the ring. The thread answers as for `Call`.
    Err(Option<OwnedFd>, SyncSender<()>),
    /// Stops the ring: it takes no more requests. Once its last request is answered, its thread
    /// sends the index of the next available entry.
    Stop(SyncSender<u16>),
}
