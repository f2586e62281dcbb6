//! Timerfd of a hardware context: wakes event loops when no completion will.
//!
//! A turn may leave work with nothing in flight: the driver was busy, or a gate is closed. Then the
//! driver's descriptor stays silent, whichever thread made the turn. So each descriptor for an
//! event loop also watches the alarm of its context ([`AnyOf`](super::event::AnyOf)). A timerfd
//! stays readable until it is set again, so it wakes every loop of the context, and only a turn
//! clears it: a loop that reaps without a turn is woken again.
//!
//! - B1 A turn clears the alarm before it reads the gates and the inbox.
//! - B2 A turn that leaves work at a busy driver with nothing in flight sets the alarm, if the
//!   context is polled.
//! - B3 A thread that opens a gate fires the alarm afterwards, in each context whose token it
//!   cannot take. The other contexts it turns itself (R4).
//!
//! No wake-up is lost between B1 and B3. All changes of the timer are made under one lock. If the
//! opener's change comes before the turn's, the turn acquires the open gate by the lock, and runs
//! the work. If it comes later, the timer stays readable, and another turn follows. The same holds
//! if the flag hides the opener's change from the turn: the turn then clears nothing.

use crate::runtime::event::TimerFd;
use crate::runtime::primitive::{AtomicBool, Mutex, Ordering, lock};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::Duration;

/// The alarm of one hardware context. It has no descriptor until an event loop asks for one.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OnceLock<TimerFd>,
    /// Held during every change of the timer and of the flag.
    change: Mutex<()>,
    /// Whether the timer runs or has expired. Spares turns a system call.
    is_set: AtomicBool,
}

impl Alarm {
    pub(crate) fn new() -> Alarm {
        Alarm { timer: OnceLock::new(), change: Mutex::new(()), is_set: AtomicBool::new(false) }
    }

    /// Returns the descriptor, which is made by the first call.
    ///
    /// # Errors
    /// The system's error if it has no room for a descriptor.
    pub(crate) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        let _change = lock(&self.change);
        if self.timer.get().is_none() {
            let _ = self.timer.set(TimerFd::new()?);
        }
        Ok(self.timer.get().expect("just made").fd())
    }

    /// Wakes the loops after `delay`, unless the alarm is set already (B2).
    #[cold]
    pub(crate) fn set(&self, delay: Duration) {
        let _change = lock(&self.change);
        // Relaxed, here and below: the flag changes under the lock alone.
        if !self.is_set.load(Ordering::Relaxed) {
            self.start(delay);
        }
    }

    /// Wakes the loops now (B3).
    pub(crate) fn fire(&self) {
        let _change = lock(&self.change);
        self.start(Duration::ZERO);
    }

    fn start(&self, delay: Duration) {
        if let Some(timer) = self.timer.get() {
            timer.start(delay);
            self.is_set.store(true, Ordering::Relaxed);
        }
    }

    /// A turn begins (B1).
    #[inline]
    pub(crate) fn clear(&self) {
        if self.is_set() {
            self.stop();
        }
    }

    #[cold]
    fn stop(&self) {
        let _change = lock(&self.change);
        if let Some(timer) = self.timer.get() {
            timer.stop();
        }
        self.is_set.store(false, Ordering::Relaxed);
    }

    /// Returns whether the loops are woken now or later; a guess.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }
}
