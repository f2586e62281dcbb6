//! The number of a thread in the system.
// A system call without arguments.
#![allow(unsafe_code)]

/// Returns the number of the calling thread, as tools such as `ps -L` show it.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: the call has no arguments and always succeeds.
    let id = unsafe { libc::gettid() };
    id.unsigned_abs()
}
