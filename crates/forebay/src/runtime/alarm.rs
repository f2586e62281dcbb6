//! Alarm of a hardware context: wakes event loops when no completion will.
//!
//! A turn may leave work with nothing in flight, because the driver was busy or a gate is closed.
//! Then the driver's descriptor is not signalled, whichever thread made the turn. So each
//! descriptor for an event loop also watches the alarm of its context
//! ([`AnyOf`](crate::sys::event::AnyOf)): a timerfd for later, and an eventfd for now. Both stay
//! readable until the alarm is cleared, so the alarm wakes every loop of the context. Only a turn
//! clears it: a loop that reaps without a turn is woken again.
//!
//! The program may install a seccomp filter that forbids setting timers. If the filter was
//! installed first, the alarm is not created, and the loop gets the error. If it is installed
//! later, the alarm wakes the loops immediately instead of later: they poll a busy driver, and no
//! wake-up is lost.
//!
//! - B1 A turn clears the alarm before it reads the gates and the inbox.
//! - B2 A turn that leaves work at a busy driver with nothing in flight sets the alarm, if the
//!   context is polled. So does a turn that leaves a deadline (W7), for that time.
//!   The alarm of a deadline stays until it has expired, whatever turns come before: a later
//!   deadline costs no system call, and a turn that finds nothing to do then sets the next one.
//! - B3 A thread that opens a gate fires the alarm afterwards, in each context whose token it
//!   cannot take. The other contexts it turns itself (R4).
//!
//! No wake-up is lost between B1 and B3. All changes of the alarm are made under one lock. If the
//! opener's change comes before the turn's, the turn acquires the open gate by the lock, and runs
//! the work. If it comes later, the alarm stays readable, and another turn follows. The same holds
//! if the turn reads a stale flag and misses the opener's change: the turn then clears nothing.

#[cfg(any(blk_loom, blk_shuttle))]
mod fds;

use crate::sys::clock;
#[cfg(not(any(blk_loom, blk_shuttle)))]
use crate::sys::event::{Event, TimerFd, timer_now_ns};
use crate::sys::primitive::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
#[cfg(any(blk_loom, blk_shuttle))]
use fds::{Event, TimerFd, timer_now_ns};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::Duration;

/// The alarm of one hardware context. It has no descriptors until an event loop asks for them.
#[derive(Debug)]
pub(crate) struct Alarm {
    fds: OnceLock<Fds>,
    /// Held during every change of the descriptors and of the flag.
    change: Mutex<Pending>,
    /// Whether the alarm is readable now or soon, and the next turn clears it. Spares turns a
    /// system call.
    is_set: AtomicBool,
    /// The time for which the timer is started; [`NEVER`] if it is not.
    at_ns: AtomicU64,
    /// The time from which on the timer may have expired, by the timer's clock.
    expires_ns: AtomicU64,
}

/// The time of a timer that does not run.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
struct Fds {
    timer: TimerFd,
    event: Event,
}

/// The descriptors that the next clear has to reset.
#[derive(Debug, Default)]
struct Pending {
    /// The timer runs or has expired, and the next turn stops it.
    timer: bool,
    /// The eventfd was signalled.
    event: bool,
}

impl Alarm {
    pub(crate) fn new() -> Alarm {
        Alarm {
            fds: OnceLock::new(),
            change: Mutex::new(Pending::default()),
            is_set: AtomicBool::new(false),
            at_ns: AtomicU64::new(NEVER),
            expires_ns: AtomicU64::new(NEVER),
        }
    }

    /// Returns the descriptors. The first call creates them.
    ///
    /// # Errors
    /// The OS error if a descriptor cannot be created, or setting a timer is forbidden.
    pub(crate) fn fds(&self) -> io::Result<[BorrowedFd<'_>; 2]> {
        let _change = lock(&self.change);
        if self.fds.get().is_none() {
            let _ = self.fds.set(Fds { timer: TimerFd::new()?, event: Event::new()? });
        }
        let Fds { timer, event } = self.fds.get().expect("just made");
        Ok([timer.fd(), event.fd()])
    }

