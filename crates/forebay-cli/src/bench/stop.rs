//! The flag with which a signal ends a run early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// Set by an interrupt or a termination signal.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    signal: Arc<AtomicBool>,
    /// Whether no further stage begins, because a job has ended with `exit_what=all`.
    no_more_stages: AtomicBool,
}

impl Stop {
    /// Returns a flag that the first signal sets. A second signal ends the process at once.
    pub(crate) fn on_signals() -> Result<Self, Failure> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            let flag = || Arc::clone(&stop.signal);
            // The order matters: at the first signal, the conditional shutdown sees the flag unset.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag())
                .and_then(|_| signal_hook::flag::register(signal, flag()))
                .map_err(|error| {
                    Failure::Run(format!("cannot install a signal handler: {error}"))
                })?;
        }
        Ok(stop)
    }

    /// Returns whether a signal has arrived.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        // The flag publishes no other data.
        self.signal.load(Ordering::Relaxed)
    }

    /// Prevents further stages.
    pub(crate) fn end_stages(&self) {
        self.no_more_stages.store(true, Ordering::Relaxed);
    }

    /// Returns whether no further stage may begin.
    pub(crate) fn ends_stages(&self) -> bool {
        self.is_set() || self.no_more_stages.load(Ordering::Relaxed)
    }

    /// Returns a flag that is set.
    #[cfg(test)]
    pub(crate) fn set() -> Self {
        Self { signal: Arc::new(AtomicBool::new(true)), ..Self::default() }
    }
}
