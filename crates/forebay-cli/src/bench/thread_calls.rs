//! System calls that change the calling thread and that rustix lacks: `set_mempolicy(2)` and
//! `ioprio_set(2)`.
//!
//! Both apply to one thread, so each clone makes them on its own.
// System calls, one of which reads memory.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_ulong};
use std::ptr;

use forebay_fio::job::MemoryPolicy;
use forebay_fio::priority::Priority;
use rustix::io::Errno;

/// `IOPRIO_WHO_PROCESS`; with the number 0 it names the calling thread.
const WHO_PROCESS: c_int = 1;

/// Bits of a word of a node mask.
const WORD_BITS: usize = c_ulong::BITS as usize;

/// Sets the policy by which the kernel chooses the NUMA nodes of this thread's new pages.
///
/// # Errors
/// Returns the error of the call.
pub(super) fn set_memory_policy(policy: &MemoryPolicy) -> Result<(), Errno> {
    let mode = match policy {
        MemoryPolicy::Default => libc::MPOL_DEFAULT,
        MemoryPolicy::Local => libc::MPOL_LOCAL,
        MemoryPolicy::Prefer(_) => libc::MPOL_PREFERRED,
        MemoryPolicy::Bind(_) => libc::MPOL_BIND,
        MemoryPolicy::Interleave(_) => libc::MPOL_INTERLEAVE,
    };
    let mask = mask(policy.nodes());
    // The kernel reads one bit less than it is given, and no mask if the length is 0.
    let (mask, bits) = match mask.len() {
        0 => (ptr::null(), 0),
        words => (mask.as_ptr(), words * WORD_BITS + 1),
    };
    // SAFETY: the mask is null or has `bits - 1` bits, and lives until the call returns.
    let status = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, c_long::from(mode), mask, bits as c_ulong)
    };
    result(status)
}

/// Sets the I/O priority of this thread.
///
/// # Errors
/// Returns the error of the call.
pub(super) fn set_io_priority(priority: Priority) -> Result<(), Errno> {
    let number = c_int::from(priority.number());
    // SAFETY: the call takes numbers only.
    let status = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0 as c_int, number) };
    result(status)
}

/// Returns the bits of the nodes; none if there are no nodes.
fn mask(nodes: &[u32]) -> Vec<c_ulong> {
    let words = nodes.iter().max().map_or(0, |&last| last as usize / WORD_BITS + 1);
    let mut mask = vec![0; words];
    for &node in nodes {
        mask[node as usize / WORD_BITS] |= 1 << (node as usize % WORD_BITS);
    }
    mask
}

fn result(status: c_long) -> Result<(), Errno> {
    match status {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use forebay_fio::priority::Class;

    use super::*;

    /// Returns the mode and the first word of the mask of this thread's policy.
    fn memory_policy() -> (c_int, c_ulong) {
        let (mut mode, mut mask): (c_int, [c_ulong; 128]) = (-1, [0; 128]);
        let bits = (mask.len() * WORD_BITS + 1) as c_ulong;
        let no_address = ptr::null::<u8>();
        // SAFETY: the kernel writes `mode` and `bits - 1` bits of `mask`.
        let status = unsafe {
            let (mode, mask) = (ptr::from_mut(&mut mode), mask.as_mut_ptr());
            libc::syscall(libc::SYS_get_mempolicy, mode, mask, bits, no_address, 0 as c_long)
        };
        assert_eq!(result(status), Ok(()));
        (mode, mask[0])
    }

    #[test]
    fn policy_of_memory_is_that_of_the_calling_thread() {
        use MemoryPolicy::{Bind, Default, Interleave, Local, Prefer};

        let on_a_thread = || {
            match set_memory_policy(&Default) {
                Ok(()) => {}
                Err(error @ (Errno::NOSYS | Errno::PERM)) => {
                    let test = "policy_of_memory_is_that_of_the_calling_thread";
                    return eprintln!("{test} skipped: set_mempolicy: {error}");
                }
                Err(error) => panic!("set_mempolicy: {error}"),
            }
            for (policy, expected) in [
                (Bind(vec![0]), (libc::MPOL_BIND, 1)),
                (Interleave(vec![0]), (libc::MPOL_INTERLEAVE, 1)),
                (Prefer(0), (libc::MPOL_PREFERRED, 1)),
                (Local, (libc::MPOL_LOCAL, 0)),
                (Default, (libc::MPOL_DEFAULT, 0)),
            ] {
                assert_eq!(set_memory_policy(&policy), Ok(()), "{policy:?}");
                assert_eq!(memory_policy(), expected, "{policy:?}");
            }
            assert_eq!(set_memory_policy(&Bind(vec![8191])), Err(Errno::INVAL));
        };
        std::thread::spawn(on_a_thread).join().expect("no panic");
    }

    #[test]
    fn priority_of_io_is_that_of_the_calling_thread() {
        let priority_of_io = || {
            // SAFETY: the call takes numbers only.
            unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0 as c_int) }
        };
        let before = priority_of_io();
        let on_a_thread = || {
            let idle = Priority { class: Class::Idle, level: 3 };
            assert_eq!(set_io_priority(idle), Ok(()));
            assert_eq!(priority_of_io(), c_long::from(idle.number()));
        };
        std::thread::scope(|scope| scope.spawn(on_a_thread).join()).expect("no panic");
        assert_eq!(priority_of_io(), before);
    }

    #[test]
    fn masks_have_a_bit_for_each_node() {
        assert_eq!(mask(&[]), Vec::<c_ulong>::new());
        assert_eq!(mask(&[0, 2]), [5]);
        let last = WORD_BITS as u32;
        assert_eq!(mask(&[1, last]), [2, 1]);
    }
}
