//! Whether the turns of a disk need the time.
//!
//! A disk that records no latencies and has no deadlines saves the clock read of each I/O. A
//! scheduler and owners need the time, and both can be added while the disk is in use. A thread
//! that has loaded the flag before that passes the time 0 once more. A scheduler replaces it by
//! that of its last turn, and for a limit it counts as the time when the limit was set. So the flag
//! carries no synchronization, and models need not see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that all threads of a disk share.
#[derive(Clone, Debug)]
pub(crate) struct Timed(Arc<AtomicBool>);

impl Timed {
    pub(crate) fn new(is_timed: bool) -> Timed {
        Timed(Arc::new(AtomicBool::new(is_timed)))
    }

    #[inline]
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, is_timed: bool) {
        self.0.store(is_timed, Ordering::Relaxed);
    }
}
