//! An AIO context of the kernel, through its raw system calls.
// It makes system calls that no library wraps.
#![allow(unsafe_code)]

use crate::abi::{IoEvent, Iocb, opcode};
use crate::own_iocbs::OwnIocbs;
use crate::program::{self, EventArray};
use crate::raw::{self, Errno};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The data of an event that [`Kernel::kick`] causes.
pub(crate) const KICK: u64 = u64::MAX;

/// The number of `io_pgetevents`, which the crate `libc` lacks: on x86-64, and on all architectures
/// with the generic table of calls.
pub(crate) const SYS_IO_PGETEVENTS: libc::c_long =
    if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// The size of a signal mask of the kernel in bytes.
pub(crate) const MASK_BYTES: usize = 8;

/// An AIO context of the kernel. Dropping it destroys the context, and waits for the iocbs in
/// flight.
#[derive(Debug)]
pub(crate) struct Kernel {
    id: usize,
    is_destroyed: AtomicBool,
}

/// How long a call waits for events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The number of events that end the wait. 0 waits for none.
    pub(crate) min: usize,
    /// `None` waits without a limit.
    pub(crate) timeout: Option<Duration>,
    /// The signal mask during the wait, which is valid until the call returns.
    pub(crate) mask: Option<*const libc::sigset_t>,
}

/// The last argument of `io_pgetevents`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Mask {
    pub(crate) mask: *const libc::sigset_t,
    pub(crate) bytes: usize,
}

impl Kernel {
    /// Creates a context for `nr` iocbs at once.
    pub(crate) fn new(nr: u32) -> Result<Kernel, Errno> {
        let mut id = 0_usize;
        let args = [nr as usize, (&raw mut id).expose_provenance()];
        // SAFETY: the kernel writes one word, the id of the context.
        unsafe { raw::call(libc::SYS_io_setup, args) }?;
        Ok(Kernel { id, is_destroyed: AtomicBool::new(false) })
    }

    /// Submits iocbs. Returns how many the kernel has accepted.
    ///
    /// # Safety
    /// Each pointer is that of an iocb. The memory that the iocbs name stays valid, as the caller
    /// of `io_submit` has promised, and so do the lists of vectors until this returns.
    pub(crate) unsafe fn submit(&self, iocbs: &mut [*mut Iocb]) -> Result<usize, Errno> {
        let args = [self.id, iocbs.len(), iocbs.as_mut_ptr().expose_provenance()];
        // SAFETY: the caller's promise. The kernel writes the field `key` of each.
        unsafe { raw::call(libc::SYS_io_submit, args) }
    }

    /// Waits for events, and appends up to `room` of them.
    ///
    /// # Errors
    /// `EINTR` if a signal handler has run and there is no event.
    pub(crate) fn events(
        &self,
        wait: Wait,
        room: usize,
        events: &mut Vec<IoEvent>,
    ) -> Result<(), Errno> {
        events.reserve(room);
        let first = events.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: the spare capacity has room for so many.
        let nr = unsafe { self.events_at(wait, room, first) }?;
        // SAFETY: the kernel has written so many events.
        unsafe { events.set_len(events.len() + nr) };
        Ok(())
    }

    /// Waits for events as [`Kernel::events`] does. The kernel writes them behind those that the
    /// array has. Returns how many.
    pub(crate) fn events_behind(&self, wait: Wait, array: &EventArray) -> Result<usize, Errno> {
        // SAFETY: the array has room for so many.
        unsafe { self.events_at(wait, array.room(), array.spare()) }
    }

    /// Waits for up to `room` events, which the kernel writes to an address.
    ///
    /// # Safety
    /// The memory has room for so many.
    unsafe fn events_at(
        &self,
        wait: Wait,
        room: usize,
        first: *mut IoEvent,
    ) -> Result<usize, Errno> {
        let limit = wait.timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let args = [self.id, wait.min, room, first.expose_provenance(), limit.expose_provenance()];
        // SAFETY: the kernel writes at most `room` events, and reads a time.
        let without_mask = || unsafe { raw::call(libc::SYS_io_getevents, args) };
        match wait.mask {
            None => without_mask(),
            Some(mask) => {
                let of_call = Mask { mask, bytes: MASK_BYTES };
                let [id, min, room, first, limit] = args;
                let args = [id, min, room, first, limit, (&raw const of_call).expose_provenance()];
                // SAFETY: as above, and the mask is the caller's.
                match unsafe { raw::call(SYS_IO_PGETEVENTS, args) } {
                    // Linux before 4.18, and valgrind.
                    Err(libc::ENOSYS) => program::with_mask(mask, without_mask),
                    result => result,
                }
            }
        }
    }

    /// Ends the wait of a thread for up to `nr` events: submits `nr` polls that end at once, each
    /// with the data [`KICK`]. No descriptor stays open, because the program may close any that it
    /// finds. The caller has the lock of the context.
    ///
    /// # Errors
    /// Fails if the process has no free descriptor, or the context no place.
    pub(crate) fn kick(&self, own: &OwnIocbs, nr: usize) -> Result<(), Errno> {
        // SAFETY: the arguments are numbers.
        let fd = unsafe { raw::call(libc::SYS_eventfd2, [1, libc::EFD_CLOEXEC as usize]) }?;
        // SAFETY: the descriptor is new.
        let ready = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        // An eventfd with a count is readable, so the poll ends when it is submitted.
        let poll = Iocb {
            data: KICK,
            opcode: opcode::POLL,
            fildes: ready.as_raw_fd() as u32,
            buf: libc::POLLIN as u64,
            ..Iocb::default()
        };
        let mut list = vec![own.put_kick(poll); nr];
        // SAFETY: the kernel copies the poll, which names no memory. It may do so several times.
        let nr_done = unsafe { self.submit(&mut list) }?;
        if nr_done == nr { Ok(()) } else { Err(libc::EAGAIN) }
    }

    /// Requests that the kernel cancels the iocb that was submitted at an address. Returns the
    /// errno that it reports; a cancelled one has `EINPROGRESS`, and its event comes as usual.
    pub(crate) fn cancel(&self, iocb: usize) -> Errno {
        let mut event = IoEvent::default();
        let args = [self.id, iocb, (&raw mut event).expose_provenance()];
        // SAFETY: the kernel checks the address, reads the key, and may write an event.
        unsafe { raw::call(libc::SYS_io_cancel, args) }.err().unwrap_or(libc::EINPROGRESS)
    }

    /// Destroys the context now, and waits until the kernel uses no memory of its iocbs. The caller
    /// ensures that no other thread uses the context: the kernel may use the id again.
    pub(crate) fn destroy(&self) {
        if !self.is_destroyed.swap(true, Ordering::AcqRel) {
            // SAFETY: the argument is a number.
            let _ = unsafe { raw::call(libc::SYS_io_destroy, [self.id]) };
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.destroy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no AIO")]
    fn kick_ends_a_wait_for_several_events() {
        let kernel = Kernel::new(8).expect("a context");
        let mut events = Vec::new();
        let none = Wait { min: 0, timeout: Some(Duration::ZERO), mask: None };
        kernel.events(none, 8, &mut events).expect("a look");
        assert_eq!(events, []);
        let own = OwnIocbs::new(0).expect("memory");
        kernel.kick(&own, 3).expect("a kick");
        let wait = Wait { min: 3, timeout: Some(Duration::from_secs(10)), mask: None };
        kernel.events(wait, 8, &mut events).expect("a wait");
        assert!(events.iter().all(|event| event.data == KICK && own.contain(event.obj)));
        assert_eq!(events.len(), 3);
    }
}
