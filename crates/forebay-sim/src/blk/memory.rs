//! Memory of a guest: one direction of a request.

use crate::server::Memory;
use forebay_front::blk::GuestBytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A range of the memory of a guest. Guest and device share it.
#[derive(Clone, Debug)]
pub(crate) struct GuestMemory {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// The part of it that the device has not used yet.
    first: usize,
    end: usize,
}

impl GuestMemory {
    pub(super) fn new(bytes: Vec<u8>) -> GuestMemory {
        GuestMemory { first: 0, end: bytes.len(), bytes: Arc::new(Mutex::new(bytes)) }
    }

    /// Returns the bytes. A panic elsewhere does not change them.
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy of all bytes.
    pub(super) fn copy(&self) -> Vec<u8> {
        self.bytes().clone()
    }
}

impl GuestBytes for GuestMemory {
    fn len(&self) -> u64 {
        (self.end - self.first) as u64
    }

    fn take_front(&mut self, into: &mut [u8]) {
        let to = self.first + into.len();
        assert!(to <= self.end, "a session stays within its request");
        into.copy_from_slice(&self.bytes()[self.first..to]);
        self.first = to;
    }

    fn fill_front(&mut self, from: &[u8]) {
        let to = self.first + from.len();
        assert!(to <= self.end, "a session stays within its request");
        self.bytes()[self.first..to].copy_from_slice(from);
        self.first = to;
    }
}

impl Memory for GuestMemory {
    fn with<R>(&mut self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        look(&mut self.bytes()[self.first..self.end])
    }
}
