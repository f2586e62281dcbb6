//! Eventfd for completions that the kernel has deferred.
//!
//! The kernel makes a ring's own descriptor readable for deferred completions, but it wakes no
//! thread that sleeps on that descriptor. Only entries in the completion queue wake such a thread,
//! and deferred work gets there when the ring's thread enters the kernel. The kernel signals a
//! registered eventfd for both. This costs a little per completion, so the eventfd is registered
//! only when a caller asks for a descriptor.
//!
//! The kernel also signals the eventfd for completions within a system call of the ring's own
//! thread. That thread reads those completions anyway. So it suppresses signals during the call
//! (`IORING_CQ_EVENTFD_DISABLED`), and there is nothing to clear afterwards: a batch that completes
//! at once costs no system call for its descriptor. (`IORING_REGISTER_EVENTFD_ASYNC` does not
//! serve: it suppresses all signals but those of the kernel's own workers, and so those of most
//! deferred completions.)
//!
//! The thread misses no suppressed signal. All other completions are deferred: the kernel adds the
//! work to a list, sets `IORING_SQ_TASKRUN` with an atomic operation, then reads whether signals
//! are suppressed. The thread clears the suppression, then, after a full fence, reads that flag and
//! the completion queue. Each side writes before it reads what the other has written, so the later
//! side sees the other's write. Either the kernel signals, or the thread reports the completions
//! itself ([`Driver::has_ready`](forebay_core::Driver::has_ready)). The kernel's two steps are in
//! this order only on x86, where an atomic operation is a full fence. On other architectures no
//! signal is suppressed, and an event loop may wake once in vain.
//!
//! A signal may arrive after its completions were reaped. A caller that finds the descriptor
//! readable reports that (`ack_poll` of [`Waiter`](crate::driver::Waiter)), and the next reap
//! clears it.
// It makes system calls that the ring's library makes only together with the ring.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// `IORING_REGISTER_EVENTFD`.
const REGISTER_EVENTFD: libc::c_uint = 4;

/// True if signals may be suppressed on this architecture.
pub(super) const IS_HUSHED: bool = cfg!(target_arch = "x86_64");

/// The eventfd of a ring, once a caller has asked for it.
#[derive(Debug, Default)]
pub(super) struct Event {
    file: OnceLock<File>,
    /// The descriptor was found readable. Relaxed: only the thread that uses the ring accesses it.
    is_signalled: AtomicBool,
}

impl Event {
    /// Returns the descriptor, and creates it at first use. It begins readable, because completions
    /// may be present.
    ///
    /// # Errors
    /// Returns the system's error if it has no resources for it.
    pub(super) fn fd(&self, ring: BorrowedFd<'_>) -> io::Result<BorrowedFd<'_>> {
        if self.file.get().is_none() {
            let _ = self.file.set(registered(ring)?);
        }
        Ok(self.file.get().expect("just set").as_fd())
    }

    /// Returns whether a caller has asked for the descriptor.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.file.get().is_some()
    }

    /// Records that the descriptor was found readable.
    pub(super) fn note_readable(&self) {
        self.is_signalled.store(true, Ordering::Relaxed);
    }

    /// Returns whether the descriptor was found readable since the last call.
    #[inline]
    pub(super) fn take_signalled(&self) -> bool {
        let is_signalled = self.is_signalled.load(Ordering::Relaxed);
        self.is_signalled.store(false, Ordering::Relaxed);
        is_signalled
    }

    /// Makes the descriptor unreadable again.
    pub(super) fn clear(&self) {
        if let Some(mut file) = self.file.get() {
            // The read fails if the descriptor is not readable, which does no harm.
            let _ = file.read(&mut [0; 8]);
        }
    }
}

/// Creates an eventfd and registers it with the ring.
fn registered(ring: BorrowedFd<'_>) -> io::Result<File> {
    // SAFETY: the call takes numbers only.
    let fd = unsafe { libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and no other value owns it.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    let (ring, nr) = (ring.as_raw_fd(), 1u32);
    // SAFETY: the ring is open, and the kernel reads the number of one descriptor.
    let answer = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring, REGISTER_EVENTFD, &raw const fd, nr)
    };
    if answer == 0 { Ok(event.into()) } else { Err(io::Error::last_os_error()) }
}
