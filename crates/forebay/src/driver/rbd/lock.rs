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

/// The time after which a client that is not the owner is checked again. librbd acquires its lock
/// anew when it has registered its watch of the image again, and is not the owner for a moment.
const AGAIN: Duration = Duration::from_millis(200);

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
    fn wait(&self, period: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wake.wait_timeout_while(is_set, period, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_one();
    }
}

/// Checks at intervals, until two checks in a row find no owner. Returns false if the thread must
/// end before.
fn wait_for_loss(stop: &Stop, period: Duration, mut is_owner: impl FnMut() -> bool) -> bool {
    let mut was_owner = true;
    while !stop.wait(if was_owner { period } else { AGAIN.min(period) }) {
        let is_owner = is_owner();
        if !is_owner && !was_owner {
            return true;
        }
        was_owner = is_owner;
    }
    false
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
            if wait_for_loss(&until, PERIOD, || image.is_owner()) {
                image.set_lock_lost();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of checks, and whether the lock was lost.
    fn watched(answers: &[bool]) -> (usize, bool) {
        let (stop, mut nr) = (Stop::default(), 0);
        let lost = wait_for_loss(&stop, Duration::from_millis(1), || {
            let is_owner = answers.get(nr).copied();
            nr += 1;
            is_owner.unwrap_or_else(|| {
                stop.set();
                true
            })
        });
        (nr, lost)
    }

    #[test]
    fn lock_is_lost_after_two_checks_in_a_row_without_it() {
        assert_eq!(watched(&[true, false, false, true]), (3, true));
        assert_eq!(watched(&[false, true, false, true]), (5, false));
    }
}
