//! Time limit of blocking receives (`SO_RCVTIMEO`) for waits with a timeout.
//!
//! A blocking receive waits and receives with one system call, while a poll needs another call to
//! receive. But the kernel counts this limit in ticks, so a receive may end late by several
//! milliseconds, or by an eighth of a long limit. So the limit is at most half of the wait, and the
//! wait is a blocking receive only at first. If the limit ends that receive, polls do the rest.
//!
//! Setting the limit takes a system call. A limit is kept as long as it is not too long for a wait.
//! It is set to half of what would be possible, so that it also serves the next waits, which may be
//! shorter.

use crate::driver::socket::Socket;
use std::time::Duration;

/// The minimum wait that begins with a blocking receive. Several ticks, which take 1 to 10 ms each.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// The limit of a socket's blocking receives.
#[derive(Debug, Default)]
pub(super) struct RecvLimit {
    /// `None` if a receive may block forever.
    current: Option<Duration>,
}

impl RecvLimit {
    /// Makes a blocking receive end before `left` has passed. Returns false if it may not: then the
    /// caller must poll. Adds the system calls made to `nr_syscalls`.
    pub(super) fn fit(&mut self, socket: &Socket, left: Duration, nr_syscalls: &mut u64) -> bool {
        if left < SHORTEST_WAIT {
            return false;
        }
        if self.current.is_none_or(|current| current > left / 2) {
            *nr_syscalls += 1;
            if socket.set_recv_timeout(Some(left / 4)).is_err() {
                return false;
            }
            self.current = Some(left / 4);
        }
        true
    }

    /// Returns whether a receive that took this long has reached the limit.
    pub(super) fn has_ended(&self, took: Duration) -> bool {
        self.current.is_some_and(|current| took >= current)
    }
}
