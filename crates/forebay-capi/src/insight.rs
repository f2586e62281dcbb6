//! The disks of a C program for monitoring: the socket for `forebay top`, and their counters as
//! text.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{bytes_of, store_text};
use crate::error::{Failure, guard};
use forebay::open_disks;
use forebay_insight::{Insight, diskstats, openmetrics};
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

/// Stores the counters of all open disks of this process and of their owners in buf, which has size
/// bytes, as OpenMetrics text for Prometheus, with a zero byte at the end. Serve it with the
/// content type "application/openmetrics-text; version=1.0.0; charset=utf-8". A longer text is
/// truncated, and must not be served.
///
/// Returns the length of the whole text without the zero byte, or a negative errno. The text may be
/// longer at the next call, such as after another disk was opened: enlarge buf and call again until
/// the result is below size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_insight_openmetrics(buf: *mut c_char, size: usize) -> c_int {
    // SAFETY: the caller passes `size` bytes of its own.
    guard(|| unsafe { store_text(&openmetrics(&open_disks()), buf, size) })
}

/// Stores a line for each open disk of this process in buf, which has size bytes, in the format of
/// /proc/diskstats (17 counters), with a zero byte at the end. The major number is 240, and the
/// minor number is that of the disk in this process. A longer text is truncated.
///
/// Returns the length of the whole text without the zero byte, or a negative errno. The text may be
/// longer at the next call: see forebay_insight_openmetrics().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_insight_diskstats(buf: *mut c_char, size: usize) -> c_int {
    // SAFETY: the caller passes `size` bytes of its own.
    guard(|| unsafe { store_text(&diskstats(&open_disks()), buf, size) })
}
