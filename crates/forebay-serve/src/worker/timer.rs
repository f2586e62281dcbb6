//! When a worker looks at deadlines.
//!
//! A descriptor, not a limit of each wait: that would have the kernel arm and cancel a timer for
//! every round, and rounds are as frequent as batches.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How often a worker looks.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// A descriptor that becomes readable a while after it was armed.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    is_armed: bool,
}

impl Timer {
    pub(super) fn new() -> std::io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Timer { fd: timerfd_create(TimerfdClockId::Monotonic, flags)?, is_armed: false })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Has it become readable after a tick, unless it will already.
    #[inline]
    pub(super) fn arm(&mut self) {
        if !self.is_armed {
            let once = Itimerspec { it_interval: Timespec::default(), it_value: TICK };
            // On a timer of our own, with numbers in range, it does not fail.
            self.is_armed = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once).is_ok();
        }
    }

    /// It was readable: until it is armed again, it is not.
    pub(super) fn disarm(&mut self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        self.is_armed = false;
    }
}
