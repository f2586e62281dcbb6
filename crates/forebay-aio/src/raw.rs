//! System calls without libc, whose function `syscall` this library replaces.
// Assembly.
#![allow(unsafe_code)]

use std::ffi::c_long;

/// The errno of a failed call.
pub(crate) type Errno = i32;

/// Makes a system call.
///
/// # Errors
/// Returns the errno of the call.
///
/// # Safety
/// The arguments are valid for the call.
pub(crate) unsafe fn call<const NR: usize>(
    number: c_long,
    args: [usize; NR],
) -> Result<usize, Errno> {
    let mut all = [0; 6];
    all[..NR].copy_from_slice(&args);
    // SAFETY: the caller's promise.
    let answer = unsafe { call_six(number, all) };
    match usize::try_from(answer) {
        Ok(answer) => Ok(answer),
        Err(_) => Err(answer.wrapping_neg() as Errno),
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn call_six(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let answer;
    // SAFETY: the kernel changes the two registers that are marked, and the memory that the call
    // names.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn call_six(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    match answer {
        -1 => -(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize),
        _ => answer as isize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has few system calls")]
    fn results_and_errnos_are_returned() {
        // SAFETY: the calls name no memory.
        let (pid, error) =
            unsafe { (call(libc::SYS_getpid, []), call(libc::SYS_close, [usize::MAX])) };
        assert_eq!((pid, error), (Ok(std::process::id() as usize), Err(libc::EBADF)));
        let mut bytes = [0_u8; 4];
        let address = bytes.as_mut_ptr().expose_provenance();
        let file = tempfile::tempfile().expect("a file");
        std::os::unix::fs::FileExt::write_all_at(&file, b"12345678", 0).expect("room");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
        // SAFETY: the memory has four bytes.
        let nr = unsafe { call(libc::SYS_pread64, [fd, address, 4, 2]) };
        assert_eq!((nr, bytes), (Ok(4), *b"3456"));
    }
}
