//! Rather no process than one whose memory a device still writes to, or whose disk nobody turns.

/// Ends the process if a panic drops it: held where unwinding would free memory in flight.
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

    /// From here on, unwinding ends the process.
    pub(crate) fn arm() -> AbortOnUnwind {
        AbortOnUnwind(())
    }

    /// The danger is over.
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}
