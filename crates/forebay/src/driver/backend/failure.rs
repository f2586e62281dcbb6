//! Reason why a back end has failed, as a text for people.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The latest reason, if the back end has failed since the disk was last revived.
#[derive(Debug, Default)]
pub(super) struct Failure(Mutex<Option<String>>);

impl Failure {
    pub(super) fn set(&self, text: String) {
        *self.lock() = Some(text);
    }

    pub(super) fn get(&self) -> Option<String> {
        self.lock().clone()
    }

    /// Forgets the reason, because the disk is used again.
    pub(super) fn clear(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
