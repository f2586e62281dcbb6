//! Timed waits for a device that completes by the clock, while other threads issue to it.

use crate::driver::Waiter;
use crate::driver::contract::BlockingWait;
use crate::driver::deadline::Deadline;
use crate::driver::due_fd::{DueFd, NEVER};
use crate::driver::timer_slack::NoSlack;
use crate::sys::clock;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A wait shorter than this spins, because the scheduler's delay would be a large part of it, ns.
const SPIN_NS: u64 = 60_000;

/// The same for a thread that wakes without timer slack, ns. Measured: 2.4 to 2.9 us late after 5
/// us to 1 ms of sleep, on an idle virtual machine with two cores. The thread spins for the rest.
const PUNCTUAL_SPIN_NS: u64 = 2_000;

/// The due time of a queue's first completion, and the thread that waits for it.
#[derive(Debug)]
pub(super) struct Timer {
    spin_ns: u64,
    /// The waiting thread sleeps without timer slack.
    is_punctual: bool,
    due_ns: AtomicU64,
    kicked: AtomicBool,
    /// The waiting thread sleeps. A thread that makes it due earlier, or kicks it, does that first
    /// and then takes this lock. The waiting thread checks again under the lock before it sleeps.
    /// So it either sees the change or is seen asleep.
    asleep: Mutex<bool>,
    wake: Condvar,
    /// The descriptor for event loops.
    fd: DueFd,
}

impl Timer {
    /// Creates a timer that spins for the last [`SPIN_NS`] of a wait: for short waits on a thread
    /// that other work does not preempt.
    pub(super) fn new() -> Timer {
        Timer::with(SPIN_NS, false)
    }

    /// Creates a timer that is as exact but hardly spins, for three more system calls per sleep:
    /// for a device with a thread that would take processor time from other work if it spun.
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
            fd: DueFd::default(),
        }
    }

    /// Sets the due time of the first completion that [`Driver::has_ready`] does not report.
    ///
    /// [`Driver::has_ready`]: forebay_core::Driver::has_ready
    pub(super) fn set(&self, due_ns: Option<u64>) {
        let due_ns = due_ns.unwrap_or(NEVER);
        if due_ns < self.due_ns.swap(due_ns, Ordering::AcqRel) {
            self.wake_sleeper();
            self.fd.set(due_ns);
        }
    }

    /// Resets the descriptor for event loops. Called by each reap, after it has set the due time.
    pub(super) fn reaped(&self) {
        self.fd.reaped(|| self.due_ns.load(Ordering::Acquire));
    }

    /// Ends the wait of the waiting thread, now or when it next waits.
    pub(super) fn kick(&self) {
        self.kicked.store(true, Ordering::Release);
        self.wake_sleeper();
    }

    pub(super) fn nr_syscalls(&self) -> u64 {
        self.fd.nr_syscalls()
    }

    fn wake_sleeper(&self) {
        if *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) {
            self.wake.notify_one();
        }
    }

    /// Sleeps for `len`, unless a change came since `due_ns` was read. May return early.
    fn sleep(&self, len: Duration, due_ns: u64) {
        // Only for a due completion: a wait that ends by its timeout may be late.
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

    /// Waits until the timer is due, a kick arrives, or `timeout` has passed. Returns whether a
    /// kick has ended the wait.
    pub(super) fn wait_until_due(&self, timeout: Option<Duration>) -> bool {
        let end_ns = Deadline::after(timeout).at_ns();
        while !self.kicked.swap(false, Ordering::AcqRel) {
            let due_ns = self.due_ns.load(Ordering::Acquire);
            let Some(left_ns) = due_ns.min(end_ns).checked_sub(clock::now_ns()) else {
                return false;
            };
            // The end of a wait without a completion may be late, so no time is spent spinning.
            let spin_ns = if end_ns < due_ns { 0 } else { self.spin_ns };
            match left_ns.checked_sub(spin_ns) {
                Some(sleep_ns) => self.sleep(Duration::from_nanos(sleep_ns), due_ns),
                None => std::hint::spin_loop(),
            }
        }
        true
    }
}

impl Waiter for Timer {
    fn wait(&self, timeout: Option<Duration>) {
        self.wait_until_due(timeout);
    }

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        self.fd.fd().map(Some)
    }

    fn nr_syscalls(&self) -> u64 {
        Timer::nr_syscalls(self)
    }
}

impl BlockingWait for Timer {
    fn wait(&self, _nr_completions: usize, timeout: Option<Duration>) {
        Waiter::wait(self, timeout);
    }

    fn kick(&self) {
        Timer::kick(self);
    }

    fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.fd.fd()
    }
}
