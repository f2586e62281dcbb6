//! State that all threads of a server share.

use crate::block_status::BlockStatusThreads;
use crate::closing::Closing;
use crate::config::Limits;
use crate::device::DeviceList;
use crate::exports::Exports;
use crate::log::Log;
use crate::metrics::Counters;
use crate::sizes::Sizes;
use crate::tls::Tls;
use crate::traces::Traces;
use forebay_front::PollMode;
use forebay_front::stream::Budget;
use forebay_nbd::server::TlsPolicy;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The state; only its atomics, counters, exports, devices, sizes, traces and log change.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) exports: Exports,
    /// The sizes of the exports, with their descriptions for clients.
    pub(crate) sizes: Sizes,
    pub(crate) tls: Option<Tls>,
    pub(crate) tls_policy: TlsPolicy,
    /// Devices for virtual machines.
    pub(crate) devices: DeviceList,
    /// Whether the memory of virtual machines is registered with io_uring.
    pub(crate) register_memory: bool,
    pub(crate) limits: Limits,
    /// Threads that serve NBD connections: none if no NBD socket listens.
    pub(crate) nr_workers: usize,
    pub(crate) budget: Budget,
    /// Largest block of a disk that may be added: the budget has room for it.
    pub(crate) max_block: u32,
    pub(crate) poll: PollMode,
    /// Connections that have chosen an export.
    pub(crate) nr_open: Arc<AtomicUsize>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) log: Arc<Log>,
    /// Threads that answer BLOCK_STATUS.
    pub(crate) status: BlockStatusThreads,
    pub(crate) traces: Traces,
    /// Requests to end the server.
    pub(crate) closing: Closing,
}
