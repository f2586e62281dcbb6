//! Waiter for replies while another thread uses the connection: it waits for the connection's
//! descriptor and an event.
//!
//! A reply that no thread has received keeps the descriptor readable. A reply that another thread
//! has received is reaped by that thread or announced by the event. Data to be sent are treated in
//! the same way, and the next turn sends them. No thread reaps from a connection without requests.
//! There the waiter receives by itself, because the input can only be the end of the connection.

use super::queue::Shared;
use crate::driver::Waiter;
use crate::driver::socket::Socket;
use std::io;
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
        // A lost connection stays readable and delivers nothing more.
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

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        self.shared.poll_fd().map(Some)
    }

    fn nr_syscalls(&self) -> u64 {
        self.shared.nr_syscalls.load(Ordering::Relaxed)
    }
}
