//! Virtual clock of a model, which advances only when the model advances it or reads it.
//!
//! A model checker repeats a run step by step. With a real clock the runs would differ.

use std::cell::Cell;

thread_local! {
    /// The time, in a model that has its own. Both checkers run all threads of a model in one
    /// thread of the process.
    static NOW_NS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The time of a model, until it is dropped.
pub(crate) struct ModelTime(());

impl ModelTime {
    /// Begins at time 1. Until the result is dropped, each reading of the layer's clock is 1 ns
    /// after the previous one.
    pub(crate) fn begin() -> ModelTime {
        NOW_NS.set(Some(1));
        ModelTime(())
    }

    /// Lets time pass, until `now_ns`. Time never goes back.
    pub(crate) fn pass(&self, now_ns: u64) {
        NOW_NS.set(NOW_NS.get().max(Some(now_ns)));
    }
}

impl Drop for ModelTime {
    fn drop(&mut self) {
        NOW_NS.set(None);
    }
}

/// Returns the present time, in a model that has its own.
pub(crate) fn now_ns() -> Option<u64> {
    NOW_NS.get()
}

/// Returns the present time, in a model that has its own, and lets a nanosecond pass.
pub(super) fn next_ns() -> Option<u64> {
    let now_ns = NOW_NS.get()?;
    NOW_NS.set(Some(now_ns + 1));
    Some(now_ns)
}
