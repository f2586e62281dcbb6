//! The socket at which `forebay top` shows the disks of a C program.
// Exports a function to C.
#![allow(unsafe_code)]

use crate::args::bytes_of;
use crate::error::{Failure, guard};
use forebay_insight::Insight;
use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, TryLockError};

/// The socket of this process.
static SOCKET: Mutex<Option<Insight>> = Mutex::new(None);

/// Listens at path, a unix socket at which the command "forebay top PATH" shows all disks of this
/// process while it runs. Its directory must be closed to other users. A thread of the library
/// answers, and sleeps between requests. Another call replaces the socket. NULL closes it.
///
/// Returns 0, or a negative errno: -ENOENT if the directory is missing, -EPERM if it is open to
/// other users, -EADDRINUSE if another process listens there, -EEXIST if the path is no socket,
/// -EAGAIN if another thread is in this call, or the errno of a failed system call. After a failure
/// the former socket has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_insight_listen(path: *const c_char) -> c_int {
    guard(|| {
        let mut socket = match SOCKET.try_lock() {
            Ok(socket) => socket,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Not a wait: in a child of a fork, a thread of the parent may hold the lock for ever.
            Err(TryLockError::WouldBlock) => {
                let why = c"another thread is in forebay_insight_listen(): call it again";
                return Err(Failure::of(libc::EAGAIN, why));
            }
        };
        *socket = None;
        if !path.is_null() {
            // SAFETY: the caller passes a C string; null was excluded.
            let path = OsStr::from_bytes(unsafe { bytes_of(path, "path") }?);
            let insight = Insight::listen(path);
            *socket =
                Some(insight.map_err(|error| Failure::new(error.errno(), error.to_string()))?);
        }
        Ok(0)
    })
}
