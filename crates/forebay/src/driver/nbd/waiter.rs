//! Waiting for replies while another thread uses the connection: for its descriptor, and an event.
//!
//! A reply that nobody has received keeps the descriptor readable. One that another has received is
//! reaped by it, or told by the event. What is there to be sent is waited for in the same way, and
//! the turn that follows sends it. Of a connection without requests nobody reaps: whoever waits
//! looks itself, since it can only be the end of it.

use super::queue::Shared;
use super::socket::Socket;
use crate::driver::Waiter;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) struct NbdWaiter {
    shared: Arc<Shared>,
}

impl NbdWaiter {
    pub(super) fn new(shared: Arc<Shared>) -> NbdWaiter {
        NbdWaiter { shared }
    }
}

impl Waiter for NbdWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        let shared = &*self.shared;
        // Relaxed: a count.
        shared.nr_syscalls.fetch_add(1, Ordering::Relaxed);
        // A connection that is lost is readable for ever, and has nothing to tell.
        let is_there = !shared.is_lost.load(Ordering::Acquire);
        let for_room = shared.for_room.load(Ordering::Acquire);
        let socket = is_there.then(|| (shared.fd.as_fd(), for_room));
        let polled = Socket::poll(socket, Some(shared.event.fd()), timeout);
        if polled.is_other {
            shared.event.clear();
        }
        if polled.is_readable {
            shared.look_if_idle();
        }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.poll_fd()
    }

    fn nr_syscalls(&self) -> u64 {
        self.shared.nr_syscalls.load(Ordering::Relaxed)
    }
}
