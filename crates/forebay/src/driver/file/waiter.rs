//! Waiting for a ring's completions while another thread uses the ring.
//!
//! The wait takes the ring's descriptor and nothing else of it: neither of the two rings in memory
//! is touched. It submits what the driver has left to it, by their number; where others have
//! submitted those meanwhile, the kernel finds fewer entries, and returns early. The kernel
//! returns once the tail of the completions is one
//! past their head as it was when the call began. So a completion that was not taken then ends the
//! wait at once, and one that comes later ends it even if somebody else takes it meanwhile. It is
//! looked at once more after the thread was put on the list of those to be woken: a completion, or
//! a kick, that comes between the caller's last look and the sleep is not missed.
// It makes a system call that the ring's library makes only together with the ring.
#![allow(unsafe_code)]

use super::event::Event;
use crate::driver::Waiter;
use io_uring::{EnterFlags, IoUring};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Waits for one ring.
#[derive(Debug)]
pub(super) struct UringWaiter {
    /// The ring itself, a descriptor of our own: it stays open as long as this does.
    ring: OwnedFd,
    /// What tells of completions, where the kernel defers them.
    event: Option<Arc<Event>>,
    /// How many entries the driver has left in the ring for the next wait to submit. It is a number
    /// and nothing else, hence Relaxed: the entries are published by the ring's tail.
    left: Arc<AtomicU32>,
    nr_syscalls: AtomicU64,
}

/// `struct io_uring_getevents_arg`.
#[derive(Debug)]
#[repr(C)]
struct GetEvents {
    sigmask: u64,
    sigmask_sz: u32,
    min_wait_usec: u32,
    /// The address of a [`Timespec`], or 0.
    ts: u64,
}

/// `struct __kernel_timespec`.
#[derive(Debug)]
#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: i64,
}

impl UringWaiter {
    pub(super) fn new(
        ring: &IoUring,
        event: Option<Arc<Event>>,
        left: Arc<AtomicU32>,
    ) -> io::Result<UringWaiter> {
        // SAFETY: the ring is open as long as it is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let ring = fd.try_clone_to_owned()?;
        Ok(UringWaiter { ring, event, left, nr_syscalls: AtomicU64::new(0) })
    }
}

impl Waiter for UringWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        let timespec = timeout.map(|timeout| Timespec {
            sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            nsec: i64::from(timeout.subsec_nanos()),
        });
        let ts = timespec.as_ref().map_or(0, |timespec| std::ptr::from_ref(timespec).addr() as u64);
        let arg = GetEvents { sigmask: 0, sigmask_sz: 0, min_wait_usec: 0, ts };
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        let nr_to_submit = self.left.swap(0, Ordering::Relaxed);
        let nr_to_wait_for = 1u32;
        self.nr_syscalls.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the descriptor is that of a ring, and open; the kernel reads `arg` and the time
        // that it points to, which both outlive the call, and writes nothing.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.ring.as_raw_fd(),
                nr_to_submit,
                nr_to_wait_for,
                flags.bits(),
                &raw const arg,
                size_of::<GetEvents>(),
            )
        };
        if answer >= 0 {
            return;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // The time is over, there was a signal, or a shortage that passes.
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {}
            _ => panic!("io_uring_enter on a ring of our own: {error}"),
        }
    }

    fn begins(&self) -> bool {
        true
    }

    fn take_back(&self) -> bool {
        self.left.swap(0, Ordering::Relaxed) > 0
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.event {
            Some(event) => event.fd(self.ring.as_fd()),
            None => Some(self.ring.as_fd()),
        }
    }

    fn told(&self) {
        if let Some(event) = &self.event {
            event.told();
        }
    }

    fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls.load(Ordering::Relaxed)
    }
}
