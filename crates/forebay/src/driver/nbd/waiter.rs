//! Waits for replies.
//!
//! The owner of a queue uses its connection alone. So it sends and receives while it waits, and one
//! system call can do both the wait and the receive.
//!
//! Beside a shared context, another thread may use the connection. There a thread waits for the
//! connection's descriptor and an event.
//!
//! A reply that no thread has received keeps the descriptor readable. A reply that another thread
//! has received is reaped by that thread or announced by the event. Data to be sent are treated in
//! the same way, and the next turn sends them. No thread reaps from a connection without requests.
//! There the waiter receives by itself, because the input can only be the end of the connection.

use super::link::Blocked;
use super::queue::{Role, Shared};
use crate::driver::deadline::Deadline;
use crate::driver::socket::Socket;
use crate::driver::{BlockingWait, Mode};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) struct NbdWait {
    shared: Arc<Shared>,
    mode: Mode,
}

impl NbdWait {
    pub(super) fn new(shared: Arc<Shared>, mode: Mode) -> NbdWait {
        NbdWait { shared, mode }
    }

    /// Waits as the owner of the queue, which is the only thread that uses its connection.
    fn wait_alone(&self, nr_completions: usize, timeout: Option<Duration>) {
        let until = Deadline::after(timeout);
        let nr = nr_completions.max(1);
        let mut may_block = true;
        let mut has_polled = false;
        let mut link = self.shared.lock();
        loop {
            link.send();
            let can_wait = link.nr_done() < nr && link.stream.can_wait() && !link.holds_back();
            if can_wait && may_block && link.may_block_until(until) {
                match link.receive_blocking() {
                    _ if link.nr_done() >= nr || link.is_lost() => break,
                    Blocked::Received => {}
                    Blocked::TimedOut => may_block = false,
                    Blocked::Interrupted => break,
                }
                continue;
            }
            // Mostly nothing is there before the poll.
            if !can_wait || has_polled {
                link.receive(false);
            }
            if link.nr_done() >= nr || link.is_lost() || has_polled && until.is_over() {
                break;
            }
            let for_room = link.holds_back();
            link.nr_syscalls += 1;
            drop(link);
            Socket::poll(Some((self.shared.fd.as_fd(), for_room)), None, until.left());
            has_polled = true;
            link = self.shared.lock();
        }
        self.shared.wake_others(&link, Role::Reaper);
    }

    /// Waits beside the thread that uses the connection.
    fn wait_beside(&self, timeout: Option<Duration>) {
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
}

impl BlockingWait for NbdWait {
    fn wait(&self, nr_completions: usize, timeout: Option<Duration>) {
        match self.mode {
            Mode::Owned => self.wait_alone(nr_completions, timeout),
            Mode::Shared => self.wait_beside(timeout),
        }
    }

    fn kick(&self) {
        self.shared.event.signal();
    }

    fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.shared.poll_fd()
    }

    fn nr_syscalls(&self) -> u64 {
        self.shared.nr_syscalls.load(Ordering::Relaxed)
    }
}
