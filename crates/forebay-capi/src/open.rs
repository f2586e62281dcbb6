//! Opening and closing of disks, and the version of the library.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{bytes_of, forebay_option, pairs_of, place_of, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle;
use forebay::foreign::duplicate;
use forebay::{Disk, DiskOptions, errno_of};
use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// Opens the disk that a spec names: "disk.img?direct=on", "/dev/vdb", "nbd://host/name",
/// "ram:64M". Stores a handle in *disk.
///
/// Returns 0, or a negative errno: -EINVAL for a wrong spec, -ENOENT, -EACCES, -EBUSY if another
/// program uses the image, or the errno of a failed system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_open(spec: *const c_char, disk: *mut *mut forebay_disk) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a C string, or null.
        let spec = unsafe { text_of(spec, "spec") }?;
        let opened = place_of(disk)?;
        let handle = handle::open(OpenDisk::new(Disk::open(spec)?));
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { opened.write(handle) };
        Ok(0)
    })
}

/// Opens a file or block device by its path, with nr options: keys that a spec accepts for files,
/// such as direct or queue_depth, and the key driver: file (the default), aio or psync. No byte of
/// the path has a special meaning. Stores a handle in *disk.
///
/// Returns 0, or a negative errno as forebay_open() does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_open_path(
    path: *const c_char,
    options: *const forebay_option,
    nr: u32,
    disk: *mut *mut forebay_disk,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a C string, or null.
        let path = OsStr::from_bytes(unsafe { bytes_of(path, "path") }?);
        let opened = place_of(disk)?;
        if path.is_empty() {
            return Err(Failure::invalid("the path is empty"));
        }
        // SAFETY: the caller passes `nr` options.
        let options = unsafe { options_of(options, nr) }?;
        let handle = handle::open(OpenDisk::new(options.open_path(path)?));
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { opened.write(handle) };
        Ok(0)
    })
}

/// Opens the file or block device that fd refers to, with options as for forebay_open_path(). The
/// descriptor is duplicated: the caller still owns fd, and may close it. The disk opens the file
/// again, with the flags that it needs. Stores a handle in *disk.
///
/// Returns 0, or a negative errno as forebay_open() does: -EBADF if fd is not open, -EINVAL if a
/// disk cannot use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_open_fd(
    fd: c_int,
    options: *const forebay_option,
    nr: u32,
    disk: *mut *mut forebay_disk,
) -> c_int {
    guard(|| {
        let opened = place_of(disk)?;
        // SAFETY: the caller passes `nr` options.
        let options = unsafe { options_of(options, nr) }?;
        let own = duplicate(fd).map_err(|error| {
            let text = format!("cannot duplicate the descriptor {fd}: {error}");
            Failure::new(errno_of(&error), text)
        })?;
        let handle = handle::open(OpenDisk::new(options.open_fd(own)?));
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { opened.write(handle) };
        Ok(0)
    })
}

/// Returns the options of the caller.
///
/// # Safety
/// `options` is null, or points to `nr` options with C strings or null.
unsafe fn options_of(options: *const forebay_option, nr: u32) -> Result<DiskOptions, Failure> {
    // SAFETY: the caller keeps the conditions.
    let pairs = unsafe { pairs_of(options, nr) }?;
    pairs.into_iter().try_fold(Disk::options(), |chosen, pair| match pair {
        ("driver", driver) => Ok(chosen.driver(driver)),
        (key, value) => Ok(chosen.set(key, value)?),
    })
}

/// Closes a handle of a disk. Calls that are using it end as usual; later calls fail. When these
/// calls have ended and the queues of the disk are closed, the disk itself is closed, which waits
/// for I/O in flight. It does not flush.
///
/// Returns 0, or a negative errno: -EBADF if the handle is closed already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_close(disk: *mut forebay_disk) -> c_int {
    // SAFETY: the caller passes a handle.
    guard(|| unsafe { handle::close::<OpenDisk>(disk) }.map(|()| 0))
}

/// Returns the version of the library as text, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn forebay_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
