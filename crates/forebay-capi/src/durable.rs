//! Durable points of a disk, and losses.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{place_of, place_or_null};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle::{self, InUse};
use std::ffi::c_int;

/// # Safety
/// As for [`handle::get`].
unsafe fn disk_of(disk: *mut forebay_disk) -> Result<InUse<OpenDisk>, Failure> {
    // SAFETY: the caller keeps the conditions.
    unsafe { handle::get::<OpenDisk>(disk) }
}

/// Stores the current durable point in *point. It covers all writes to the disk that have ended so
/// far, by any thread. 0 if every write is durable when it ends.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_durable_point(disk: *mut forebay_disk, point: *mut u64) -> c_int {
    // SAFETY: the caller passes a handle, and the place of a number.
    guard(|| unsafe {
        place_of(point)?.write(disk_of(disk)?.disk.durable_point());
        Ok(0)
    })
}

/// Waits until all writes up to a durable point are on stable storage. All threads that wait share
/// flushes.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_durable_wait(disk: *mut forebay_disk, point: u64) -> c_int {
    // SAFETY: the caller passes a handle.
    guard(|| unsafe {
        disk_of(disk)?.disk.durable(point).wait()?;
        Ok(0)
    })
}

/// Returns 1 if all writes up to a durable point are known to be on stable storage, 0 if not, or a
/// negative errno. Never waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_durable_test(disk: *mut forebay_disk, point: u64) -> c_int {
    // SAFETY: the caller passes a handle.
    guard(|| unsafe { Ok(c_int::from(disk_of(disk)?.disk.is_durable(point))) })
}

/// Acknowledges the writes that a failed flush may have lost: write them again, or give them up.
/// Then flushes work again. Writes with a durable point above *after and up to *up_to are
/// concerned. Both pointers may be NULL.
///
/// Returns 1 if there was a loss, 0 if not, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_acknowledge_loss(
    disk: *mut forebay_disk,
    after: *mut u64,
    up_to: *mut u64,
) -> c_int {
    // SAFETY: the caller passes a handle, and places of numbers, or null.
    guard(|| unsafe {
        let (after, up_to) = (place_or_null(after)?, place_or_null(up_to)?);
        store_loss(disk_of(disk)?.disk.acknowledge_loss(), after, up_to)
    })
}

/// Does the same as forebay_acknowledge_loss() without acknowledging the loss: flushes that cover
/// these writes keep failing.
///
/// Returns 1 if there is a loss, 0 if not, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_lost_writes(
    disk: *mut forebay_disk,
    after: *mut u64,
    up_to: *mut u64,
) -> c_int {
    // SAFETY: the caller passes a handle, and places of numbers, or null.
    guard(|| unsafe {
        let (after, up_to) = (place_or_null(after)?, place_or_null(up_to)?);
        store_loss(disk_of(disk)?.disk.lost_writes(), after, up_to)
    })
}

/// # Safety
/// The pointers are null, or places of numbers.
unsafe fn store_loss(
    loss: Option<forebay::LostWrites>,
    after: *mut u64,
    up_to: *mut u64,
) -> Result<c_int, Failure> {
    let Some(loss) = loss else { return Ok(0) };
    for (place, point) in [(after, loss.after), (up_to, loss.up_to)] {
        if !place.is_null() {
            // SAFETY: the caller keeps the conditions.
            unsafe { place.write(point) };
        }
    }
    Ok(1)
}
