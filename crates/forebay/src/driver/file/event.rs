//! A descriptor that tells of completions that the kernel has deferred.
//!
//! A ring's own descriptor becomes readable with them too, but nobody who sleeps on it is woken:
//! only what has reached the completion queue wakes, and deferred work reaches that when its thread
//! asks for it. An eventfd that is registered with the ring is signalled for both. It costs the
//! kernel a little for each, so there is none until somebody asks.
// It makes system calls that the ring's library makes only together with the ring.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// `IORING_REGISTER_EVENTFD`.
const REGISTER_EVENTFD: libc::c_uint = 4;

/// The eventfd of a ring, once it was asked for.
#[derive(Debug, Default)]
pub(super) struct Event(OnceLock<File>);

impl Event {
    /// The descriptor. It begins readable: completions may be there. None where the system has no
    /// room for it.
    pub(super) fn fd(&self, ring: BorrowedFd<'_>) -> Option<BorrowedFd<'_>> {
        if self.0.get().is_none() {
            let _ = self.0.set(registered(ring)?);
        }
        self.0.get().map(AsFd::as_fd)
    }

    /// Takes back that it is readable. Says whether it is in use.
    #[inline]
    pub(super) fn clear(&self) -> bool {
        self.0.get().is_some_and(|mut file| {
            // It fails where it is not readable, which is as well.
            let _ = file.read(&mut [0; 8]);
            true
        })
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
