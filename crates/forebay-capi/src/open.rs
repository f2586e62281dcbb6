//! Opening and closing of disks, and the version of the library.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{place_of, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle;
use forebay::{Disk, OpenError, Spec};
use std::ffi::{c_char, c_int};

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

/// A key of a spec, and its value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_option {
    /// The key, such as "direct".
    pub key: *const c_char,
    /// The value, such as "on".
    pub value: *const c_char,
}

/// Opens a file or block device by its path, with nr options: keys that a spec accepts for the
/// driver `file`, such as direct or queue_depth. No character of the path or of a value has a
/// special meaning. Stores a handle in *disk.
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
        let path = unsafe { text_of(path, "path") }?;
        let opened = place_of(disk)?;
        if path.is_empty() {
            return Err(Failure::invalid("the path is empty"));
        }
        let mut spec = Spec::parse(&format!("file:{}", escaped(path))).map_err(OpenError::from)?;
        if nr > 0 && (options.is_null() || !options.is_aligned()) {
            return Err(Failure::invalid("the array of options is NULL or misaligned"));
        }
        for nth in 0..nr as usize {
            // SAFETY: the caller passes `nr` options, with C strings or null.
            let (key, value) = unsafe {
                let option = options.add(nth).read();
                (
                    text_of(option.key, "key of an option")?,
                    text_of(option.value, "value of an option")?,
                )
            };
            spec.set(key, value);
        }
        let handle = handle::open(OpenDisk::new(Disk::open_spec(&spec)?));
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { opened.write(handle) };
        Ok(0)
    })
}

/// Returns a path with the escapes of a spec.
fn escaped(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F")
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
