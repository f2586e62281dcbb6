//! Waiter for a context's completions while another thread uses the context.
//!
//! The wait cannot use `io_getevents`, which would remove completions that the driver has to reap.
//! So each completion, each kick and the end of each helper's call signals an eventfd. The wait is
//! a blocking read of the eventfd, which also clears the signal. If the ring still holds a
//! completion whose signal was cleared, the wait returns at once.

use super::context::Context;
use crate::driver::Waiter;
use crate::driver::own_call::{OwnCall, OwnCalls};
use crate::driver::psync::queue::Queue;
use crate::sys::event::Event;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct AioWaiter {
    pub(super) context: Arc<Context>,
    pub(super) event: Arc<Event>,
    /// Makes the calls that the context does not support.
    pub(super) helper: Arc<Queue>,
    /// Results of the requests that threads make themselves.
    pub(super) own: Option<OwnCalls>,
    /// A caller polls the event. The event never blocks then, and each full reap clears it first.
    is_polled: AtomicBool,
    nr_syscalls: AtomicU64,
}

impl AioWaiter {
    pub(super) fn new(
        context: Arc<Context>,
        event: Arc<Event>,
        helper: Arc<Queue>,
        own: Option<OwnCalls>,
    ) -> AioWaiter {
        let (is_polled, nr_syscalls) = (AtomicBool::new(false), AtomicU64::new(0));
        AioWaiter { context, event, helper, own, is_polled, nr_syscalls }
    }

    pub(super) fn is_polled(&self) -> bool {
        // Acquire, with the release below: the event does not block.
        self.is_polled.load(Ordering::Acquire)
    }
}

impl Waiter for AioWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        if !self.context.has_events() && !self.helper.has_done() {
            // Relaxed: a count.
            self.nr_syscalls.fetch_add(1, Ordering::Relaxed);
            self.event.wait(timeout);
        }
    }

    fn leaves_own_calls(&self) -> bool {
        self.own.is_some()
    }

    fn make_own_call(&self, call: OwnCall) {
        if let Some(own) = &self.own {
            own.make(call, &self.helper.target().file);
        }
    }

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        if !self.is_polled() {
            self.event.never_block();
            self.is_polled.store(true, Ordering::Release);
            // This signal makes the caller reap completions that are present or still quiet.
            self.event.signal();
        }
        Ok(Some(self.event.fd()))
    }

    fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls.load(Ordering::Relaxed)
    }
}
