//! Check that a child of a fork uses no device of its parent.
// It forks.
#![allow(unsafe_code)]

use super::Subject;
use super::helpers::{assert_result, keeps_data, pattern, reap_all, submit};
use crate::{BioQueue, Buf, Disk, Io, IoError, SubmitErrorKind};

const BLOCK: u64 = 4096;

/// The longest time that the child may take, in seconds.
const LIMIT_S: u32 = 60;

pub(super) fn a_child_of_a_fork_uses_no_device(subject: &Subject<'_>) {
    let disk = subject.open("nr_hw_queues=1");
    let mut queue = disk.queue();
    for n in 0..4 {
        submit(&mut queue, Io::write(pattern(1, n, BLOCK), n * BLOCK));
    }
    let child = fork(|| is_refused(&disk, &queue));
    let ended = reap_all(&mut queue);
    let status = wait_for(child);
    for done in ended {
        assert_result("a write during a fork", &done.result, &Ok(BLOCK));
    }
    assert_eq!(status, 0, "the child of a fork uses the device, or hangs when it drops the disk");
    let mut back = Buf::new(BLOCK as usize);
    assert_eq!(disk.read_at(&mut back, BLOCK), Ok(BLOCK as usize));
    let is_same = back[..] == pattern(1, 1, BLOCK)[..];
    assert!(!keeps_data(&disk) || is_same, "a write during a fork is lost in the parent");
}

/// Returns whether the disk refuses I/O, in the child. Drops the child's handles.
fn is_refused(disk: &Disk, queue: &BioQueue) -> bool {
    let refused = disk.read_at(&mut [0; 512], 0);
    // SAFETY: the child ends without unwinding, so these are the last uses of its copies.
    unsafe {
        drop(std::ptr::read(queue));
        drop(std::ptr::read(disk));
    }
    refused == Err(IoError::Refused(SubmitErrorKind::Forked))
}

/// Runs `test` in a child of a fork, which exits with 0 if it returns true. Returns its number.
fn fork(test: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child takes no lock of another thread except the allocator's, which libc makes
    // consistent in the child. It does not return: it exits, or a signal without a handler kills
    // it.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(LIMIT_S);
                let is_ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
                libc::_exit(i32::from(!is_ok.unwrap_or(false)));
            }
            child => child,
        }
    }
}

/// Waits for a child. Returns its status: 0 if it has exited with 0.
fn wait_for(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the call waits for our own child, and writes to `status` only.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "the child was started");
    status
}
