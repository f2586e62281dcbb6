//! A worker: the front that ships, and the events that begin its rounds.
//!
//! A worker is an event loop. An event wakes it; it collects the state of its clients, as epoll
//! does, and makes a round.

use super::context::{Context, Event};
use super::host::{Outside, SharedOutside, SimHost, Transport};
use forebay_front::{Front, Session};

/// The time until a worker wakes up, ns, on average.
const WAKE_NS: u64 = 800;
/// The interval of ticks, ns.
const TICK_NS: u64 = 250_000_000;

/// A worker of the server.
#[derive(Debug)]
pub(crate) struct Worker<S: Session> {
    /// The number of the worker, and of its hardware context.
    at: usize,
    pub(crate) front: Front<S>,
    is_woken: bool,
    /// A tick is scheduled.
    is_tick_armed: bool,
    /// The time of the scheduled tick has come.
    is_tick_due: bool,
    /// The worker sleeps until this time, so that clients can send more.
    sleeps_until: u64,
}

impl<T: Transport, S: Session<Host = SimHost<T>>> Worker<S> {
    pub(crate) fn new(at: usize, front: Front<S>) -> Worker<S> {
        let (is_woken, is_tick_armed, is_tick_due) = (false, false, false);
        Worker { at, front, is_woken, is_tick_armed, is_tick_due, sleeps_until: 0 }
    }

    /// Returns the number of the worker.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Wakes the worker.
    pub(crate) fn wake(&mut self, cx: &mut Context) {
        let sleeps_ns = self.sleeps_until.saturating_sub(cx.now);
        self.work_after(sleeps_ns, cx);
    }

    /// Wakes the worker after so many ns.
    pub(crate) fn work_after(&mut self, delay_ns: u64, cx: &mut Context) {
        if !std::mem::replace(&mut self.is_woken, true) {
            let delay_ns = delay_ns + cx.random.exponential(WAKE_NS);
            cx.after(delay_ns, Event::Work(self.at));
        }
    }

    /// Handles the timer.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        (self.is_tick_armed, self.is_tick_due) = (false, true);
        self.wake(cx);
    }

    /// Begins to handle an event that has woken the worker.
    pub(crate) fn begin(&mut self) {
        self.is_woken = false;
    }

    /// Makes a round. `look` handles the events; it gets whether a tick is due.
    pub(crate) fn round(
        &mut self,
        outside: &SharedOutside<T>,
        look: impl FnOnce(&mut Front<S>, bool),
    ) {
        let is_tick_due = std::mem::take(&mut self.is_tick_due);
        self.front.round(|front| look(front, is_tick_due));
        let pause_ns = self.front.pause_ns();
        let wants_tick = self.front.wants_tick() && !self.front.is_over();
        let Outside { cx, transport, .. } = &mut *outside.borrow_mut();
        self.sleeps_until = cx.server_ns() + pause_ns;
        if wants_tick && !std::mem::replace(&mut self.is_tick_armed, true) {
            cx.after(TICK_NS, Event::Tick(self.at));
        }
        if self.front.is_unfinished() || transport.has_event(self.at) {
            self.wake(cx);
        }
    }
}
