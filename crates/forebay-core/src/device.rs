//! What the hardware contexts of one disk, and the disks on one file, know of each other.

use crate::durability::Durability;
use crate::retry::{Counts, Retries};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

/// What the disks on one file or device share.
#[derive(Clone, Debug)]
pub struct Backing {
    durability: Arc<Durability>,
    retries: Arc<Retries>,
}

impl Backing {
    /// For any number of disks, of which the first has at most `nr_hctxs` hardware contexts.
    pub fn shared(nr_hctxs: u32) -> Backing {
        Backing { durability: Arc::default(), retries: Arc::new(Retries::shared(nr_hctxs)) }
    }

    /// For one disk.
    fn of_one(nr_hctxs: u32) -> Backing {
        Backing { durability: Arc::default(), retries: Arc::new(Retries::new(nr_hctxs)) }
    }

    /// What is durable of all that was written by any of the disks.
    pub fn durability(&self) -> &Arc<Durability> {
        &self.durability
    }

    /// Returns whether it is that of the same file.
    pub fn is(&self, other: &Backing) -> bool {
        Arc::ptr_eq(&self.retries, &other.retries)
    }
}

/// The state of a disk beyond its hardware contexts, which share it.
#[derive(Debug)]
pub struct DeviceState {
    /// The device is gone.
    failed: AtomicBool,
    pub(crate) retries: Arc<Retries>,
    pub(crate) durability: Arc<Durability>,
    counts: Counts,
}

impl DeviceState {
    /// The state of a disk that has at most `nr_hctxs` hardware contexts, and is well.
    pub fn new(nr_hctxs: u32) -> DeviceState {
        DeviceState::on(&Backing::of_one(nr_hctxs), nr_hctxs)
    }

    /// As [`new`](DeviceState::new), of a disk on a file or device that others may be on, too.
    pub fn on(backing: &Backing, nr_hctxs: u32) -> DeviceState {
        let Backing { durability, retries } = backing.clone();
        let counts = retries.join(nr_hctxs);
        DeviceState { failed: AtomicBool::new(false), retries, durability, counts }
    }

    /// What of it is durable.
    pub fn durability(&self) -> &Arc<Durability> {
        &self.durability
    }

    /// What it shares with other disks on the same file or device.
    pub fn backing(&self) -> Backing {
        Backing { durability: Arc::clone(&self.durability), retries: Arc::clone(&self.retries) }
    }

    /// The place of the count of a context's writes in `retries`.
    pub(crate) fn count_at(&self, hctx: u32) -> u32 {
        self.counts.of(hctx)
    }

    /// Returns whether the device is gone: a request ended with
    /// [`Offline`](crate::BlockStatus::Offline), and [`revive`](DeviceState::revive) was not called
    /// since. Requests that are not at the driver yet end with the same status.
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

impl Drop for DeviceState {
    fn drop(&mut self) {
        self.retries.part(&self.counts);
    }
}
