//! Changes of a disk in use: its scheduler, its tags, and the measure of weights.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{forebay_option, pairs_of, store_text, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle::{self, InUse};
use forebay::{Policy, WEIGHT_KEYS};
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// Returns a disk that this process has opened.
///
/// # Safety
/// As for [`handle::get`].
unsafe fn unforked(disk: *mut forebay_disk) -> Result<InUse<OpenDisk>, Failure> {
    // SAFETY: the caller keeps the conditions.
    let disk = unsafe { handle::get::<OpenDisk>(disk) }?;
    disk.check_not_forked()?;
    Ok(disk)
}

/// Changes the scheduler of a disk in use, or its settings. Keys are scheduler, device_depth and
/// the parameters of schedulers, as in specs. Settings that are not given stay. The disk is frozen
/// meanwhile, as by forebay_freeze() with timeout_ms: I/O that it has admitted ends first.
///
/// Returns 0, or a negative errno: -EINVAL for a wrong setting, or for a disk with several hardware
/// contexts; those of forebay_freeze(). After a failure the disk has the scheduler that it had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_set_scheduler(
    disk: *mut forebay_disk,
    settings: *const forebay_option,
    nr: u32,
    timeout_ms: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle, and an array of `nr` options.
        let (disk, settings) = unsafe { (unforked(disk)?, pairs_of(settings, nr)?) };
        let mut scheduling = disk.disk.scheduling();
        for (key, value) in settings {
            scheduling.set_key(key, value)?;
        }
        match u64::try_from(timeout_ms) {
            Ok(ms) => disk.disk.set_scheduler_timeout(scheduling, Duration::from_millis(ms))?,
            Err(_) => disk.disk.set_scheduler(scheduling)?,
        }
        Ok(0)
    })
}

/// Stores the present setting of the scheduler with a key, such as "scheduler", as text in buf,
/// which has size bytes, with a zero byte at the end. A longer text is truncated. forebay_info()
/// stores the setting that the disk was opened with.
///
/// Returns the length of the whole text without the zero byte, or a negative errno: -ENOENT if
/// there is no such setting of schedulers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_scheduler(
    disk: *mut forebay_disk,
    key: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle, and a C string or null.
        let (disk, key) = unsafe { (unforked(disk)?, text_of(key, "key")?) };
        let text = disk.disk.scheduling().get_key(key).ok_or_else(|| {
            let text = format!("no setting of schedulers has the key `{key}`");
            Failure::new(libc::ENOENT, text)
        })?;
        // SAFETY: the caller passes `size` bytes of its own.
        unsafe { store_text(&text, buf, size) }
    })
}

/// Sets how many tags each hardware context of a disk in use may have in use: the setting
/// nr_requests, 1 to queue_depth. A request takes a tag, then waits in the scheduler, if there is
/// one, which lets device_depth requests to the device.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_set_nr_requests(
    disk: *mut forebay_disk,
    nr_requests: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle.
        unsafe { unforked(disk) }?.disk.set_nr_requests(nr_requests)?;
        Ok(0)
    })
}

/// Sets the measure in which weights of owners divide a disk in use. Keys are weight_by (bytes, ios
/// or cost), cost_read_io_ns, cost_read_byte_ps, cost_write_io_ns and cost_write_byte_ps, as in
/// specs. Settings that are not given stay. I/O that was started before does not count for the
/// shares.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_set_weight_by(
    disk: *mut forebay_disk,
    settings: *const forebay_option,
    nr: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle, and an array of `nr` options.
        let (disk, settings) = unsafe { (unforked(disk)?, pairs_of(settings, nr)?) };
        let (by, cost) = disk.disk.weight_by();
        let mut policy = Policy::default().weight_by(by).cost(cost);
        for (key, value) in settings {
            policy.set_key_in(&WEIGHT_KEYS, key, value)?;
        }
        disk.disk.set_weight_by(policy.weight_by, policy.cost);
        Ok(0)
    })
}
