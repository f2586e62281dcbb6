//! A kernel that refuses system calls: a seccomp filter of the calling thread, of those that it
//! starts, and of what it executes.
// It makes system calls that no library wraps.
#![allow(unsafe_code)]

use std::io;

/// From now on, for ever, each of these system calls fails with its error number.
pub(crate) fn refuse(calls: &[(i64, i32)]) -> io::Result<()> {
    let op = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // The number of the call is the first word of what a filter looks at.
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for &(call, errno) in calls {
        let is_other = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(libc::sock_filter { jf: 1, ..op(is_other, call as u32) });
        program.push(op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: numbers, and a program that the kernel copies.
    let answers = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    match answers {
        [0, 0] => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
