//! What the hardware contexts of one disk know of each other.

use crate::durability::Durability;
use crate::retry::Retries;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

/// The state of a disk beyond its hardware contexts, which share it.
#[derive(Debug)]
pub struct DeviceState {
    /// The device is gone.
    failed: AtomicBool,
    pub(crate) retries: Retries,
    pub(crate) durability: Arc<Durability>,
}

impl DeviceState {
    /// Of a disk that has at most `nr_hctxs` hardware contexts, and is well.
    pub fn new(nr_hctxs: u32) -> DeviceState {
        DeviceState::with_durability(nr_hctxs, Arc::default())
    }

    /// As [`new`](DeviceState::new), of one that is the same device as another: a file that was
    /// opened twice.
    pub fn with_durability(nr_hctxs: u32, durability: Arc<Durability>) -> DeviceState {
        let retries = Retries::new(nr_hctxs);
        DeviceState { failed: AtomicBool::new(false), retries, durability }
    }

    /// What of it is durable.
    pub fn durability(&self) -> &Arc<Durability> {
        &self.durability
    }

    /// Whether the device is gone: a request ended with
    /// [`Offline`](crate::BlockStatus::Offline), and nobody has said since that it is back. What is
    /// not at the driver yet ends with the same status.
    // Relaxed, here and below: it stands for itself. A request that is issued a moment too late
    // is answered by the device.
    #[inline]
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The device is gone.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// The device is back.
    pub fn revive(&self) {
        self.failed.store(false, Ordering::Relaxed);
    }
}
