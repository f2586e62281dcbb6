//! Common parts of the models: the loop over all interleavings, and a place to sleep.

use loom::sync::{Condvar, Mutex};

/// Runs `model` through all interleavings. With a bound, runs only those with at most that many
/// preemptions (switches away from a thread that could have continued).
pub(crate) fn explore(preemption_bound: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemption_bound);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// A place where a thread sleeps until another thread gives it the baton, before or after. Loom
/// fails a model in which all remaining threads sleep.
pub(crate) struct Baton {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Baton {
    pub(crate) fn new() -> Baton {
        Baton { given: Mutex::new(false), changed: Condvar::new() }
    }

    pub(crate) fn give(&self) {
        *self.given.lock().unwrap() = true;
        self.changed.notify_one();
    }

    pub(crate) fn await_it(&self) {
        let mut given = self.given.lock().unwrap();
        while !*given {
            given = self.changed.wait(given).unwrap();
        }
        *given = false;
    }
}
