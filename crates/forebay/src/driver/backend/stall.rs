//! Waits for requests that a back end does not end, and the report of such a wait.
//!
//! All waits of a queue begin here. If the back end has requests and has ended none of them outside
//! `submit` for [`Backend::stall_time`], the wait is reported once. The next request that ends
//! makes another report possible. A wait sleeps for at most that time before it checks again,
//! because requests may be submitted meanwhile. A report does not end the wait.

use super::Backend;
use super::queue_state::QueueState;
use crate::driver::contract::BlockingWait;
use crate::driver::kit::end_of;
use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two checks of a wait, so that a wait with a [`Backend::stall_time`] of
/// 0 sleeps.
const STALL_TIME_MIN: Duration = Duration::from_millis(10);

/// A wait for requests that a back end has not ended: see
/// [`Backend::report_stall`](super::Backend::report_stall). Its text is one line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The spec of the disk.
    pub disk: String,
    /// The number of requests of one hardware context that the back end has.
    pub nr_requests: usize,
    /// The time during which the back end has ended none of them.
    pub time: Duration,
}

impl Stall {
    /// Writes the text to the standard error stream.
    pub(super) fn print(&self) {
        // If that stream is closed, there is nowhere else to write the text.
        let _ = writeln!(io::stderr(), "forebay: {self}");
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: a thread waits for {} requests, none of which the back end has ended for {:?}; \
             end each request, or set io_timeout_ms",
            self.disk, self.nr_requests, self.time
        )
    }
}

/// The waits of one queue.
pub(super) struct Waits {
    state: Arc<QueueState>,
    backend: Arc<dyn Backend>,
    /// The number of requests that were submitted and not reaped, and of those that were reaped. If
    /// all requests end inside `submit`, they are not counted. Relaxed: a waiter that sees old
    /// numbers reports later.
    nr_out: AtomicUsize,
    nr_reaped: AtomicU64,
    seen: Mutex<Seen>,
}

/// The state when a wait last found that a request had ended.
struct Seen {
    nr_reaped: u64,
    /// There were requests that were not reaped.
    has_requests: bool,
    since: Instant,
    is_reported: bool,
}

impl Waits {
    pub(super) fn new(state: &Arc<QueueState>, backend: Arc<dyn Backend>) -> Waits {
        Waits {
            state: Arc::clone(state),
            backend,
            nr_out: AtomicUsize::new(0),
            nr_reaped: AtomicU64::new(0),
            seen: Mutex::new(Seen {
                nr_reaped: 0,
                has_requests: false,
                since: Instant::now(),
                is_reported: false,
            }),
        }
    }

    /// Records a batch that did not end at once. `nr_out` requests were submitted and not reaped.
    #[inline]
    pub(super) fn submitted(&self, nr_out: usize) {
        self.nr_out.store(nr_out, Ordering::Relaxed);
    }

    /// Records a reap of `nr` requests. `nr_out` were submitted and are not reaped.
    pub(super) fn reaped(&self, nr: usize, nr_out: usize) {
        self.nr_out.store(nr_out, Ordering::Relaxed);
        self.nr_reaped.fetch_add(nr as u64, Ordering::Relaxed);
    }

    /// Calls `sleep`, with the end of its sleep, until it returns true or `timeout` has passed.
    /// Reports stalls meanwhile.
    fn watch(&self, timeout: Option<Duration>, sleep: impl Fn(Option<Instant>) -> bool) {
        let end = end_of(timeout);
        loop {
            let next = end_of(Some(self.look()));
            let is_last = end.is_some_and(|end| next.is_none_or(|next| end <= next));
            if sleep(if is_last { end } else { next }) || is_last {
                return;
            }
        }
    }

    fn stall_time(&self) -> Duration {
        self.backend.stall_time().max(STALL_TIME_MIN)
    }

    /// Reports the wait if a report is due. Returns the time until the next check is due.
    fn look(&self) -> Duration {
        let (limit, now) = (self.stall_time(), Instant::now());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let nr_reaped = self.nr_reaped.load(Ordering::Relaxed);
        let nr_out = self.nr_out.load(Ordering::Relaxed);
        if seen.nr_reaped != nr_reaped || !seen.has_requests {
            let has_requests = nr_out > 0;
            *seen = Seen { nr_reaped, has_requests, since: now, is_reported: false };
        }
        let time = now.duration_since(seen.since);
        if time < limit {
            return limit - time;
        }
        let nr_requests = nr_out.saturating_sub(self.state.list.len());
        let is_due = nr_requests > 0 && !mem::replace(&mut seen.is_reported, true);
        drop(seen);
        if is_due {
            self.report(Stall { disk: self.spec(), nr_requests, time });
        }
        limit
    }

    fn spec(&self) -> String {
        super::spec(&*self.backend)
    }

    fn report(&self, stall: Stall) {
        // A panic must not skip the wait, because the device may use memory of the caller.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.backend.report_stall(&stall))) {
            // Its destructor may panic too.
            mem::forget(panic);
        }
    }

    /// Waits until `nr` requests have ended outside `submit`, after a panic. Aborts the process if
    /// they do not end in time: their memory may be freed next, and the back end may still use it.
    pub(super) fn await_after_panic(&self, nr: usize) {
        let time = self.stall_time();
        if !self.state.list.wait_for_all(nr, time) {
            let disk = self.spec();
            let nr_requests = nr.saturating_sub(self.state.list.len());
            let _ = writeln!(
                io::stderr(),
                "forebay: {disk}: after a panic, the back end has not ended {nr_requests} requests \
                 within {time:?} and may still use their memory, so the process aborts"
            );
            std::process::abort();
        }
    }
}

impl BlockingWait for Waits {
    /// Returns early if one request has ended, or for a kick.
    fn wait(&self, nr_completions: usize, timeout: Option<Duration>) {
        self.watch(timeout, |until| self.state.list.wait_until(nr_completions, until));
    }

    fn kick(&self) {
        self.state.list.kick();
    }

    fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.state.list.event_fd()
    }

    fn nr_syscalls(&self) -> u64 {
        self.state.list.nr_syscalls()
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waits").finish_non_exhaustive()
    }
}
