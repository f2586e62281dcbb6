//! Descriptors of an alarm as a model sees them. Changes are visible to polls, as in the kernel,
//! which changes and polls a descriptor under its lock.
//!
//! No test polls the real descriptors in a model, so they are never signalled.

use crate::sys::clock::model_time;
use crate::sys::event;
use crate::sys::primitive::{Mutex, lock};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Returns the time of the timer's clock.
pub(super) fn timer_now_ns() -> u64 {
    model_time::now_ns().unwrap_or_else(event::timer_now_ns)
}

/// An eventfd.
#[derive(Debug)]
pub(super) struct Event {
    real: event::Event,
    is_signalled: Mutex<bool>,
}

impl Event {
    pub(super) fn new() -> io::Result<Event> {
        Ok(Event { real: event::Event::new()?, is_signalled: Mutex::new(false) })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.real.fd()
    }

    pub(super) fn signal(&self) {
        *lock(&self.is_signalled) = true;
    }

    pub(super) fn clear(&self) {
        *lock(&self.is_signalled) = false;
    }

    pub(super) fn is_readable(&self) -> bool {
        *lock(&self.is_signalled)
    }
}

/// A timerfd.
#[derive(Debug)]
pub(super) struct TimerFd {
    real: event::TimerFd,
    due_ns: Mutex<Option<u64>>,
}

impl TimerFd {
    pub(super) fn new() -> io::Result<TimerFd> {
        Ok(TimerFd { real: event::TimerFd::new()?, due_ns: Mutex::new(None) })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.real.fd()
    }

    pub(super) fn start(&self, delay: Duration) -> io::Result<u64> {
        let due_ns = timer_now_ns() + delay.as_nanos() as u64;
        *lock(&self.due_ns) = Some(due_ns);
        Ok(due_ns)
    }

    pub(super) fn stop(&self) -> bool {
        *lock(&self.due_ns) = None;
        true
    }

    pub(super) fn is_readable(&self) -> bool {
        lock(&self.due_ns).is_some_and(|due_ns| due_ns <= timer_now_ns())
    }
}
