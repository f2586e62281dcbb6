//! Rather no process than one whose memory a device still writes to.

/// Ends the process if a panic drops it: held where unwinding would free memory in flight.
#[derive(Debug)]
pub(crate) struct AbortOnUnwind(());

impl AbortOnUnwind {
    /// Runs `work`, which must return.
    pub(crate) fn guard<T>(work: impl FnOnce() -> T) -> T {
        let abort = AbortOnUnwind(());
        let result = work();
        std::mem::forget(abort);
        result
    }
}

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}
