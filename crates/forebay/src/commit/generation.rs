//! Those who share a sync: how they wait, and how they are woken.
//!
//! Threads sleep on a condition variable of their generation, so the end of a sync wakes those it
//! was for by one call, and nobody of the next generation but the one that is to lead. Their mutex
//! is the generation's too: who is woken is not in the way of those who take tickets.
//!
//! A generation's lock is taken under that of the state, or alone; never the other way round.
//! Wakers are code of others: they are woken, cloned and dropped under no lock.

use super::CommitError;
use crate::runtime::primitive::{Condvar, Mutex, lock};
use std::sync::PoisonError;
use std::task::Waker;

/// What became of a sync.
pub(super) type Outcome = Result<(), CommitError>;

#[derive(Debug)]
pub(super) struct Generation {
    waiters: Mutex<Waiters>,
    /// There is an outcome, or a call.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiters {
    outcome: Option<Outcome>,
    /// One of the threads is to lead, and has not heard of it yet.
    is_called: bool,
    /// Threads that sleep, or are about to.
    nr_threads: usize,
    /// Tasks, each at the place that it was told.
    tasks: Vec<Option<Waker>>,
}

/// Why a thread sleeps no more.
#[derive(Debug)]
pub(super) enum Woken {
    Ended(Outcome),
    /// It is the one to lead.
    Called,
}

impl Generation {
    pub(super) fn new() -> Generation {
        Generation { waiters: Mutex::new(Waiters::default()), changed: Condvar::new() }
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        lock(&self.waiters).outcome.clone()
    }

    /// The calling thread is about to [`sleep`](Generation::sleep).
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
            // Who has just come may take the call of one that is being woken: it is awake.
            if std::mem::take(&mut waiters.is_called) {
                break Woken::Called;
            }
            waiters = self.changed.wait(waiters).unwrap_or_else(PoisonError::into_inner);
        };
        waiters.nr_threads -= 1;
        woken
    }

    /// Calls one of the threads to lead. False: there is none.
    pub(super) fn call(&self) -> bool {
        let mut waiters = lock(&self.waiters);
        waiters.is_called = waiters.nr_threads > 0;
        if waiters.is_called {
            self.changed.notify_one();
        }
        waiters.is_called
    }

    /// Sets the outcome. Follow it by [`wake_threads`](Generation::wake_threads), under no
    /// lock.
    pub(super) fn end(&self, outcome: &Outcome) {
        let mut waiters = lock(&self.waiters);
        assert!(waiters.outcome.is_none(), "a generation ends twice");
        waiters.outcome = Some(outcome.clone());
    }

    /// Wakes all threads that wait for the outcome. The tasks are for the caller to wake, once all
    /// threads are: their wakers are code of others, and may panic.
    pub(super) fn wake_threads(&self) -> Tasks {
        self.changed.notify_all();
        Tasks(std::mem::take(&mut lock(&self.waiters).tasks))
    }

    /// The outcome; or the task is woken when there is one. It waits at `place`, if it has one.
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
        // The waker of an earlier poll, if there was one, is dropped here.
        drop(new);
        None
    }

    /// The task that waits at that place waits no more.
    pub(super) fn leave(&self, place: usize) {
        let mut waiters = lock(&self.waiters);
        // Once all were woken there are no places.
        let waker = waiters.tasks.get_mut(place).and_then(Option::take);
        drop(waiters);
        drop(waker);
    }
}

/// Tasks to be woken when this is dropped, all of them even if waking one panics.
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