    /// Wakes the loops after `delay`, unless the alarm is already set (B2).
    #[cold]
    pub(crate) fn set(&self, delay: Duration) {
        let mut pending = lock(&self.change);
        let Some(Fds { timer, event }) = self.fds.get() else { return };
        // Relaxed, here and below: the flag changes under the lock alone.
        if self.is_set.load(Ordering::Relaxed) {
            return;
        }
        let at_ns = clock::now_ns() + delay.as_nanos() as u64;
        if self.at_ns.load(Ordering::Relaxed) <= at_ns && !self.may_have_expired() {
            pending.timer = true;
        } else if let Ok(expires_ns) = timer.start(delay) {
            pending.timer = true;
            self.note_start(at_ns, expires_ns);
        } else {
            event.signal();
            pending.event = true;
        }
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// Wakes the loops at `at_ns`, a time of [`clock`], or earlier (B2). Called by the token
    /// holder.
    #[inline]
    pub(crate) fn limit(&self, at_ns: u64) {
        if at_ns < self.at_ns.load(Ordering::Relaxed) {
            self.start_at(at_ns);
        }
    }

    #[cold]
    fn start_at(&self, at_ns: u64) {
        let mut pending = lock(&self.change);
        let Some(Fds { timer, event }) = self.fds.get() else { return };
        let delay = Duration::from_nanos(at_ns.saturating_sub(clock::now_ns()));
        if let Ok(expires_ns) = timer.start(delay) {
            self.note_start(at_ns, expires_ns);
        } else {
            event.signal();
            pending.event = true;
            self.is_set.store(true, Ordering::Relaxed);
        }
    }

    /// Wakes the loops now (B3).
    pub(crate) fn fire(&self) {
        let mut pending = lock(&self.change);
        if let Some(Fds { event, .. }) = self.fds.get() {
            event.signal();
            pending.event = true;
            self.is_set.store(true, Ordering::Relaxed);
        }
    }

    /// Clears the alarm at the beginning of a turn (B1).
    #[inline]
    pub(crate) fn clear(&self) {
        // Relaxed: a deadline that is missed here keeps the alarm readable, and another turn
        // follows.
        if self.is_set.load(Ordering::Relaxed) || self.may_have_expired() {
            self.stop();
        }
    }

    fn note_start(&self, at_ns: u64, expires_ns: u64) {
        self.at_ns.store(at_ns, Ordering::Relaxed);
        self.expires_ns.store(expires_ns, Ordering::Relaxed);
    }

    #[inline]
    fn may_have_expired(&self) -> bool {
        let expires_ns = self.expires_ns.load(Ordering::Relaxed);
        expires_ns != NEVER && expires_ns <= timer_now_ns()
    }

    #[cold]
    fn stop(&self) {
        let mut pending = lock(&self.change);
        if let Some(Fds { timer, event }) = self.fds.get() {
            if std::mem::take(&mut pending.event) {
                event.clear();
            }
            // A timer that cannot be stopped expires, and a later turn clears it.
            if pending.timer || self.may_have_expired() {
                pending.timer = !timer.stop();
                if !pending.timer {
                    self.at_ns.store(NEVER, Ordering::Relaxed);
                    self.expires_ns.store(NEVER, Ordering::Relaxed);
                }
            }
        }
        self.is_set.store(pending.timer, Ordering::Relaxed);
    }

    /// Returns whether the timer runs, or has expired and was not stopped. If a turn of another
    /// thread stops it meanwhile, that turn finishes the work or starts the timer again (B2).
    pub(crate) fn is_due(&self) -> bool {
        // Relaxed: the caller's own turn has left the work, and has started the timer.
        self.at_ns.load(Ordering::Relaxed) != NEVER
    }

    /// Returns whether the alarm is readable now, or soon because the driver was busy. The result
    /// is a guess.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed) || self.may_have_expired()
    }

    /// Returns whether a descriptor is readable.
    #[cfg(all(test, any(blk_loom, blk_shuttle)))]
    fn is_readable(&self) -> bool {
        let fds = self.fds.get();
        fds.is_some_and(|Fds { timer, event }| event.is_readable() || timer.is_readable())
    }
}

#[cfg(all(test, any(blk_loom, blk_shuttle)))]
mod models;
