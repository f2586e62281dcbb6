//! Reports of a device that is gone and of writes that may be lost, for logs.

use crate::durability::{Durability, LostWrites};
use crate::status::BlockStatus;
use alloc::sync::Arc;
use core::fmt::Debug;
use core::panic::AssertUnwindSafe;

/// Receiver of the failures of a device. Most calls are made within a turn, so it must not wait.
pub trait DeviceFailures: Debug + Send + Sync {
    /// Records that the device counts as gone ([`DeviceState::is_failed`]), and worked before.
    /// `is_given_up`: a request was not completed in time.
    ///
    /// [`DeviceState::is_failed`]: super::DeviceState::is_failed
    fn gone(&self, is_given_up: bool);

    /// Records that writes may be lost, and that no earlier loss was unacknowledged. Two contexts
    /// that find losses at the same time may both report one.
    ///
    /// `status` is that of the flush. `None`: no flush of this disk has just failed. Either its
    /// loss was acknowledged and these writes, which were at the device then, have ended now, or
    /// the disk has found an error that was reported to another file.
    fn lost(&self, lost: LostWrites, status: Option<BlockStatus>);
}

/// The receiver of the failures of a disk. Its calls come after the change that they report, so a
/// panic of it leaves the state as it is: types that contain it stay `UnwindSafe`.
#[derive(Debug)]
pub(super) struct Receiver(pub(super) AssertUnwindSafe<Arc<dyn DeviceFailures>>);

/// Calls `note`, which may record a loss, and reports it if it is the first one that is not
/// acknowledged.
#[cold]
pub(super) fn report_loss<T>(
    to: Option<&Receiver>,
    durability: &Durability,
    status: Option<BlockStatus>,
    note: impl FnOnce() -> T,
) -> T {
    let Some(to) = to else { return note() };
    let is_first = durability.lost().is_none();
    let noted = note();
    if is_first && let Some(lost) = durability.lost() {
        to.0.lost(lost, status);
    }
    noted
}
