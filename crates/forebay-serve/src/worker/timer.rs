//! Timer for the deadlines of a worker.
//!
//! It is a descriptor and not a timeout of each wait: with a timeout, the kernel would arm and
//! cancel a timer in every round, and rounds are as frequent as batches.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Interval of a tick.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// A descriptor that becomes readable one tick after it was armed.
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

    /// Arms the timer for one tick, unless it is armed.
    #[inline]
    pub(super) fn arm(&mut self) {
        if !self.is_armed {
            let once = Itimerspec { it_interval: Timespec::default(), it_value: TICK };
            // The descriptor and the numbers are valid, so this does not fail.
            self.is_armed = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once).is_ok();
        }
    }

    /// Acknowledges the tick. The timer must be armed again.
    pub(super) fn disarm(&mut self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        self.is_armed = false;
    }
}
