//! Locks that keep other programs away from a file or block device.
//!
//! A file is locked as a whole, by a lock of the open file description (`F_OFD_SETLK`), which is
//! advisory. A block device is opened with `O_EXCL`, which fails while it is mounted, part of
//! another device, or open so by another program.
// It makes a system call that the standard library does not wrap.
#![allow(unsafe_code)]

use super::place::{Name, open_again};
use crate::error::OpenError;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// Why a disk of this process is in the way of `exclusive=on`.
pub(super) const HERE: &str =
    "this process has it open already; close that disk first, or use a clone of it";

/// The error of `exclusive=on`.
pub(super) fn not_exclusive(path: &Path, why: impl Into<String>) -> OpenError {
    OpenError::Exclusive { path: path.to_owned(), why: why.into() }
}

/// How often a device that is in use is tried, and the pause between: a child of a fork has all
/// descriptors until it executes a program, including those that were closed here.
const NR_TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// Opens the file at `path` once more, and locks it.
///
/// # Errors
/// It is in use, or cannot be locked.
pub(super) fn open_alone(path: &Path, name: Name, read_only: bool) -> Result<File, OpenError> {
    let is_device = matches!(name, Name::BlockDevice(_));
    let open = || open_again(path, name, read_only, if is_device { libc::O_EXCL } else { 0 });
    let mut opened = open();
    for _ in 0..NR_TRIES {
        if !opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            break;
        }
        std::thread::sleep(PAUSE);
        opened = open();
    }
    let alone = opened.map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY) => not_exclusive(
            path,
            "it is in use: mounted, part of another device, or open with O_EXCL (EBUSY); \
                 lsblk and fuser say by whom",
        ),
        _ => not_exclusive(path, format!("it cannot be opened once more: {source}")),
    })?;
    if !is_device {
        let kind = if read_only { libc::F_RDLCK } else { libc::F_WRLCK };
        lock(&alone, libc::F_OFD_SETLK, kind).map_err(|source| match source.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => {
                not_exclusive(path, "another program has locked it; lslocks says which")
            }
            _ => not_exclusive(path, format!("its file system does not lock it: {source}")),
        })?;
    }
    Ok(alone)
}

/// Unlocks a file. A child of a fork may have the descriptor as well, so to close it may not do.
pub(super) fn unlock(file: &File) {
    // A device has no lock, and there is nothing to do about a failure.
    let _ = lock(file, libc::F_OFD_SETLK, libc::F_UNLCK);
}

/// Returns whether another program has locked all of the file. Locks of some bytes have a meaning
/// that only the programs know that use them.
pub(super) fn is_locked(file: &File) -> bool {
    // A file system without such locks has none.
    lock(file, libc::F_OFD_GETLK, libc::F_RDLCK).is_ok_and(|found| {
        (i32::from(found.l_type), found.l_start, found.l_len) == (libc::F_WRLCK, 0, 0)
    })
}

/// Sets a lock on all of a file, or returns the one that is in the way.
fn lock(file: &File, call: i32, kind: i32) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        // All of it, however long.
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the kernel reads and writes this one structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), call, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}
