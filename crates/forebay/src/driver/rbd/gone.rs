//! State of an image that is gone for good.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an image is gone, and why.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Relaxed: a command that is issued because an old value was loaded fails in the cluster, as
    /// it would have before.
    is_set: AtomicBool,
    why: OnceLock<&'static str>,
}

impl Gone {
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Returns the first reason.
    pub(super) fn why(&self) -> Option<&'static str> {
        self.why.get().copied()
    }

    pub(super) fn set(&self, why: &'static str) {
        let _ = self.why.set(why);
        self.is_set.store(true, Ordering::Relaxed);
    }
}
