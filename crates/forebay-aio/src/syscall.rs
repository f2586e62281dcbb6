//! libc's `syscall`, for programs that make calls of AIO without libaio.
//!
//! MariaDB, for example, sets contexts up by libaio and takes events by `syscall`. A handle of this
//! library is no context of the kernel, so these calls must come here. All others are made as libc
//! makes them.
//!
//! The function has no frame, and uses no lock: `vfork` and `clone` pass through it, and the child
//! of a `vfork` shares the stack with its parent. It compares the number of the call. For those of
//! AIO it jumps to [`aio`], with all arguments where they are. Otherwise it moves the arguments as
//! the kernel wants them. It does not jump to libc's function, whose address it would have to look
//! up before the first call, which may come before this library is initialized.
//!
//! Programs that contain the instruction itself are not reached.
//!
//! Source: syscall(2), and the psABI of x86-64 for the registers.
// Assembly, and the arguments of C programs.
#![allow(unsafe_code)]

use crate::abi::IoEvent;
use crate::kernel::{MASK_BYTES, Mask, SYS_IO_PGETEVENTS};
use crate::{exports, program, raw, table};
use std::arch::naked_asm;
use std::ffi::{c_int, c_long, c_void};
use std::ptr::with_exposed_provenance_mut;

/// Makes a system call.
///
/// # Safety
/// The arguments are valid for the call.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        // The numbers of AIO: five in a row, and one.
        "lea rax, [rdi - {first}]",
        "cmp rax, 4",
        "jbe {aio}",
        "cmp rdi, {pgetevents}",
        "je {aio}",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {fail}",
        first = const libc::SYS_io_setup,
        pgetevents = const SYS_IO_PGETEVENTS,
        aio = sym aio,
        fail = sym fail,
    )
}

const _: () = {
    let first = libc::SYS_io_setup;
    let all = [libc::SYS_io_destroy, libc::SYS_io_getevents, libc::SYS_io_submit];
    assert!(all[0] == first + 1 && all[1] == first + 2 && all[2] == first + 3);
    assert!(libc::SYS_io_cancel == first + 4);
};

/// Stores the errno of a failed call, and returns -1.
extern "C" fn fail(answer: c_long) -> c_long {
    // SAFETY: the variable of this thread.
    unsafe { libc::__errno_location().write(-answer as c_int) };
    -1
}

/// Makes a call of AIO: by this library if the handle is one of it, and otherwise by the kernel.
unsafe extern "C" fn aio(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let answer = if number != libc::SYS_io_setup && table::find(a).is_err() {
        // SAFETY: the arguments are those of the program.
        match unsafe { raw::call(number, [a, b, c, d, e, f]) } {
            Ok(answer) => return answer as c_long,
            Err(errno) => -errno,
        }
    } else {
        // SAFETY: as above.
        unsafe { own(number, [a, b, c, d, e, f]) }
    };
    if answer < 0 { fail(answer.into()) } else { answer.into() }
}

/// Makes a call on a handle of this library.
///
/// # Safety
/// The arguments are valid for the call.
unsafe fn own(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> c_int {
    let (handle, iocb) = (pointer::<c_void>(a), pointer::<c_void>(b));
    let events = pointer::<IoEvent>(d);
    // SAFETY: the caller's promise.
    unsafe {
        match number {
            libc::SYS_io_setup => exports::io_setup(a as c_int, pointer(b)),
            libc::SYS_io_destroy => exports::io_destroy(handle),
            libc::SYS_io_submit => exports::io_submit(handle, b as c_long, pointer(c)),
            libc::SYS_io_cancel => exports::io_cancel(handle, iocb, pointer(c)),
            libc::SYS_io_getevents => {
                exports::io_getevents(handle, b as c_long, c as c_long, events, pointer(e))
            }
            _ => match mask_of(f) {
                Ok(mask) => {
                    let (min, max) = (b as c_long, c as c_long);
                    exports::io_pgetevents(handle, min, max, events, pointer(e), mask)
                }
                Err(errno) => -errno,
            },
        }
    }
}

fn pointer<T>(address: usize) -> *mut T {
    with_exposed_provenance_mut(address)
}

/// Returns the signal mask of the last argument of `io_pgetevents`.
///
/// # Safety
/// The argument is 0 or the address of a [`Mask`].
unsafe fn mask_of(address: usize) -> Result<*const libc::sigset_t, raw::Errno> {
    if address == 0 {
        return Ok(std::ptr::null());
    }
    if !program::can_be_memory(address) {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    let Mask { mask, bytes } = unsafe { pointer::<Mask>(address).read_unaligned() };
    let is_right = mask.is_null() || bytes == MASK_BYTES;
    if is_right { Ok(mask) } else { Err(libc::EINVAL) }
}
