//! A generation: the callers that share a sync, their waits and their wake-ups.
//!
//! Threads sleep on a condition variable of their generation. So the end of a sync wakes its own
//! generation by one call, and of the next one only the thread that leads. The mutex belongs to the
//! generation too, so woken threads do not contend with threads that take tickets.
//!
//! A generation's lock is taken under that of the state, or alone, never the other way round.
//! Wakers are foreign code: they are woken, cloned and dropped under no lock.

use super::CommitError;
use crate::sys::primitive::{Condvar, Mutex, lock};
use std::sync::PoisonError;
use std::task::Waker;

/// The outcome of a sync.
pub(super) type Outcome = Result<(), CommitError>;

#[derive(Debug)]
pub(super) struct Generation {
    waiters: Mutex<Waiters>,
    /// Signalled when there is an outcome or a call.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiters {
    outcome: Option<Outcome>,
    /// A thread has been called to lead and has not noticed yet.
    is_called: bool,
    /// The number of threads that sleep or are about to.
    nr_threads: usize,
    /// Tasks, each at its assigned place.
    tasks: Vec<Option<Waker>>,
}

/// Why a thread stopped sleeping.
#[derive(Debug)]
pub(super) enum Woken {
    Ended(Outcome),
    /// The thread was called to lead.
    Called,
}

impl Generation {
    pub(super) fn new() -> Generation {
        Generation { waiters: Mutex::new(Waiters::default()), changed: Condvar::new() }
    }

    /// Creates a generation that has failed.
    pub(super) fn failed(error: CommitError) -> Generation {
        let waiters = Waiters { outcome: Some(Err(error)), ..Waiters::default() };
        Generation { waiters: Mutex::new(waiters), changed: Condvar::new() }
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        lock(&self.waiters).outcome.clone()
    }

    /// Announces that the calling thread is about to [`sleep`](Generation::sleep).
    pub(super) fn announce(&self) {
        lock(&self.waiters).nr_threads += 1;
    }

    /// Sleeps until there is an outcome, or the thread is called.
    pub(super) fn sleep(&self) -> Woken {
        let mut waiters = lock(&self.waiters);
        let woken = loop {
            if let Some(outcome) = &waiters.outcome {
                break Woken::Ended(outcome.clone());
            }
            // A new thread may take the call of one that is being woken: it is already awake.
            if std::mem::take(&mut waiters.is_called) {
                break Woken::Called;
            }
            waiters = self.changed.wait(waiters).unwrap_or_else(PoisonError::into_inner);
        };
        waiters.nr_threads -= 1;
        woken
    }

    /// Calls one of the threads to lead. Returns false if there is none.
    pub(super) fn call(&self) -> bool {
        let mut waiters = lock(&self.waiters);
        waiters.is_called = waiters.nr_threads > 0;
        if waiters.is_called {
            self.changed.notify_one();
        }
        waiters.is_called
    }

    /// Sets the outcome. [`wake_threads`](Generation::wake_threads) must follow, under no lock.
    pub(super) fn end(&self, outcome: &Outcome) {
        let mut waiters = lock(&self.waiters);
        assert!(waiters.outcome.is_none(), "a generation ends twice");
        waiters.outcome = Some(outcome.clone());
    }

    /// Wakes all threads that wait for the outcome. The caller wakes the returned tasks afterwards:
    /// their wakers are foreign code and may panic.
    pub(super) fn wake_threads(&self) -> Tasks {
        self.changed.notify_all();
        Tasks(std::mem::take(&mut lock(&self.waiters).tasks))
    }

    /// Returns the outcome, or registers the task to be woken for it. The task keeps its `place` if
    /// it has one.
    pub(super) fn poll(&self, place: &mut Option<usize>, waker: &Waker) -> Option<Outcome> {
        let mut new = Some(waker.clone());
        let mut waiters = lock(&self.waiters);
        if let Some(outcome) = waiters.outcome.clone() {
            *place = None;
            drop(waiters);
            return Some(outcome);
        }
        match *place {
            Some(place) => std::mem::swap(&mut waiters.tasks[place], &mut new),
            None => {
                *place = Some(waiters.tasks.len());
                waiters.tasks.push(new.take());
            }
        }
        drop(waiters);
        // This drops the waker of an earlier poll, if there was one.
        drop(new);
        None
    }

    /// Removes the task at `place`.
    pub(super) fn leave(&self, place: usize) {
        let mut waiters = lock(&self.waiters);
        // Once all tasks are woken, there are no places.
        let waker = waiters.tasks.get_mut(place).and_then(Option::take);
        drop(waiters);
        drop(waker);
    }
}

/// Tasks that are woken on drop, all of them, even if one wake-up panics.
#[must_use = "the threads are to be woken first"]
pub(super) struct Tasks(Vec<Option<Waker>>);

impl Tasks {
    fn wake(&mut self) {
        while let Some(task) = self.0.pop() {
            task.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.wake();
    }
}
