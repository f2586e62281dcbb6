//! The flags with which a file is open.
// It reads and sets them with system calls.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

/// Returns the flags with which a descriptor is open (`O_RDWR`, `O_DIRECT` and others).
///
/// # Errors
/// Returns the system's error.
pub(crate) fn open_flags(fd: &impl AsRawFd) -> io::Result<i32> {
    // SAFETY: an open descriptor; the call takes no memory.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 { Err(io::Error::last_os_error()) } else { Ok(flags) }
}

/// Sets those flags of a descriptor that can change while it is open (`O_NONBLOCK` and others).
///
/// # Errors
/// Returns the system's error.
pub(crate) fn set_open_flags(fd: &impl AsRawFd, flags: i32) -> io::Result<()> {
    // SAFETY: an open descriptor; the call takes no memory.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
