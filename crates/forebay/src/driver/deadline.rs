//! End of a wait with a time limit.

use crate::sys::clock;
use std::io;
use std::time::Duration;

/// A point in time by which a wait must end, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    at_ns: u64,
}

impl Deadline {
    /// The deadline of a wait without a limit.
    pub(super) const NEVER: Deadline = Deadline { at_ns: u64::MAX };

    /// Returns the deadline of a wait that begins now. Reads the clock only if there is a limit.
    #[inline]
    pub(super) fn after(timeout: Option<Duration>) -> Deadline {
        match timeout {
            None => Deadline::NEVER,
            Some(timeout) => {
                let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
                let at_ns = clock::now_ns().saturating_add(timeout_ns);
                Deadline { at_ns: at_ns.min(u64::MAX - 1) }
            }
        }
    }

    /// Returns the deadline on the layer's clock, ns; `u64::MAX` if there is none.
    pub(super) fn at_ns(self) -> u64 {
        self.at_ns
    }

    /// Returns the time left, zero if the deadline has passed, or `None` if there is no limit.
    #[inline]
    pub(super) fn left(self) -> Option<Duration> {
        if self == Deadline::NEVER {
            return None;
        }
        Some(Duration::from_nanos(self.at_ns.saturating_sub(clock::now_ns())))
    }

    /// Returns the time left, for calls that must have a limit.
    ///
    /// # Errors
    /// Fails with `TimedOut` if no time is left.
    pub(super) fn time_left(self) -> io::Result<Duration> {
        match self.left() {
            Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left.unwrap_or(Duration::MAX)),
        }
    }

    /// Returns whether the deadline has passed.
    #[inline]
    pub(super) fn is_over(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}
