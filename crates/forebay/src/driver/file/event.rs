//! Eventfd for completions that the kernel has deferred.
//!
//! A ring's own descriptor becomes readable for deferred completions, but wakes no thread that
//! sleeps on it. Only entries in the completion queue wake, and deferred work gets there when the
//! ring's thread enters the kernel. An eventfd that is registered with the ring is signalled for
//! both. It costs the kernel a little per completion, so it is registered only when a caller asks
//! for a descriptor.
//!
//! It is signalled also for what completes within a system call of the ring's own thread, which
//! looks after it anyway. So that thread has signals left out meanwhile
//! (`IORING_CQ_EVENTFD_DISABLED`), and there is nothing to take back: a batch that completes at
//! once costs no system call for its descriptor. (`IORING_REGISTER_EVENTFD_ASYNC` would not do: it
//! leaves out all but what the kernel's own workers complete, and so most that is deferred.)
//!
//! Nothing is left out that the thread does not see. All that completes elsewhere is deferred: who
//! defers adds it to a list, sets `IORING_SQ_TASKRUN` by an atomic operation, then reads whether
//! signals are left out. The thread writes that they are not, then, after a full fence, looks at
//! that flag and at the completions. Each is a write before a read of what the other has written,
//! so one of them comes second and sees it: either there is a signal, or the thread tells by itself
//! ([`Driver::has_ready`](forebay_core::Driver::has_ready)). The kernel's two steps are in this
//! order on x86 alone, where an atomic operation is a fence: elsewhere nothing is left out, and a
//! loop is woken once in vain.
//!
//! A signal may come late, when what it tells of was taken: whoever finds the descriptor readable
//! says so ([`Waiter::told`](crate::driver::Waiter::told)), and the next look takes it back.
// It makes system calls that the ring's library makes only together with the ring.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// `IORING_REGISTER_EVENTFD`.
const REGISTER_EVENTFD: libc::c_uint = 4;

/// Whether signals may be left out.
pub(super) const IS_HUSHED: bool = cfg!(target_arch = "x86_64");

/// The eventfd of a ring, once it was asked for.
#[derive(Debug, Default)]
pub(super) struct Event {
    file: OnceLock<File>,
    /// It was found readable. Relaxed: the ring's thread alone says so, and looks.
    is_told: AtomicBool,
}

impl Event {
    /// The descriptor. It begins readable: completions may be there. None where the system has no
    /// room for it.
    pub(super) fn fd(&self, ring: BorrowedFd<'_>) -> Option<BorrowedFd<'_>> {
        if self.file.get().is_none() {
            let _ = self.file.set(registered(ring)?);
        }
        self.file.get().map(AsFd::as_fd)
    }

    /// Whether somebody has asked for it.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.file.get().is_some()
    }

    /// It was found readable.
    pub(super) fn told(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    /// Whether it was found readable since the last question.
    #[inline]
    pub(super) fn was_told(&self) -> bool {
        let is_told = self.is_told.load(Ordering::Relaxed);
        self.is_told.store(false, Ordering::Relaxed);
        is_told
    }

    /// Takes back that it is readable.
    pub(super) fn clear(&self) {
        if let Some(mut file) = self.file.get() {
            // It fails where it is not readable, which is as well.
            let _ = file.read(&mut [0; 8]);
        }
    }
}

/// A new eventfd that the ring signals.
fn registered(ring: BorrowedFd<'_>) -> Option<File> {
    // SAFETY: it takes numbers only.
    let fd = unsafe { libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return None;
    }
    // SAFETY: just opened, and nobody else's.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    let (ring, nr) = (ring.as_raw_fd(), 1u32);
    // SAFETY: the ring is open, and the kernel reads one descriptor's number.
    let answer = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring, REGISTER_EVENTFD, &raw const fd, nr)
    };
    (answer == 0).then(|| event.into())
}
