//! System calls that wait until the test lets them go, by a seccomp listener.
// The kernel returns a raw descriptor.
#![allow(unsafe_code)]

use crate::seccomp::{IS_EQUAL, LOAD, RETURN, install, op};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Makes a system call wait in the calling thread, and in threads that it starts, until the result
/// is dropped. Then the call fails with ENOSYS.
pub(crate) fn hold(call: i64) -> io::Result<OwnedFd> {
    let program = vec![
        op(LOAD, 0),
        libc::sock_filter { jf: 1, ..op(IS_EQUAL, call as u32) },
        op(RETURN, libc::SECCOMP_RET_USER_NOTIF),
    ];
    let listener = install(program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    // SAFETY: the kernel has just opened the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}
