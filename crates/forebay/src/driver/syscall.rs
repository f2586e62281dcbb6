//! Blocking system calls of writes and flushes, repeated if a signal interrupts them.
// It makes system calls that no library wraps.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Writes with `RWF_DSYNC`. Makes the system call itself, because the C library's function returns
/// EOPNOTSUPP if the kernel lacks the call.
///
/// # Safety
/// As for `pwritev2`: the descriptor is open, and the memory of the vectors is valid.
pub(in crate::driver) unsafe fn write_durable(
    fd: i32,
    first: *const libc::iovec,
    nr: i32,
    start: u64,
) -> isize {
    // The kernel takes the offset in two halves. On a 64-bit machine it ignores the second.
    let (low, high) = (start as libc::c_long, (start >> 32) as libc::c_long);
    // SAFETY: the caller guarantees it.
    let answer =
        unsafe { libc::syscall(libc::SYS_pwritev2, fd, first, nr, low, high, libc::RWF_DSYNC) };
    answer as isize
}

/// Returns whether there is no call for [`write_durable`] (before Linux 4.6, or because of a
/// seccomp filter). A call without a file decides, because a write-back of the file may fail with
/// any number on FUSE.
#[cold]
pub(in crate::driver) fn lacks_durable_write() -> bool {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    // SAFETY: no descriptor has the number -1, so the kernel does nothing.
    let probe = || unsafe { write_durable(-1, &raw const nothing, 1, 0) };
    made(&mut 0, probe) == Err(libc::ENOSYS)
}

/// Makes `fsync` (`metadata`) or `fdatasync`. Returns 0 or its errno.
pub(in crate::driver) fn sync(
    file: &File,
    metadata: bool,
    nr_syscalls: &mut u32,
) -> Result<u64, i32> {
    let call = if metadata { libc::fsync } else { libc::fdatasync };
    // SAFETY: numbers only.
    made(nr_syscalls, || unsafe { call(file.as_raw_fd()) as isize })
}

/// Repeats a system call until no signal interrupts it. Returns its result or its errno.
pub(in crate::driver) fn made(nr_syscalls: &mut u32, call: impl Fn() -> isize) -> Result<u64, i32> {
    loop {
        *nr_syscalls += 1;
        let answer = call();
        if answer >= 0 {
            return Ok(answer as u64);
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            error => return Err(error.unwrap_or(libc::EIO)),
        }
    }
}
