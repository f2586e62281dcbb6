//! An AIO context of the kernel, through its raw system calls.
// It makes system calls that no library wraps.
#![allow(unsafe_code)]

use crate::abi::{IoEvent, Iocb};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The errno of a failed call.
pub(crate) type Errno = i32;

/// An AIO context of the kernel. Dropping it destroys the context, which waits for what is in
/// flight.
#[derive(Debug)]
pub(crate) struct Kernel {
    id: usize,
    is_destroyed: AtomicBool,
}

fn answer_of(answer: i64) -> Result<usize, Errno> {
    match usize::try_from(answer) {
        Ok(answer) => Ok(answer),
        Err(_) => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

impl Kernel {
    /// Creates a context for `nr` iocbs at once.
    pub(crate) fn new(nr: u32) -> Result<Kernel, Errno> {
        let mut id = 0_usize;
        // SAFETY: the kernel writes one word, the id of the context.
        answer_of(unsafe { libc::syscall(libc::SYS_io_setup, nr, &raw mut id) })?;
        Ok(Kernel { id, is_destroyed: AtomicBool::new(false) })
    }

    /// Submits iocbs. Returns how many the kernel has accepted.
    ///
    /// # Safety
    /// Each pointer is that of an iocb. The memory that the iocbs name stays valid, as the caller
    /// of `io_submit` has promised, and so do the lists of vectors until this returns.
    pub(crate) unsafe fn submit(&self, iocbs: &mut [*mut Iocb]) -> Result<usize, Errno> {
        let (nr, first) = (iocbs.len(), iocbs.as_mut_ptr());
        // SAFETY: the caller's promise. The kernel writes the field `key` of each.
        answer_of(unsafe { libc::syscall(libc::SYS_io_submit, self.id, nr, first) })
    }

    /// Waits until `min` events are there, or `timeout` has passed, and takes up to
    /// `room` events.
    pub(crate) fn events(
        &self,
        min: usize,
        room: usize,
        timeout: Option<Duration>,
        events: &mut Vec<IoEvent>,
    ) -> Result<(), Errno> {
        events.reserve(room);
        let limit = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let first = events.spare_capacity_mut().as_mut_ptr();
        // SAFETY: the kernel writes at most `room` events to the spare capacity, and reads a time.
        let answer =
            unsafe { libc::syscall(libc::SYS_io_getevents, self.id, min, room, first, limit) };
        let nr = answer_of(answer)?;
        // SAFETY: the kernel has written so many events.
        unsafe { events.set_len(events.len() + nr) };
        Ok(())
    }

    /// Destroys the context now, and waits until the kernel uses no memory of its iocbs. No thread
    /// is in another call, because the kernel may use the id again.
    pub(crate) fn destroy(&self) {
        if !self.is_destroyed.swap(true, Ordering::AcqRel) {
            // SAFETY: the argument is a number.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.destroy();
    }
}
