//! Data and holes of a file, through `SEEK_DATA` and `SEEK_HOLE`.
//!
//! These calls move the offset of the open file, which all queues share. No code relies on that
//! offset: each of these calls, and every read and write of the drivers, gives its own.
// It makes system calls that the standard library does not wrap.
#![allow(unsafe_code)]

use crate::errno;
use crate::extent::{ExtentKind, Extents};
use forebay_core::BlockStatus;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Adds the extents of a file from `offset` on: one system call for each extent, and two more. A
/// block device is data, and so is the range beyond the end of a file.
pub(super) fn of_file(
    file: &File,
    offset: u64,
    extents: &mut Extents<'_>,
) -> Result<(), BlockStatus> {
    let metadata = file.metadata().map_err(|error| status(&error))?;
    let end = if metadata.is_file() { metadata.len() } else { 0 };
    let mut at = offset;
    while extents.left() > 0 && at < end {
        let data = match seek(file, at, libc::SEEK_DATA) {
            Ok(data) => data.clamp(at, end),
            // A hole up to the end, which may have moved meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => end,
            Err(error) => return Err(status(&error)),
        };
        extents.push(data - at, ExtentKind::Hole);
        at = data;
        if extents.left() == 0 || at == end {
            break;
        }
        let hole = match seek(file, at, libc::SEEK_HOLE) {
            Ok(hole) => hole.min(end),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => end,
            Err(error) => return Err(status(&error)),
        };
        // Data may have become a hole since the first call. Then no more extents are known.
        if hole <= at {
            break;
        }
        extents.push(hole - at, ExtentKind::Data);
        at = hole;
    }
    Ok(())
}

fn seek(file: &File, offset: u64, whence: i32) -> io::Result<u64> {
    // The offset is below the size of the file, which is a positive `off_t`.
    // SAFETY: an open descriptor and numbers.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset as libc::off_t, whence) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error())
}

fn status(error: &io::Error) -> BlockStatus {
    errno::to_status(error.raw_os_error().unwrap_or(libc::EIO))
}
