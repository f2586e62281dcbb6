//! Tests in a forked child.
//!
//! The unit tests of the library include this file by its path.

/// Runs a test in a forked child. Returns whether the test returned `true`.
#[expect(unsafe_code, reason = "a fork is a system call")]
pub(crate) fn in_child(test: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child does only what is allowed after a fork of a multi-threaded program. It
    // takes no lock of another thread except the allocator's, which libc makes consistent in the
    // child.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: this call takes a number only. The signal kills a child that hangs; it has no
            // handler.
            unsafe { libc::alarm(60) };
            let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).unwrap_or(false);
            // SAFETY: this call ends the child immediately.
            unsafe { libc::_exit(i32::from(!ok)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: this call waits for our own child, and writes to `status` only.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            waited == child && status == 0
        }
    }
}
