//! Polling before a sleep (the key `poll_us`): a wait looks at the used ring for a limited time.
//!
//! Meanwhile interrupts stay suppressed. So if the server completes a request within that time,
//! neither side makes a system call. A wait that finds nothing asks for an interrupt, and sleeps.
//!
//! After a while the thread yields the processor between two looks. With more polling threads than
//! processors, the thread that it waits for could otherwise not run until the scheduler preempts
//! the polls, some milliseconds later.

use crate::sys::clock;
use std::time::Duration;

/// The number of looks at the ring between two readings of the clock.
const NR_LOOKS: u32 = 8;

/// The time after which a poll yields the processor between looks, ns. A server that has a
/// processor completes requests in memory within a few microseconds.
const YIELD_AFTER_NS: u64 = 4_000;

/// The time for which waits poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spin {
    limit_ns: u64,
}

impl Spin {
    /// Returns a policy that polls for at most `limit`; zero turns polling off.
    pub(super) fn new(limit: Duration) -> Spin {
        Spin { limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Returns whether waits poll at all.
    #[inline]
    pub(super) fn is_on(self) -> bool {
        self.limit_ns > 0
    }

    /// Polls until `is_over` returns true, or until the limit or `timeout` has passed. Returns
    /// whether `is_over` returned true.
    #[inline]
    pub(super) fn poll(self, timeout: Option<Duration>, is_over: impl Fn() -> bool) -> bool {
        let timeout_ns = timeout
            .map_or(u64::MAX, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let begin_ns = clock::now_ns();
        loop {
            for _ in 0..NR_LOOKS {
                if is_over() {
                    return true;
                }
                std::hint::spin_loop();
            }
            let polled_ns = clock::now_ns().saturating_sub(begin_ns);
            if polled_ns >= self.limit_ns.min(timeout_ns) {
                return false;
            }
            if polled_ns >= YIELD_AFTER_NS {
                std::thread::yield_now();
            }
        }
    }
}
