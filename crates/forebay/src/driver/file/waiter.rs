//! Waiter for a ring's completions while another thread uses the ring.
//!
//! The wait uses only the ring's descriptor and touches neither of the two queues in memory. It
//! submits as many entries as the driver has left to it. If another thread has submitted them
//! meanwhile, the kernel finds fewer entries and returns early. The kernel returns once the
//! completion tail is one past the head that it read when the call began. So a completion not
//! reaped by then ends the wait at once, and a later one ends it even if another thread reaps it
//! meanwhile. The kernel checks the tail again after it has put the thread on the wait queue. So
//! the wait does not miss a completion or a kick that arrives between the caller's last check and
//! the sleep.
// It makes a system call that the ring's library makes only together with the ring.
#![allow(unsafe_code)]

use super::enter::LONGEST_TIMEOUT;
use super::event::Event;
use super::forbidden::{self, PAUSE};
use super::registered::{Pins, RingMemory};
use crate::claim::QueueFile;
use crate::driver::Waiter;
use crate::driver::own_call::{OwnCall, OwnCalls};
use io_uring::types::Timespec;
use io_uring::{EnterFlags, IoUring};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Waits for one ring.
#[derive(Debug)]
pub(super) struct UringWaiter {
    /// A duplicate of the ring's descriptor: the ring stays open as long as this waiter lives.
    ring: Arc<OwnedFd>,
    /// Eventfd for completions that the kernel defers.
    event: Option<Arc<Event>>,
    left: Arc<Left>,
    /// Results of the requests that threads make themselves, and the file of these.
    own: Option<(Arc<OwnCalls>, Arc<QueueFile>)>,
    /// The memory that callers register with the ring.
    memory: Option<Arc<RingMemory>>,
    nr_syscalls: AtomicU64,
}

/// The state that a driver and the waits beside it share: the number of entries that the driver has
/// left in the ring for the next wait to submit, and whether the ring has ended. The entries
/// themselves are published by the ring's tail.
///
/// The count and the mark of a wait are sequentially consistent because of the end of a ring, which
/// must not fail entries that a wait submits. The wait sets its mark, then takes the count. The
/// driver takes the count back, then reads the mark.
#[derive(Debug, Default)]
pub(super) struct Left {
    nr: AtomicU32,
    is_submitting: AtomicBool,
    /// The system call is forbidden in a thread that used this ring. The other rings of the device
    /// continue, so a wait on one of them must go on submitting.
    is_over: AtomicBool,
}

impl Left {
    /// Leaves `nr` entries to the next wait. Called by the driver.
    #[inline]
    pub(super) fn leave(&self, nr: u32) {
        self.nr.store(nr, Ordering::Relaxed);
    }

    /// Returns whether nothing is left to a wait. The value may be outdated.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.nr.load(Ordering::Relaxed) == 0
    }

    /// Takes back the entries left to a wait. Returns whether there were any.
    pub(super) fn take_back(&self) -> bool {
        self.nr.swap(0, Ordering::SeqCst) > 0
    }

    /// Records that the ring has ended, so waits no longer submit to it. Called by the driver.
    pub(super) fn end_ring(&self) {
        // Release, with the acquire in `is_over`: the driver has made its last system call.
        self.is_over.store(true, Ordering::Release);
    }

    /// Returns whether the ring has ended.
    #[inline]
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns whether a wait is submitting or about to.
    pub(super) fn is_submitting(&self) -> bool {
        self.is_submitting.load(Ordering::SeqCst)
    }

    /// Returns the number of entries that a wait submits. [`Left::end_submit`] must follow.
    pub(super) fn begin_submit(&self) -> u32 {
        if self.is_none() {
            return 0;
        }
        self.is_submitting.store(true, Ordering::SeqCst);
        self.nr.swap(0, Ordering::SeqCst)
    }

    /// Records that the submission of a wait is over.
    pub(super) fn end_submit(&self) {
        // Only this thread sets it.
        if self.is_submitting.load(Ordering::Relaxed) {
            self.is_submitting.store(false, Ordering::SeqCst);
        }
    }
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

impl UringWaiter {
    pub(super) fn new(
        ring: &IoUring,
        event: Option<Arc<Event>>,
        left: Arc<Left>,
        own: Option<(Arc<OwnCalls>, Arc<QueueFile>)>,
    ) -> io::Result<UringWaiter> {
        // SAFETY: the ring is open as long as it is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let ring = Arc::new(fd.try_clone_to_owned()?);
        let nr_syscalls = AtomicU64::new(0);
        Ok(UringWaiter { ring, event, left, own, memory: None, nr_syscalls })
    }

    /// Lets callers register memory with the ring, and returns that memory.
    pub(super) fn make_memory(&mut self, pins: &Arc<Pins>) -> Arc<RingMemory> {
        let memory = Arc::new(RingMemory::new(Arc::clone(&self.ring), Arc::clone(pins)));
        self.memory = Some(Arc::clone(&memory));
        memory
    }
}

impl Waiter for UringWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        if self.left.is_over() {
            // No kick would end the system call.
            return std::thread::sleep(timeout.map_or(PAUSE, |timeout| timeout.min(PAUSE)));
        }
        let time = timeout.map(|timeout| Timespec::from(timeout.min(LONGEST_TIMEOUT)));
        let ts = time.as_ref().map_or(0, |time| std::ptr::from_ref(time).addr() as u64);
        let arg = GetEvents { sigmask: 0, sigmask_sz: 0, min_wait_usec: 0, ts };
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        let nr_to_submit = self.left.begin_submit();
        let nr_to_wait_for = 1u32;
        self.nr_syscalls.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the descriptor is that of an open ring. The kernel reads `arg` and the time that
        // it points to, which both outlive the call, and writes nothing.
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
        let error = io::Error::last_os_error();
        self.left.end_submit();
        if answer >= 0 {
            return;
        }
        match error.raw_os_error() {
            // A timeout, a signal, or a shortage that passes.
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {}
            // The next turn ends the ring if it has entries to submit. Requests in the kernel
            // continue.
            _ if forbidden::is_forbidden(&error) => {
                std::thread::sleep(timeout.map_or(PAUSE, |timeout| timeout.min(PAUSE)));
            }
            _ => panic!("io_uring_enter on a ring of our own: {error}"),
        }
    }

    fn leaves_own_calls(&self) -> bool {
        self.own.is_some()
    }

    fn make_own_call(&self, call: OwnCall) {
        if let Some((own, file)) = &self.own {
            own.make(call, file);
        }
    }

    fn misses_kicks(&self) -> bool {
        self.left.is_over()
    }

    fn begins(&self) -> bool {
        true
    }

    fn take_back(&self) -> bool {
        self.left.take_back()
    }

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        match &self.event {
            Some(event) => event.fd(self.ring.as_fd()).map(Some),
            None => Ok(Some(self.ring.as_fd())),
        }
    }

    fn ack_poll(&self) {
        if let Some(event) = &self.event {
            event.note_readable();
        }
    }

    fn memory(&self) -> Option<&Arc<RingMemory>> {
        self.memory.as_ref()
    }

    fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls.load(Ordering::Relaxed)
    }
}
