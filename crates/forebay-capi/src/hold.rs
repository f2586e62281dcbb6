//! Holds: disks that are frozen, quiesced or stopped until the hold is released.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::place_of;
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle::{self, Kind, Mark};
use forebay::{Disk, Hold};
use std::ffi::c_int;
use std::time::Duration;

/// A hold on a disk: it keeps I/O from the device until forebay_release(). Any thread may release
/// it.
pub struct forebay_hold {
    _private: [u8; 0],
}

/// The value of a `forebay_hold`.
struct OpenHold {
    /// Dropping it releases the hold.
    _hold: Hold,
}

impl Kind for OpenHold {
    const MARK: Mark = handle::HOLD;
    type Pointee = forebay_hold;
}

/// Takes a hold of a disk.
///
/// # Safety
/// `disk` is as for [`handle::get`]. `hold` is null, or the place of a pointer.
unsafe fn hold_by(
    disk: *mut forebay_disk,
    hold: *mut *mut forebay_hold,
    take: impl FnOnce(&Disk) -> Result<Hold, Failure>,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps the conditions.
        let disk = unsafe { handle::get::<OpenDisk>(disk) }?;
        let place = place_of(hold)?;
        disk.check_not_forked()?;
        let handle = handle::open(OpenHold { _hold: take(&disk.disk)? });
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { place.write(handle) };
        Ok(0)
    })
}

/// Freezes a disk: new I/O waits, and the call returns when all earlier I/O has ended. It waits for
/// at most timeout_ms milliseconds, or without a limit if timeout_ms is negative. Other threads
/// with queues must reap their I/O meanwhile. Until the hold is released, blocking calls wait,
/// including those of this thread. Stores a handle in *hold.
///
/// Returns 0, or a negative errno: -EBUSY if another hold keeps earlier I/O from the device,
/// -ETIMEDOUT if earlier I/O has not ended in time. After a failure the disk is not frozen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_freeze(
    disk: *mut forebay_disk,
    timeout_ms: c_int,
    hold: *mut *mut forebay_hold,
) -> c_int {
    let freeze = |disk: &Disk| {
        let frozen = match u64::try_from(timeout_ms) {
            Ok(ms) => disk.freeze_timeout(Duration::from_millis(ms)),
            Err(_) => disk.freeze(),
        };
        frozen.map_err(Failure::from)
    };
    // SAFETY: the caller passes a handle, and the place of another one.
    unsafe { hold_by(disk, hold, freeze) }
}

/// Quiesces a disk: once this returns, no more requests are passed to the device. Requests that the
/// device already has end as usual. Stores a handle in *hold.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_quiesce(
    disk: *mut forebay_disk,
    hold: *mut *mut forebay_hold,
) -> c_int {
    // SAFETY: as in `forebay_freeze`.
    unsafe { hold_by(disk, hold, |disk| Ok(disk.quiesce())) }
}

/// Stops a disk: no more requests are passed to the device, except by threads that are already
/// passing some. Never waits. Requests that the device already has end as usual. Stores a handle in
/// *hold.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stop(
    disk: *mut forebay_disk,
    hold: *mut *mut forebay_hold,
) -> c_int {
    // SAFETY: as in `forebay_freeze`.
    unsafe { hold_by(disk, hold, |disk| Ok(disk.stop())) }
}

/// Releases a hold. If it was the last one of its kind, the I/O that it held continues.
///
/// Returns 0, or a negative errno: -EBADF if it is already released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_release(hold: *mut forebay_hold) -> c_int {
    // SAFETY: the caller passes a handle.
    guard(|| unsafe { handle::close::<OpenHold>(hold) }.map(|()| 0))
}
