//! The flag by which a signal ends a run early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// Set by an interrupt or a termination signal.
#[derive(Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that the first signal sets. A second one ends the process at once.
    pub(crate) fn on_signals() -> Result<Self, Failure> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            let flag = || Arc::clone(&stop.0);
            // The order matters: at the first signal the flag is not set yet when this looks at it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag())
                .and_then(|_| signal_hook::flag::register(signal, flag()))
                .map_err(|error| Failure::Run(format!("signal handler: {error}")))?;
        }
        Ok(stop)
    }

    /// Whether a signal has come.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        // The flag stands for itself: nothing else is published with it.
        self.0.load(Ordering::Relaxed)
    }

    /// One that is set.
    #[cfg(test)]
    pub(crate) fn set() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}
