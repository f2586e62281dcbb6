//! Handles of an open image: the present one, and its predecessors.

use super::api::Handle;
use std::sync::{Mutex, PoisonError};

/// The handles of an image. An image that was opened again has several. All stay open until the
/// image is closed, because commands may use any of them.
pub(super) struct Handles(Mutex<Vec<Handle>>);

impl Handles {
    pub(super) fn new(handle: Handle) -> Handles {
        Handles(Mutex::new(vec![handle]))
    }

    /// Returns the present handle.
    pub(super) fn present(&self) -> Handle {
        let handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *handles.last().expect("the image is open")
    }

    /// Makes `handle` the present one.
    pub(super) fn replace(&self, handle: Handle) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }

    /// Takes all handles, to close them.
    pub(super) fn take(&mut self) -> Vec<Handle> {
        std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}
