//! Closing: requests to end the server that come from within, and the count of its clients.
//!
//! The accept loop polls one eventfd for all of these. It is signalled when a drain begins, when
//! the sockets of devices have changed, and, while the end depends on them, whenever a connection
//! has ended.

use forebay_vhost_user::signal;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// How the server drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Drain {
    /// It accepts connections.
    No,
    /// It accepts none, and ends when all clients have left.
    Waits,
    /// It ends now, as after SIGTERM.
    AtOnce,
}

/// Requests to end the server. All accesses to the atomics are relaxed: the eventfd orders them.
#[derive(Debug)]
pub(crate) struct Closing {
    event: OwnedFd,
    drain: AtomicU8,
    /// The server ends when its last client has left.
    exit_last: bool,
    /// A client has chosen an export.
    has_served: AtomicBool,
}

impl Closing {
    /// Creates the state of a server that accepts connections.
    ///
    /// # Errors
    /// Returns an error if the process has no descriptor left.
    pub(crate) fn new(exit_last: bool) -> io::Result<Closing> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (drain, has_served) = (AtomicU8::new(Drain::No as u8), AtomicBool::new(false));
        Ok(Closing { event, drain, exit_last, has_served })
    }

    /// Returns the eventfd, which is readable when the accept loop must check this.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Clears the eventfd.
    pub(crate) fn acknowledge(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Begins a drain, or makes one faster.
    pub(crate) fn drain(&self, drain: Drain) {
        self.drain.fetch_max(drain as u8, Ordering::Relaxed);
        signal(&self.event);
    }

    /// Returns how the server drains.
    pub(crate) fn how(&self) -> Drain {
        match self.drain.load(Ordering::Relaxed) {
            0 => Drain::No,
            1 => Drain::Waits,
            _ => Drain::AtOnce,
        }
    }

    /// Records that a client has chosen an export.
    pub(crate) fn note_client(&self) {
        if self.exit_last {
            self.has_served.store(true, Ordering::Relaxed);
        }
    }

    /// Records that a connection has ended.
    pub(crate) fn note_end(&self) {
        if self.exit_last || self.how() != Drain::No {
            signal(&self.event);
        }
    }

    /// Records that the accept loop has other sockets to poll.
    pub(crate) fn note_sockets(&self) {
        signal(&self.event);
    }

    /// Returns whether the server must end now, with this many connections.
    pub(crate) fn is_due(&self, nr_connections: usize) -> bool {
        let ends_with_last = self.exit_last && self.has_served.load(Ordering::Relaxed);
        match self.how() {
            Drain::AtOnce => true,
            Drain::Waits => nr_connections == 0,
            Drain::No => ends_with_last && nr_connections == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_waits_for_clients_unless_it_is_forced() {
        let closing = Closing::new(false).unwrap();
        closing.note_client();
        assert!(!closing.is_due(0) && !closing.is_due(1));
        closing.drain(Drain::Waits);
        assert!(closing.is_due(0) && !closing.is_due(1));
        closing.drain(Drain::AtOnce);
        closing.drain(Drain::Waits);
        assert_eq!(closing.how(), Drain::AtOnce);
        assert!(closing.is_due(1));
    }

    #[test]
    fn last_client_counts_only_after_a_first_one() {
        let closing = Closing::new(true).unwrap();
        assert!(!closing.is_due(0));
        closing.note_client();
        assert!(!closing.is_due(1) && closing.is_due(0));
    }
}
