//! Waiting for a device that works by the clock, or at once, while others give it work.

use crate::driver::Waiter;
use crate::driver::slack::NoSlack;
use crate::runtime::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A wait shorter than this spins: the scheduler's own delay would be a large part of it.
pub(super) const SPIN_NS: u64 = 60_000;

/// The same of a thread that the kernel wakes without slack: measured, 2.4 to 2.9 us late from 5 us
/// to 1 ms of sleep, on an idle virtual machine of two cores. What is left is spent spinning.
const PUNCTUAL_SPIN_NS: u64 = 2_000;

/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// When the first completion of a queue is due, and the thread that waits for it.
#[derive(Debug)]
pub(super) struct Timer {
    spin_ns: u64,
    /// Whether who waits sleeps without slack.
    is_punctual: bool,
    due_ns: AtomicU64,
    kicked: AtomicBool,
    /// Whether the waiting thread sleeps. Whoever makes it due earlier, or kicks, does so first and
    /// takes this lock then; the thread looks again under the lock before it sleeps. So either it
    /// sees what came, or is seen asleep.
    asleep: Mutex<bool>,
    wake: Condvar,
}

impl Timer {
    /// One whose last [`SPIN_NS`] are spent spinning: the right one for short waits, by a thread
    /// that nobody keeps from its processor.
    pub(super) fn new() -> Timer {
        Timer::with(SPIN_NS, false)
    }

    /// One that is as exact, for three more system calls per sleep, and hardly spins: for a device
    /// that makes the processors' own work wait if its thread spins.
    pub(super) fn punctual() -> Timer {
        Timer::with(PUNCTUAL_SPIN_NS, true)
    }

    fn with(spin_ns: u64, is_punctual: bool) -> Timer {
        Timer {
            spin_ns,
            is_punctual,
            due_ns: AtomicU64::new(NEVER),
            kicked: AtomicBool::new(false),
            asleep: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// Says when the first completion is due that [`Driver::has_ready`] does not tell of.
    ///
    /// [`Driver::has_ready`]: forebay_core::Driver::has_ready
    pub(super) fn set(&self, due_ns: Option<u64>) {
        let due_ns = due_ns.unwrap_or(NEVER);
        if due_ns < self.due_ns.swap(due_ns, Ordering::AcqRel) {
            self.wake_sleeper();
        }
    }

    /// Makes the thread that waits return, now or when it next waits.
    pub(super) fn kick(&self) {
        self.kicked.store(true, Ordering::Release);
        self.wake_sleeper();
    }

    fn wake_sleeper(&self) {
        if *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) {
            self.wake.notify_one();
        }
    }

    /// Sleeps until a time, unless something came since `due_ns` was read. May return early.
    fn sleep(&self, len: Duration, due_ns: u64) {
        // Only for what is due: a wait that ends by its time limit alone may be late.
        let is_due = self.is_punctual && due_ns != NEVER;
        let _no_slack = is_due.then(NoSlack::begin);
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if self.kicked.load(Ordering::Acquire) || self.due_ns.load(Ordering::Acquire) != due_ns {
            return;
        }
        *asleep = true;
        let woken = self.wake.wait_timeout(asleep, len);
        *woken.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

impl Waiter for Timer {
    fn wait(&self, timeout: Option<Duration>) {
        let end_ns = timeout.map_or(NEVER, |timeout| {
            let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(NEVER);
            clock::now_ns().saturating_add(timeout_ns)
        });
        while !self.kicked.swap(false, Ordering::AcqRel) {
            let due_ns = self.due_ns.load(Ordering::Acquire);
            let Some(left_ns) = due_ns.min(end_ns).checked_sub(clock::now_ns()) else {
                return;
            };
            match left_ns.checked_sub(self.spin_ns) {
                Some(sleep_ns) => self.sleep(Duration::from_nanos(sleep_ns), due_ns),
                None => std::hint::spin_loop(),
            }
        }
    }
}
