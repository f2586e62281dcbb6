//! Seccomp filters that make system calls fail in the calling thread, in threads that it starts,
//! and in programs that it executes.
// This file makes system calls that no library wraps.
#![allow(unsafe_code)]

use std::io;

/// A system call that fails once the filter is installed.
pub(crate) struct Refused {
    pub(crate) call: i64,
    /// Index of an argument, from 0, and its value: calls with another value succeed. `None`: all
    /// calls fail.
    pub(crate) argument: Option<(u32, u32)>,
    pub(crate) errno: i32,
}

impl From<(i64, i32)> for Refused {
    fn from((call, errno): (i64, i32)) -> Refused {
        Refused { call, argument: None, errno }
    }
}

/// Makes each of these system calls fail with its error number, until the thread ends.
pub(crate) fn refuse(refused: impl IntoIterator<Item = impl Into<Refused>>) -> io::Result<()> {
    // The filter first loads the system call number.
    let mut program = vec![op(LOAD, 0)];
    for Refused { call, argument, errno } in refused.into_iter().map(Into::into) {
        let fail = op(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32);
        match argument {
            None => {
                program.extend([libc::sock_filter { jf: 1, ..op(IS_EQUAL, call as u32) }, fail])
            }
            Some((place, number)) => {
                // The arguments follow the system call number, the architecture and the instruction
                // pointer, each as two 32-bit words. This loads the low word.
                let half = if cfg!(target_endian = "big") { 4 } else { 0 };
                program.extend([
                    libc::sock_filter { jf: 4, ..op(IS_EQUAL, call as u32) },
                    op(LOAD, 16 + 8 * place + half),
                    libc::sock_filter { jf: 1, ..op(IS_EQUAL, number) },
                    fail,
                    op(LOAD, 0),
                ]);
            }
        }
    }
    install(program, 0).map(drop)
}

pub(crate) const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
pub(crate) const IS_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
pub(crate) const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

pub(crate) fn op(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Installs a filter that allows every call that it has not matched. Returns the kernel's answer.
pub(crate) fn install(
    mut program: Vec<libc::sock_filter>,
    flags: libc::c_ulong,
) -> io::Result<i64> {
    program.push(op(RETURN, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the arguments are numbers, and a program that the kernel copies.
    let answers = unsafe {
        [
            i64::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)),
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            ),
        ]
    };
    match answers {
        [0, answer] if answer >= 0 => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}
