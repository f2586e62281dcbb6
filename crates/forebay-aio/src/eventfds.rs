//! Eventfds that the ends of iocbs signal.
//!
//! The kernel resolves the number of an eventfd when an iocb is submitted, and holds the file until
//! the iocb has ended. The program may close the descriptor meanwhile, and its number may then be
//! that of another file. So this library holds a duplicate, until the last iocb of the call with
//! that eventfd has ended. It is above the numbers that programs expect to get next.
//!
//! An end adds 1 to the counter. The ends of one pass add their sum with one write, which has the
//! same effect.
// Duplicates descriptors, and writes to them.
#![allow(unsafe_code)]

use crate::abi::{FLAG_RESFD, Iocb};
use crate::program;
use crate::raw::{self, Errno};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// An eventfd of the program, held open.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// Holds the eventfd with this number.
    ///
    /// # Errors
    /// `EBADF` if the number is that of no descriptor, `EINVAL` if it is no eventfd, `EAGAIN` if
    /// the process has no free descriptor.
    fn hold(number: u32) -> Result<EventFd, Errno> {
        if !program::can_be_eventfd(number)? {
            return Err(libc::EINVAL);
        }
        program::duplicate(number as RawFd).map(EventFd).ok_or(libc::EAGAIN)
    }

    /// Adds to the counter, unless it is full: the kernel drops a signal then, and a write would
    /// wait.
    fn add(&self, nr: u64) {
        let number = self.0.as_raw_fd();
        let mut poll = libc::pollfd { fd: number, events: libc::POLLOUT, revents: 0 };
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let address = (&raw mut poll).expose_provenance();
        let args = [address, 1, (&raw const now).expose_provenance(), 0, 0];
        // SAFETY: the kernel reads and writes one structure, and reads a time.
        let is_ready = unsafe { raw::call(libc::SYS_ppoll, args) } == Ok(1);
        if is_ready && poll.revents & libc::POLLOUT != 0 {
            let args = [number as usize, (&raw const nr).expose_provenance(), size_of::<u64>()];
            // A count that does not fit is lost, as in the kernel.
            // SAFETY: the kernel reads eight bytes.
            let _ = unsafe { raw::call(libc::SYS_write, args) };
        }
    }
}

/// The eventfds of the iocbs of one call, each held once.
#[derive(Debug, Default)]
pub(crate) struct Held(Vec<(u32, Result<Arc<EventFd>, Errno>)>);

impl Held {
    /// Returns the eventfd of an iocb, or the errno if its number is a wrong one.
    pub(crate) fn of(&mut self, iocb: &Iocb) -> Option<Result<Arc<EventFd>, Errno>> {
        let has_eventfd = iocb.flags & FLAG_RESFD != 0;
        has_eventfd.then(|| self.of_number(iocb.resfd))
    }

    fn of_number(&mut self, number: u32) -> Result<Arc<EventFd>, Errno> {
        if let Some((_, held)) = self.0.iter().find(|(of, _)| *of == number) {
            return held.clone();
        }
        let held = EventFd::hold(number).map(Arc::new);
        self.0.push((number, held.clone()));
        held
    }
}

/// Signals that are due. They are sent without the lock of a context, because they wake threads
/// that may call it at once.
#[derive(Debug, Default)]
#[must_use = "the program waits for these signals"]
pub(crate) struct Signals(Vec<(Arc<EventFd>, u64)>);

impl Signals {
    /// Adds a signal of an eventfd.
    pub(crate) fn push(&mut self, eventfd: Arc<EventFd>) {
        match self.0.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &eventfd)) {
            Some((_, nr)) => *nr += 1,
            None => self.0.push((eventfd, 1)),
        }
    }

    /// Returns whether no signal is due.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends the signals.
    pub(crate) fn send(self) {
        self.0.iter().for_each(|(eventfd, nr)| eventfd.add(*nr));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    fn eventfd() -> OwnedFd {
        // SAFETY: the descriptor is new.
        unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK)) }
    }

    fn count(eventfd: &OwnedFd) -> u64 {
        let mut count = 0_u64;
        // SAFETY: the kernel writes eight bytes.
        unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        count
    }

    fn with_eventfd(number: i32) -> Iocb {
        Iocb { flags: FLAG_RESFD, resfd: number as u32, ..Iocb::default() }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no F_DUPFD with a lowest number")]
    fn signals_reach_the_eventfd_that_the_number_was_when_it_was_held() {
        let (one, other) = (eventfd(), eventfd());
        let mut held = Held::default();
        let iocb = with_eventfd(one.as_raw_fd());
        let eventfds = [held.of(&iocb), held.of(&iocb)].map(|held| held.unwrap().unwrap());
        assert!(Arc::ptr_eq(&eventfds[0], &eventfds[1]));
        // SAFETY: both numbers are open.
        let copy = unsafe { OwnedFd::from_raw_fd(libc::dup(one.as_raw_fd())) };
        // SAFETY: as above.
        unsafe { libc::dup2(other.as_raw_fd(), one.as_raw_fd()) };
        let mut signals = Signals::default();
        eventfds.into_iter().for_each(|eventfd| signals.push(eventfd));
        signals.send();
        assert_eq!((count(&copy), count(&other)), (2, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no F_DUPFD with a lowest number")]
    fn full_counter_drops_a_signal_and_blocks_no_thread() {
        // SAFETY: the descriptor is new.
        let eventfd = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, 0)) };
        let full = u64::MAX - 1;
        // SAFETY: the kernel reads eight bytes.
        unsafe { libc::write(eventfd.as_raw_fd(), (&raw const full).cast(), size_of::<u64>()) };
        let held = Held::default().of(&with_eventfd(eventfd.as_raw_fd()));
        let mut signals = Signals::default();
        signals.push(held.unwrap().unwrap());
        signals.send();
        assert_eq!(count(&eventfd), full);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fstat of such descriptors")]
    fn number_of_no_eventfd_is_an_error() {
        let file = tempfile::tempfile().expect("a file");
        let mut held = Held::default();
        let errno = |held: Option<Result<_, Errno>>| held.unwrap().err();
        assert_eq!(errno(held.of(&with_eventfd(-1))), Some(libc::EBADF));
        assert_eq!(errno(held.of(&with_eventfd(file.as_raw_fd()))), Some(libc::EINVAL));
        assert!(held.of(&Iocb::default()).is_none());
    }
}
