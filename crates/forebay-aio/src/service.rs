//! The service thread of a context: it reaps while no thread is in `io_getevents`.
//!
//! Programs that wait for an eventfd, or read the ring, make no call that reaps. Where no eventfd
//! was seen, the thread gives the program a millisecond to call `io_getevents`, so that it costs a
//! program nothing that submits and waits.

use crate::context::Context;
use crate::program;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

/// The time that a program without an eventfd has for its own call.
const PATIENCE: Duration = Duration::from_millis(1);

/// The number of such times without I/O after which the thread sleeps until it is woken.
const IDLE_MAX: u32 = 100;

/// The longest wait in the kernel.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The size of the thread's stack in bytes.
const STACK: usize = 256 << 10;

/// Starts the thread of a context, once. If the system refuses a thread, only calls of
/// `io_getevents` reap.
pub(crate) fn start(context: &Arc<Context>) {
    context.service.call_once(|| {
        let of_thread = Arc::clone(context);
        let thread = thread::Builder::new().name("forebay-aio".into()).stack_size(STACK);
        // The program's handlers run on its own threads.
        let _ = program::without_signals(|| thread.spawn(move || serve(&of_thread)));
    });
}

fn serve(context: &Context) {
    let mut nr_idle = 0;
    let mut state = context.lock();
    while !state.is_gone {
        let is_busy = state.nr_out > 0;
        nr_idle = if is_busy { 0 } else { nr_idle + 1 };
        if nr_idle > IDLE_MAX {
            state.service_sleeps = true;
            let woken = context.wake_service.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.service_sleeps = false;
            nr_idle = 0;
            continue;
        }
        let is_due = is_busy && !state.is_reaping && state.nr_waiting == 0;
        if is_due && state.has_eventfd {
            (state, _) = context.reap(state, 1, Some(WAIT_MAX));
            continue;
        }
        let nr_posted = state.nr_posted;
        let woken = context.wake_service.wait_timeout(state, PATIENCE);
        state = woken.unwrap_or_else(PoisonError::into_inner).0;
        let is_left = state.nr_out > 0 && state.nr_posted == nr_posted;
        if is_due && is_left && !state.is_reaping && state.nr_waiting == 0 && !state.is_gone {
            (state, _) = context.reap(state, 1, Some(PATIENCE));
        }
    }
}
