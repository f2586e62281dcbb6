//! Waiter for completions while another thread uses the queue.

use super::queue::Shared;
use crate::driver::Waiter;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct VhostUserWaiter {
    shared: Arc<Shared>,
}

impl VhostUserWaiter {
    pub(super) fn new(shared: Arc<Shared>) -> VhostUserWaiter {
        VhostUserWaiter { shared }
    }
}

impl Waiter for VhostUserWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        self.shared.wait(timeout);
    }

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        self.shared.poll_fd().map(Some)
    }

    fn ack_poll(&self) {
        self.shared.acknowledge();
    }

    fn nr_syscalls(&self) -> u64 {
        self.shared.nr_syscalls()
    }
}
