//! Abort guard: ends the process instead of freeing memory in flight or losing a token.

/// Ends the process if a panic drops it. Held while unwinding would free memory in flight.
#[derive(Debug)]
pub(crate) struct AbortOnUnwind(());

impl AbortOnUnwind {
    /// Runs `work`, which must return.
    pub(crate) fn guard<T>(work: impl FnOnce() -> T) -> T {
        let abort = AbortOnUnwind::arm();
        let result = work();
        abort.disarm();
        result
    }

    /// Arms the guard: from here on, unwinding ends the process.
    pub(crate) fn arm() -> AbortOnUnwind {
        AbortOnUnwind(())
    }

    /// Disarms the guard.
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}
