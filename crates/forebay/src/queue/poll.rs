//! Descriptor of a queue for event loops: when it is readable, and which calls signal it.

use crate::driver::Waiter;
use crate::runtime::hctx::Hctx;
use crate::runtime::ready::Ready;
use crate::sys::event::{AnyOf, Event};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The descriptor that an event loop watches to learn when a queue is to be reaped.
pub(super) struct QueuePoll {
    event: Arc<Event>,
    any: AnyOf,
    waiter: Arc<dyn Waiter>,
    /// The owner reaps after its last submission and before it polls the descriptor, so its own
    /// calls need not signal.
    reaps_before_poll: bool,
    /// The driver has no descriptor, so the event stays signalled while bios are in the layer.
    no_poll_fd: bool,
    /// This thread has signalled the event and not cleared it since, so it need not signal again.
    /// No other thread clears it.
    is_signalled: Cell<bool>,
}

impl QueuePoll {
    /// Opens the descriptor of a queue, which is readable at first. `waiter` is that of the queue's
    /// hardware context. `has_service`: a thread of the disk delivers, and signals the event.
    ///
    /// # Errors
    /// Returns the error of the system call, such as a lack of descriptors.
    pub(super) fn open(
        (hctx, waiter): (&Hctx, Arc<dyn Waiter>),
        has_service: bool,
        ready: &mut Ready,
        reaps_before_poll: bool,
    ) -> io::Result<QueuePoll> {
        let event = Arc::new(Event::new()?);
        let driver = waiter.poll_fd()?;
        let no_poll_fd = driver.is_none() && !has_service;
        let any = hctx.watch(std::iter::once(event.fd()).chain(driver))?;
        ready.set_event(&event, reaps_before_poll);
        let is_signalled = Cell::new(false);
        let poll = QueuePoll { event, any, waiter, reaps_before_poll, no_poll_fd, is_signalled };
        // Earlier deliveries have not signalled.
        poll.signal();
        Ok(poll)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.any.fd()
    }

    pub(super) fn signal(&self) {
        if !self.is_signalled.replace(true) {
            self.event.signal();
        }
    }

    /// Clears the signal before a reap.
    pub(super) fn clear(&self) {
        self.waiter.ack_poll();
        self.is_signalled.set(false);
        self.event.clear();
    }

    /// Signals the event if the owner must reap: see `BioQueue::signal`. `len`: bios that were
    /// submitted and not reaped.
    pub(super) fn signal_for(&self, ready: &RefCell<Ready>, len: usize, is_reaped: bool) {
        if self.reaps_before_poll && !is_reaped {
            return;
        }
        let ready = ready.borrow();
        let is_waiting = len > ready.len() && self.no_poll_fd;
        if !ready.is_empty() || is_waiting {
            self.signal();
        }
    }
}

impl fmt::Debug for QueuePoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePoll").field("event", &self.event).finish_non_exhaustive()
    }
}
