//! Descriptor of a queue for event loops: when it is readable, and which calls signal it.

use crate::driver::Waiter;
use crate::poll_handle::QueuePoll;
use crate::runtime::alarm::Alarm;
use crate::runtime::hctx::Hctx;
use crate::runtime::ready::Ready;
use crate::sys::event::{AnyOf, Event};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The rule by which an event loop reaps a queue and waits for the queue's descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollMode {
    /// The loop may wait at any time. The descriptor is readable whenever a reap may return
    /// completions, and sometimes when there are none. Each reap clears it.
    #[default]
    AnyTime,
    /// The loop reaps after its last submission and before each wait: it never waits while
    /// [`wants_reap`](crate::BioQueue::wants_reap) is true. The thread's own calls do not signal
    /// the descriptor, and a reap leaves it as it is, which saves three system calls per batch. If
    /// a wait has reported the descriptor, the loop calls
    /// [`ack_poll`](crate::BioQueue::ack_poll) before the reap. A loop that waits although
    /// `wants_reap` is true may wait forever.
    AfterReap,
}

/// The descriptor that an event loop watches to learn when a queue is to be reaped.
pub(super) struct PollState {
    event: Arc<Event>,
    /// Handles keep it open.
    any: Arc<AnyOf>,
    waiter: Arc<dyn Waiter>,
    mode: PollMode,
    /// The driver has no descriptor, so the event stays signalled while bios are in the layer,
    /// unless the alarm will wake the loop.
    no_poll_fd: bool,
    /// This thread has signalled the event and not cleared it since, so it need not signal again.
    /// No other thread clears it.
    is_signalled: Cell<bool>,
}

impl PollState {
    /// Opens the descriptor of a queue, which is readable at first. `waiter` is that of the queue's
    /// hardware context. `has_service`: a thread of the disk delivers, and signals the event.
    ///
    /// # Errors
    /// Returns the error of the system call, such as a lack of descriptors.
    pub(super) fn open(
        (hctx, waiter): (&Hctx, Arc<dyn Waiter>),
        has_service: bool,
        ready: &mut Ready,
        mode: PollMode,
    ) -> io::Result<PollState> {
        let event = Arc::new(Event::new()?);
        let driver = waiter.poll_fd()?;
        let no_poll_fd = driver.is_none() && !has_service;
        let any = Arc::new(hctx.watch(std::iter::once(event.fd()).chain(driver))?);
        let is_signalled = Cell::new(false);
        let mut poll = PollState { event, any, waiter, mode, no_poll_fd, is_signalled };
        poll.begin_mode(ready);
        Ok(poll)
    }

    /// Sets the mode, if it differs.
    ///
    /// # Errors
    /// A handle exists, so its loop reaps by the rules of the present mode.
    pub(super) fn set_mode(&mut self, mode: PollMode, ready: &mut Ready) -> io::Result<()> {
        if self.mode == mode {
            return Ok(());
        }
        // This has one reference, and each handle another.
        if Arc::strong_count(&self.any) > 1 {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!(
                    "a handle of the queue with PollMode::{:?} exists: drop it before you use \
                     another mode",
                    self.mode
                ),
            ));
        }
        self.mode = mode;
        self.begin_mode(ready);
        Ok(())
    }

    fn begin_mode(&mut self, ready: &mut Ready) {
        ready.set_event(&self.event, self.mode == PollMode::AfterReap);
        // Deliveries before this may not have signalled.
        self.signal();
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.any.fd()
    }

    /// Returns a handle of the descriptor.
    pub(super) fn handle(&self) -> QueuePoll {
        QueuePoll::new(Arc::clone(&self.any))
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

    /// Returns whether a call of the owner may signal the event: see `BioQueue::signal`.
    #[inline]
    pub(super) fn signals_after(&self, is_reaped: bool) -> bool {
        is_reaped || self.mode == PollMode::AnyTime
    }

    /// Signals the event if the owner must reap. `len`: bios that were submitted and not reaped.
    /// `alarm` is that of the context. While it is due for a limit, a loop that is woken before
    /// could do nothing.
    pub(super) fn signal_for(&self, ready: &RefCell<Ready>, len: usize, alarm: &Alarm) {
        let ready = ready.borrow();
        let is_waiting = || len > ready.len() && self.no_poll_fd && !alarm.is_due();
        if !ready.is_empty() || is_waiting() {
            self.signal();
        }
    }
}

impl fmt::Debug for PollState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollState").field("event", &self.event).finish_non_exhaustive()
    }
}
