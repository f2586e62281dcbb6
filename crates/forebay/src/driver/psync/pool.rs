//! Thread pool of a device, which makes the calls of all its queues.
//!
//! The pool starts without threads. It starts another thread, up to a limit, when a queue is listed
//! and no thread is idle. A thread that takes a call and leaves others lists the queue again. So a
//! batch costs its submitter one wake-up, and the threads wake each other. A thread stays with a
//! queue that has calls, but goes back to the list after a while, so that other queues get their
//! turn.
// It blocks signals in its threads.
#![allow(unsafe_code)]

use super::call::Call;
use super::queue::Queue;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The number of calls that a thread makes for one queue before it checks the list for another.
const NR_CALLS: u32 = 16;

/// Dropping this ends the threads. No calls are left then, because queues are drained first.
#[derive(Debug)]
pub(in crate::driver) struct Pool(Arc<Threads>);

#[derive(Debug)]
struct Threads {
    state: Mutex<State>,
    work: Condvar,
    nr_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Queues with calls that no thread has begun, longest waiting first.
    listed: VecDeque<Arc<Queue>>,
    /// Threads that sleep, or were woken and do not run yet.
    nr_idle: usize,
    threads: Vec<JoinHandle<()>>,
    is_closing: bool,
}

impl Pool {
    /// Creates a pool of at most `nr_max` threads.
    pub(in crate::driver) fn new(nr_max: usize) -> Pool {
        Pool(Arc::new(Threads { state: Mutex::default(), work: Condvar::new(), nr_max }))
    }

    /// Makes the threads begin the calls of a queue.
    pub(in crate::driver) fn begin(&self, queue: &Arc<Queue>) {
        if queue.mark_listed() {
            self.list(queue);
        }
    }

    /// Adds a queue with calls, which is marked as listed, to the list.
    pub(in crate::driver) fn list(&self, queue: &Arc<Queue>) {
        Threads::list(&self.0, queue);
    }

    /// Returns the number of threads.
    #[cfg(test)]
    pub(super) fn nr_threads(&self) -> usize {
        self.0.lock().threads.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closing = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.0.work.notify_all();
        for thread in threads {
            // A thread that panicked has either aborted the process or done no harm.
            let _ = thread.join();
        }
    }
}

impl Threads {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of this file panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(self: &Arc<Threads>, queue: &Arc<Queue>) {
        let mut state = self.lock();
        state.listed.push_back(Arc::clone(queue));
        if state.listed.len() <= state.nr_idle {
            drop(state);
            self.work.notify_one();
        } else if state.threads.len() < self.nr_max {
            let threads = Arc::clone(self);
            let name = String::from("forebay-psync");
            match thread::Builder::new().name(name).spawn(move || threads.work()) {
                Ok(thread) => state.threads.push(thread),
                // No further thread can start: the existing ones make the calls. If there are none,
                // the caller makes them.
                Err(_) if !state.threads.is_empty() => {}
                Err(_) => {
                    state.listed.clear();
                    drop(state);
                    run_all(queue);
                }
            }
        }
    }

    /// Runs a thread of the pool.
    fn work(self: Arc<Threads>) {
        block_signals();
        while let Some(queue) = self.next_queue() {
            self.serve(&queue);
        }
    }

    /// Waits for a queue with calls. Returns `None` when the pool closes.
    fn next_queue(&self) -> Option<Arc<Queue>> {
        let mut state = self.lock();
        loop {
            if let Some(queue) = state.listed.pop_front() {
                return Some(queue);
            }
            if state.is_closing {
                return None;
            }
            state.nr_idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.nr_idle -= 1;
        }
    }

    /// Makes calls of a queue.
    fn serve(self: &Arc<Threads>, queue: &Arc<Queue>) {
        let mut ran = None;
        for nth in 0..NR_CALLS {
            let (call, more) = queue.next(ran.take(), nth == 0);
            if more {
                self.list(queue);
            }
            let Some(call): Option<Call> = call else { return };
            ran = Some(queue.run(call));
        }
        if let Some(ran) = ran
            && queue.put(ran)
        {
            self.list(queue);
        }
    }
}

/// Makes all calls of a queue on this thread. The queue is marked as listed but is on no list.
#[cold]
fn run_all(queue: &Arc<Queue>) {
    let mut ran = None;
    while let (Some(call), _) = queue.next(ran.take(), true) {
        ran = Some(queue.run(call));
    }
}

/// Blocks all signals, which belong to the program's own threads.
fn block_signals() {
    // SAFETY: all zeroes is a valid value of this plain structure, and the call fills it in. The
    // other arguments are numbers.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}
