//! Opening and closing of disks, and the version of the library.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{place_of, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, errno_of, guard};
use crate::handle;
use forebay::{Disk, OpenError};
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
        let handle = handle::open(OpenDisk { disk: Disk::open(spec)? });
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { opened.write(handle) };
        Ok(0)
    })
}

/// Closes a handle of a disk. Calls that use it meanwhile end as usual; later ones fail. The disk
/// itself is closed when these calls have ended and its queues are closed, and then waits for the
/// I/O in flight. It does not flush.
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

impl From<OpenError> for Failure {
    #[cold]
    fn from(error: OpenError) -> Failure {
        let errno = match &error {
            OpenError::NotFound { .. } => libc::ENOENT,
            OpenError::NoPermission { .. } => libc::EACCES,
            OpenError::NotADisk { .. } => libc::ENOTBLK,
            OpenError::Exclusive { .. }
            | OpenError::InUse { .. }
            | OpenError::Locked { .. }
            | OpenError::ImageInUse { .. }
            | OpenError::PredecessorBusy { .. } => libc::EBUSY,
            OpenError::Service { source }
            | OpenError::Worker { source }
            | OpenError::System { source, .. }
            | OpenError::NoUring { source, .. }
            | OpenError::NoAio { source, .. }
            | OpenError::RingKey { source, .. }
            | OpenError::NoMemory { source, .. } => errno_of(source),
            OpenError::Nbd { .. } | OpenError::VhostUser { .. } => libc::ENOTCONN,
            OpenError::Spec(_)
            | OpenError::NoDirect { .. }
            | OpenError::Elide { .. }
            | OpenError::ModelFile { .. }
            | OpenError::TooSmall { .. }
            | OpenError::Capacity { .. }
            | OpenError::Limits { .. } => libc::EINVAL,
            // Those of later versions.
            _ => libc::EINVAL,
        };
        Failure::new(errno, error.to_string())
    }
}
