//! Polling before a sleep (the key `poll_us`): a wait polls the used ring for a limited time.
//!
//! Meanwhile interrupts stay suppressed. So if the server completes a request within that time,
//! neither side makes a system call. A wait that finds nothing asks for an interrupt, and sleeps.
//!
//! After a while the thread yields the processor between two polls of the ring. With more polling
//! threads than processors, the thread that it waits for could otherwise not run until the
//! scheduler preempts the polling thread, some milliseconds later. If another thread ran during the
//! last yield, the next wait yields after its first polls, unless the server had to be woken.

use crate::sys::clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The number of polls of the ring between two readings of the clock.
const NR_POLLS: u32 = 8;

/// The time after which a wait yields the processor between polls, ns. A server that has a
/// processor completes requests in memory within a few microseconds.
const YIELD_AFTER_NS: u64 = 4_000;

/// Time of a yield that shows that another thread ran, ns. Otherwise a yield takes less than half a
/// microsecond.
const OTHERS_RAN_NS: u64 = 2_000;

/// The time for which waits poll.
#[derive(Debug)]
pub(super) struct Spin {
    limit_ns: u64,
    /// Whether the next wait yields at once: other threads ran during the last yield. Relaxed: an
    /// outdated value costs one yield, or a few polls.
    yields_at_once: AtomicBool,
}

impl Spin {
    /// Returns a policy that polls for at most `limit`; zero turns polling off.
    pub(super) fn new(limit: Duration) -> Spin {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Spin { limit_ns, yields_at_once: AtomicBool::new(false) }
    }

    /// Returns whether waits poll at all.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.limit_ns > 0
    }

    /// Lets the next wait poll for a while before it yields: the server was asleep, so it runs now,
    /// which a yield would delay.
    #[inline]
    pub(super) fn has_kicked(&self) {
        self.yields_at_once.store(false, Ordering::Relaxed);
    }

    /// Polls until `is_over` returns true, or until the limit or `timeout` has passed. Returns
    /// whether `is_over` returned true.
    #[inline]
    pub(super) fn poll(&self, timeout: Option<Duration>, is_over: impl Fn() -> bool) -> bool {
        let timeout_ns = timeout
            .map_or(u64::MAX, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let begin_ns = clock::now_ns();
        loop {
            for _ in 0..NR_POLLS {
                if is_over() {
                    return true;
                }
                std::hint::spin_loop();
            }
            let polled_ns = clock::now_ns().saturating_sub(begin_ns);
            if polled_ns >= self.limit_ns.min(timeout_ns) {
                return false;
            }
            if polled_ns >= YIELD_AFTER_NS || self.yields_at_once.load(Ordering::Relaxed) {
                std::thread::yield_now();
                let yielded_ns = clock::now_ns().saturating_sub(begin_ns + polled_ns);
                self.yields_at_once.store(yielded_ns >= OTHERS_RAN_NS, Ordering::Relaxed);
            }
        }
    }
}
