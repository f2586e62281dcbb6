//! The service thread of a context: it reaps for programs that make no call for it.
//!
//! Programs that wait for an eventfd, or read the ring, call no `io_getevents`. If an iocb has had
//! an eventfd, the thread reaps unless a thread of the program waits.
//!
//! Otherwise it gives the program some time for its own call, so that it costs nothing to a program
//! that submits and waits. If there is no call, it reaps once, while the ring is empty. A program
//! that moves the head of the ring then without a call is a *reader*: for it the thread reaps all
//! the time. One that leaves its events in the ring will call for them, and is left alone.
//!
//! While reads are held, the thread also bounds the time that they wait.

use super::wait::NR_AT_ONCE;
use super::{Context, Locked};
use crate::kernel::Wait;
use crate::program;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

/// The time that a program without an eventfd has for its own call, at first and at most.
const PATIENCE: Duration = Duration::from_millis(1);
const PATIENCE_MAX: Duration = Duration::from_millis(64);

/// The time without I/O after which the thread sleeps until it is woken.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// The size of the thread's stack in bytes.
const STACK: usize = 256 << 10;

/// Starts the thread of a context, once. If the system refuses a thread, only calls of
/// `io_getevents` reap.
pub(crate) fn start(context: &Arc<Context>) {
    context.service.call_once(|| {
        let of_thread = Arc::clone(context);
        let thread = thread::Builder::new().name("forebay-aio".into()).stack_size(STACK);
        // The program's handlers run on its own threads.
        let _ = program::without_signals(|| thread.spawn(move || of_thread.serve()));
    });
}

impl Context {
    fn serve(&self) {
        let mut events = Vec::new();
        let mut state = self.lock();
        while !state.is_gone {
            let nr_calls = state.nr_calls;
            let is_reader;
            (state, is_reader) = self.wait_for_need(state);
            if state.is_gone {
                break;
            }
            // The next I/O may come soon, so the thread waits for its end even if there is none.
            let is_idle = loop {
                state.nr_inside = state.nr_inside.wrapping_add(1);
                state.is_serving = true;
                state = self.release_due(state, 0);
                let held = self.time_to_release(&state);
                let timeout = held.into_iter().chain([IDLE_MAX]).min();
                drop(state);
                let wait = Wait { min: 1, timeout, mask: None };
                // An error is the end of a wait.
                let _ = self.take_from_kernel(wait, NR_AT_ONCE, &mut events);
                state = self.lock();
                state.is_serving = false;
                state = self.process(state, &events);
                let is_idle = events.is_empty() && state.nr_out == 0 && held.is_none();
                self.leave(state);
                state = self.lock();
                let is_called = state.nr_waiting > 0 || state.nr_calls != nr_calls;
                let is_needed = is_reader || state.has_eventfd;
                if is_idle || is_called || !is_needed || state.is_gone {
                    break is_idle;
                }
            };
            if is_idle && state.nr_out == 0 && !state.is_gone {
                state = self.sleep(state);
            }
        }
    }

    /// Waits until the program needs the thread, or the context has ended. Returns whether the
    /// program is a reader.
    fn wait_for_need<'a>(&'a self, mut state: Locked<'a>) -> (Locked<'a>, bool) {
        let mut patience = PATIENCE;
        // The head of the ring after the last look, which only calls move for most programs.
        let mut before = (self.ring.head_index(), state.nr_calls);
        loop {
            if state.is_gone || state.has_eventfd && state.nr_waiting == 0 {
                return (state, false);
            }
            let (nr_posted, is_busy) = (state.nr_posted, state.nr_out > 0);
            if std::mem::take(&mut state.kick_failed) && self.ring.len() > 0 {
                self.kick(&mut state);
            }
            let is_held = state.stream.take_fresh();
            let is_short = is_held || state.kick_failed;
            let time = if is_short { PATIENCE } else { patience };
            state.long_pause = time > PATIENCE;
            state = match is_short || is_busy && !state.has_eventfd {
                true => self.pause(state, time),
                false => self.sleep(state),
            };
            state.long_pause = false;
            if is_held && state.stream.nr_held() > 0 {
                state.nr_inside = state.nr_inside.wrapping_add(1);
                state = self.release_due(state, 0);
                self.leave(state);
                state = self.lock();
            }
            let now = (self.ring.head_index(), state.nr_calls);
            let is_called = now.1 != before.1 || state.nr_waiting > 0;
            let is_moved = now.0 != before.0;
            before = now;
            if is_called {
                patience = (2 * patience).min(PATIENCE_MAX);
            } else if is_moved && state.nr_out > 0 {
                return (state, true);
            } else if state.nr_out == 0
                || !is_busy
                || self.ring.len() > 0 && patience < PATIENCE_MAX
            {
                // A program that waits for several events in the ring gets them late.
                patience = (2 * patience).min(PATIENCE_MAX);
            } else if state.nr_posted == nr_posted && !state.has_eventfd {
                return (state, false);
            }
        }
    }

    /// Waits for some time.
    fn pause<'a>(&'a self, state: Locked<'a>, time: Duration) -> Locked<'a> {
        let woken = self.wake_service.wait_timeout(state, time);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until there may be work.
    fn sleep<'a>(&'a self, mut state: Locked<'a>) -> Locked<'a> {
        state.service_sleeps = true;
        let woken = self.wake_service.wait(state);
        let mut state = woken.unwrap_or_else(PoisonError::into_inner);
        state.service_sleeps = false;
        state
    }
}
