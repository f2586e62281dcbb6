//! The service thread of a context: it reaps for programs that make no call for it.
//!
//! Programs that wait for an eventfd, or read the ring, call no `io_getevents`. Where no eventfd
//! was seen, the thread first gives the program some time for its own call, so that it costs a
//! program nothing that submits and waits. A program that calls again and again gets more time.

use super::wait::NR_AT_ONCE;
use super::{Context, Locked};
use crate::kernel::Wait;
use crate::program;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

/// The time that a program without an eventfd has for its own call, at first and at most.
const PATIENCE: Duration = Duration::from_millis(1);
const PATIENCE_MAX: Duration = Duration::from_millis(16);

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
        let (mut events, mut patience) = (Vec::new(), PATIENCE);
        let mut state = self.lock();
        while !state.is_gone {
            let is_due = state.has_eventfd && state.nr_waiting == 0;
            if !is_due {
                let (nr_calls, nr_posted, is_busy) =
                    (state.nr_calls, state.nr_posted, state.nr_out > 0);
                // While the program's reads are held, this thread bounds the time.
                let time = if state.stream.was_fresh() { PATIENCE } else { patience };
                state = match is_busy && (!state.has_eventfd || time < patience) {
                    true => self.pause(state, time),
                    false => self.sleep(state),
                };
                let is_called = state.nr_calls != nr_calls || state.nr_waiting > 0;
                let is_idle = state.nr_out == 0 || state.nr_posted != nr_posted;
                patience = if is_called { (2 * patience).min(PATIENCE_MAX) } else { PATIENCE };
                if state.has_eventfd || is_called || is_idle || !is_busy || state.is_gone {
                    continue;
                }
            }
            // The next I/O may come soon, so the thread waits for its end even if there is none.
            let nr_calls = state.nr_calls;
            let is_idle = loop {
                state.nr_inside += 1;
                let wait = Wait { min: 1, timeout: Some(IDLE_MAX), mask: None };
                (state, _) = self.wait_in_kernel(state, wait, NR_AT_ONCE, &mut events);
                let is_idle = events.is_empty() && state.nr_out == 0;
                self.leave(state);
                state = self.lock();
                let is_called = state.nr_waiting > 0 || state.nr_calls != nr_calls;
                if is_idle || is_called || state.is_gone {
                    break is_idle;
                }
            };
            if is_idle && state.nr_out == 0 && !state.is_gone {
                state = self.sleep(state);
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
