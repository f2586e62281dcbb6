//! Thread that checks that an image still has its exclusive lock.
//!
//! librbd reports a lost lock only to the next write. A disk that only reads, or is idle, would not
//! detect the loss. So this thread checks the owner at intervals.

use super::image::Image;
use crate::sys::fork::Origin;
use std::fmt;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two checks. Each is one operation at the OSD of the image's header.
const PERIOD: Duration = Duration::from_secs(2);

/// The thread of an image. Dropping it ends the thread.
pub(super) struct LockWatch {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    origin: Origin,
}

#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    /// Waits for the next check. Returns whether the thread must end.
    fn wait(&self) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wake.wait_timeout_while(is_set, PERIOD, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_one();
    }
}

impl LockWatch {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns the system's error if it cannot start one.
    pub(super) fn start(image: Arc<Image>) -> io::Result<LockWatch> {
        let stop = Arc::<Stop>::default();
        let until = Arc::clone(&stop);
        let check = move || {
            while !image.is_gone() && !until.wait() {
                image.check_lock();
            }
        };
        let thread = thread::Builder::new().name(String::from("forebay-rbd")).spawn(check)?;
        Ok(LockWatch { stop, thread: Some(thread), origin: Origin::here() })
    }
}

impl Drop for LockWatch {
    fn drop(&mut self) {
        if self.origin.is_elsewhere() {
            // The thread is one of the parent.
            mem::forget(self.thread.take());
            return;
        }
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for LockWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockWatch").finish_non_exhaustive()
    }
}
