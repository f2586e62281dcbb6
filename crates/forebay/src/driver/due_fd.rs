//! Descriptor for event loops on a driver whose requests complete by the clock.
//!
//! A timerfd runs until the earliest due time. It is set again only for an earlier one, or by a
//! reap after it has expired. So it may expire when nothing is due any more: the event loop then
//! wakes once in vain. Each request takes at most two system calls: one to set the timer and one to
//! stop it. Requests in flight together take one each.
//!
//! An expired timer stays readable until a reap sets or stops it. That reap sets it even if its
//! next due time has come meanwhile, because an edge-triggered event loop needs another edge.
//!
//! The kernel's clock and the layer's may differ, so the timer may expire early. A reap sets an
//! expired timer again, whatever the layer's clock shows.
//!
//! The program may forbid setting timers by a seccomp filter after the descriptor was created. Then
//! an eventfd wakes the event loop at once instead of later: it polls, and no completion is missed.

use crate::sys::clock;
use crate::sys::event::{AnyOf, Event, TimerFd, timer_now_ns};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The due time if nothing is due.
pub(super) const NEVER: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(super) struct DueFd {
    /// Created when an event loop asks for the descriptor.
    fds: OnceLock<Fds>,
    /// Held during each change of the timer.
    timer: Mutex<Running>,
}

#[derive(Debug)]
struct Fds {
    timer: TimerFd,
    event: Event,
    any: AnyOf,
}

#[derive(Debug)]
struct Running {
    /// The time at which the timer expires; [`NEVER`] if it does not run.
    at_ns: u64,
    /// The time from which on it may have expired, by the timer's clock.
    expires_ns: u64,
    /// The eventfd was signalled in place of the timer.
    has_signalled: bool,
    nr_syscalls: u64,
}

impl Default for Running {
    fn default() -> Running {
        Running { at_ns: NEVER, expires_ns: NEVER, has_signalled: false, nr_syscalls: 0 }
    }
}

impl DueFd {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the descriptor. The first call creates it. It begins readable: the reap that follows
    /// sets the timer for requests that were issued before.
    ///
    /// # Errors
    /// Returns the system's error if it has no resources for it, or forbids setting a timer.
    pub(super) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        let mut running = self.lock();
        if self.fds.get().is_none() {
            let _ = self.fds.set(Fds::new()?);
            self.start(&mut running, 0);
        }
        Ok(self.fds.get().expect("just set").any.fd())
    }

    /// Makes the descriptor readable at `due_ns`, or earlier. Called when a due time changes.
    #[inline]
    pub(super) fn set(&self, due_ns: u64) {
        if self.fds.get().is_some() {
            let mut running = self.lock();
            if due_ns < running.at_ns {
                self.start(&mut running, due_ns);
            }
        }
    }

    /// Sets the timer again if it has expired, or stops it. Called by each reap, after it has taken
    /// the completions. `due_ns` returns the next due time.
    #[inline]
    pub(super) fn reaped(&self, due_ns: impl FnOnce() -> u64) {
        if self.fds.get().is_some() {
            self.restart(due_ns);
        }
    }

    fn restart(&self, due_ns: impl FnOnce() -> u64) {
        let mut running = self.lock();
        if running.expires_ns == NEVER || timer_now_ns() < running.expires_ns {
            return;
        }
        match due_ns() {
            NEVER => self.stop(&mut running),
            due_ns => self.start(&mut running, due_ns),
        }
    }

    fn start(&self, running: &mut Running, due_ns: u64) {
        let Some(Fds { timer, event, .. }) = self.fds.get() else { return };
        let delay_ns = due_ns.saturating_sub(clock::now_ns());
        running.nr_syscalls += 1;
        running.at_ns = due_ns;
        match timer.start(Duration::from_nanos(delay_ns)) {
            Ok(expires_ns) if !running.has_signalled => running.expires_ns = expires_ns,
            Ok(expires_ns) => {
                running.expires_ns = expires_ns;
                running.nr_syscalls += 1;
                running.has_signalled = false;
                event.clear();
            }
            Err(_) => {
                running.nr_syscalls += 1;
                running.expires_ns = 0;
                running.has_signalled = true;
                event.signal();
            }
        }
    }

    fn stop(&self, running: &mut Running) {
        let Some(Fds { timer, event, .. }) = self.fds.get() else { return };
        running.nr_syscalls += 1;
        running.at_ns = NEVER;
        // A timer that cannot be stopped may expire at any time, so the next reap tries again.
        running.expires_ns = if timer.stop() { NEVER } else { 0 };
        if std::mem::take(&mut running.has_signalled) {
            running.nr_syscalls += 1;
            event.clear();
        }
    }

    pub(super) fn nr_syscalls(&self) -> u64 {
        // Without a descriptor there were none, and no lock is needed.
        self.fds.get().map_or(0, |_| self.lock().nr_syscalls)
    }
}

impl Fds {
    fn new() -> io::Result<Fds> {
        let (timer, event) = (TimerFd::new()?, Event::new()?);
        let any = AnyOf::new([timer.fd(), event.fd()])?;
        Ok(Fds { timer, event, any })
    }
}
