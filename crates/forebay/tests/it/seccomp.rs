//! A kernel that refuses system calls: a seccomp filter of the calling thread, of those that it
//! starts, and of what it executes.
// It makes system calls that no library wraps.
#![allow(unsafe_code)]

use std::io;

/// From now on, for ever, each of these system calls fails with its error number.
pub(crate) fn refuse(calls: &[(i64, i32)]) -> io::Result<()> {
    // The number of the call is the first word of what a filter looks at.
    let mut program = vec![op(LOAD, 0)];
    for &(call, errno) in calls {
        program.push(libc::sock_filter { jf: 1, ..op(IS_EQUAL, call as u32) });
        program.push(op(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    install(program)
}

/// From now on, for ever, a system call fails with an error number if its argument of this place,
/// from 0 on, is this number.
pub(crate) fn refuse_argument(call: i64, place: u32, number: u32, errno: i32) -> io::Result<()> {
    // Behind the number of the call, the architecture and the place of the instruction are the
    // arguments, in two words each. This is the one with the lower half.
    let argument = 16 + 8 * place + if cfg!(target_endian = "big") { 4 } else { 0 };
    install(vec![
        op(LOAD, 0),
        libc::sock_filter { jf: 3, ..op(IS_EQUAL, call as u32) },
        op(LOAD, argument),
        libc::sock_filter { jf: 1, ..op(IS_EQUAL, number) },
        op(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32),
    ])
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IS_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

fn op(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Installs a filter that ends by letting a call through.
fn install(mut program: Vec<libc::sock_filter>) -> io::Result<()> {
    program.push(op(RETURN, libc::SECCOMP_RET_ALLOW));
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
