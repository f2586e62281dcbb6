//! Open-file-description locks on byte ranges: `F_OFD_SETLK`, `F_OFD_GETLK`; fcntl(2).
// It makes a system call that the standard library does not wrap.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A byte range of a file: offset and length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) start: libc::off_t,
    pub(super) len: libc::off_t,
}

impl Range {
    /// The whole file, whatever its length.
    pub(super) const ALL: Range = Range { start: 0, len: 0 };

    /// Returns the range of one byte.
    pub(super) fn byte(start: libc::off_t) -> Range {
        Range { start, len: 1 }
    }
}

/// Sets the lock of `range` to `kind`: `F_RDLCK`, `F_WRLCK` or `F_UNLCK`. Does not wait.
///
/// # Errors
/// Fails if a lock of another description conflicts (EAGAIN or EACCES), if the file system has no
/// locks ([`is_unsupported`]), or if its server has failed.
pub(super) fn set(file: &File, range: Range, kind: i32) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, range, kind).map(drop)
}

/// Returns a lock of another description that conflicts with a lock of `kind`, or one of type
/// `F_UNLCK` if there is none.
///
/// # Errors
/// Fails if the file system has no locks ([`is_unsupported`]), or if its server has failed.
pub(super) fn conflict(file: &File, range: Range, kind: i32) -> io::Result<libc::flock> {
    call(file, libc::F_OFD_GETLK, range, kind)
}

/// Returns whether the error means that the file system has no locks.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::EINVAL | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP))
}

fn call(file: &File, command: i32, range: Range, kind: i32) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start,
        l_len: range.len,
        l_pid: 0,
    };
    loop {
        // SAFETY: the descriptor is open, and the kernel reads and writes this one structure.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } == 0 {
            return Ok(lock);
        }
        let error = io::Error::last_os_error();
        // FUSE and network file systems ask a server, and a signal may interrupt that.
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
