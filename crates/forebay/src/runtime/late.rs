//! List of a disk's overdue requests that the user has not read yet.

use crate::runtime::failures::Failures;
use forebay_core::{LateRequest, LateRequests};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many requests are kept. Older ones are dropped.
const NR_KEPT: usize = 256;

/// The list of one disk.
#[derive(Debug)]
pub(crate) struct LateList {
    /// Reports the requests as events, too.
    failures: Failures,
    /// Whether the list may have entries. Relaxed: a hint, so that readers need no lock.
    has_some: AtomicBool,
    list: Mutex<VecDeque<LateRequest>>,
}

impl LateList {
    /// Creates an empty list.
    pub(crate) fn new(failures: Failures) -> LateList {
        LateList { failures, has_some: AtomicBool::new(false), list: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<LateRequest>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns all entries, oldest first.
    pub(crate) fn take(&self) -> Vec<LateRequest> {
        match self.has_some.load(Ordering::Relaxed) {
            false => Vec::new(),
            true => {
                let mut list = self.lock();
                self.has_some.store(false, Ordering::Relaxed);
                list.drain(..).collect()
            }
        }
    }
}

impl LateRequests for LateList {
    fn note(&self, late: LateRequest) {
        self.failures.overdue(&late);
        let mut list = self.lock();
        if list.len() == NR_KEPT {
            list.pop_front();
        }
        list.push_back(late);
        self.has_some.store(true, Ordering::Relaxed);
    }
}
