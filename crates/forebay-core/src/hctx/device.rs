//! State that the hardware contexts of a disk share, and state that all disks on one file share.

use crate::durability::Durability;
use crate::hctx::failures::{DeviceFailures, Receiver, report_loss};
use crate::retry::{Counts, Retries};
use crate::status::BlockStatus;
use alloc::sync::Arc;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicU8, Ordering};

/// The state that all disks on one file or device share: durable points and running retries.
#[derive(Clone, Debug)]
pub struct Backing {
    durability: Arc<Durability>,
    retries: Arc<Retries>,
}

impl Backing {
    /// Creates the state for any number of disks. The first has at most `nr_hctxs` hardware
    /// contexts.
    pub fn shared(nr_hctxs: u32) -> Backing {
        Backing { durability: Arc::default(), retries: Arc::new(Retries::shared(nr_hctxs)) }
    }

    /// Creates the state for a single disk.
    fn of_one(nr_hctxs: u32) -> Backing {
        Backing { durability: Arc::default(), retries: Arc::new(Retries::new(nr_hctxs)) }
    }

    /// Returns the durable points and losses of all writes, whichever disk submitted them.
    pub fn durability(&self) -> &Arc<Durability> {
        &self.durability
    }

    /// Returns whether both are the state of the same file or device.
    pub fn is(&self, other: &Backing) -> bool {
        Arc::ptr_eq(&self.retries, &other.retries)
    }
}

/// No failure was seen.
const WORKS: u8 = 0;
/// A request has ended with `Offline`.
const OFFLINE: u8 = 1;
/// A request has not completed within its time limits.
const GIVEN_UP: u8 = 2;

/// The state that all hardware contexts of a disk share.
#[derive(Debug)]
pub struct DeviceState {
    /// Whether the device is gone, and why: [`WORKS`], [`OFFLINE`] or [`GIVEN_UP`].
    failed: AtomicU8,
    pub(super) retries: Arc<Retries>,
    pub(super) durability: Arc<Durability>,
    counts: Counts,
    failures: Option<Receiver>,
}

impl DeviceState {
    /// Creates the state of a working disk with at most `nr_hctxs` hardware contexts.
    pub fn new(nr_hctxs: u32) -> DeviceState {
        DeviceState::on(&Backing::of_one(nr_hctxs), nr_hctxs)
    }

    /// Creates the state like [`new`](DeviceState::new), for a disk on a file or device that other
    /// disks may use too.
    pub fn on(backing: &Backing, nr_hctxs: u32) -> DeviceState {
        let Backing { durability, retries } = backing.clone();
        let counts = retries.writes().join(nr_hctxs);
        let failed = AtomicU8::new(WORKS);
        DeviceState { failed, retries, durability, counts, failures: None }
    }

    /// Sets the receiver of failures.
    pub fn set_failures(&mut self, failures: Arc<dyn DeviceFailures>) {
        self.failures = Some(Receiver(AssertUnwindSafe(failures)));
    }

    /// Returns the durable points and losses.
    pub fn durability(&self) -> &Arc<Durability> {
        &self.durability
    }

    /// Returns the state shared with other disks on the same file or device.
    pub fn backing(&self) -> Backing {
        Backing { durability: Arc::clone(&self.durability), retries: Arc::clone(&self.retries) }
    }

    /// Returns the index of a context's write count in `retries`.
    pub(super) fn count_at(&self, hctx: u32) -> u32 {
        self.counts.of(hctx)
    }

    /// Returns whether the device is gone: a request ended with
    /// [`Offline`](crate::BlockStatus::Offline) or was not completed in time, and
    /// [`revive`](DeviceState::revive) was not called since. Requests that are not at the driver
    /// yet end with the same status.
    // Relaxed, here and below: the flag orders no other data. If a request is issued a moment too
    // late, the device answers it.
    #[inline]
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) != WORKS
    }

    /// Returns whether the device is gone because a request was at the driver for longer than its
    /// time limits allow ([`Policy::io_timeout_ns`](crate::Policy::io_timeout_ns)).
    pub fn is_given_up(&self) -> bool {
        self.failed.load(Ordering::Relaxed) == GIVEN_UP
    }

    /// Marks the device as gone.
    pub(super) fn fail(&self) {
        self.fail_because(OFFLINE);
    }

    /// Marks the device as gone because a request was not completed in time (H3). Returns whether
    /// it worked before.
    pub(super) fn give_up(&self) -> bool {
        self.fail_because(GIVEN_UP)
    }

    /// Keeps the first reason: bios that end with `Offline` because of it are no second one.
    /// Returns whether this is the first.
    fn fail_because(&self, reason: u8) -> bool {
        let order = Ordering::Relaxed;
        let is_first = self.failed.compare_exchange(WORKS, reason, order, order).is_ok();
        if is_first && let Some(failures) = &self.failures {
            failures.0.gone(reason == GIVEN_UP);
        }
        is_first
    }

    /// Records a failed flush; see [`Durability::flush_failed`].
    pub(super) fn flush_failed(&self, status: BlockStatus) {
        let durability = &self.durability;
        report_loss(self.failures.as_ref(), durability, Some(status), || durability.flush_failed());
    }

    /// Draws a number for writes that were at the device when a flush failed; see
    /// [`Durability::doubtful_writes_end`].
    pub(super) fn doubtful_writes_end(&self) -> u64 {
        let durability = &self.durability;
        report_loss(self.failures.as_ref(), durability, None, || durability.doubtful_writes_end())
    }

    /// Calls `check`, which records losses that no flush of this disk has found, and reports the
    /// first one that is not acknowledged.
    pub fn check_for_losses(&self, check: impl FnOnce(&Durability)) {
        let durability = &self.durability;
        report_loss(self.failures.as_ref(), durability, None, || check(durability));
    }

    /// Marks the device as working again. Returns whether it was gone.
    pub fn revive(&self) -> bool {
        self.failed.swap(WORKS, Ordering::Relaxed) != WORKS
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        self.retries.writes().part(&self.counts);
    }
}
