//! The failures of one disk, in the order in which turns have found them.

use super::limit::RateLimit;
use crate::driver::Device;
use crate::events;
use crate::info::DiskInfo;
use crate::sys::clock;
use forebay_core::{BlockStatus, DeviceFailures, DeviceState, LateRequest, LostWrites};
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The failures of a disk. Clones share one list.
#[derive(Clone, Debug)]
pub(crate) struct Failures(Arc<List>);

struct List {
    spec: String,
    /// Why the device is gone if a request was given up.
    no_answer: String,
    /// Source of the driver's reason. Weak: contexts have this list, and readers of counters may
    /// keep contexts for longer than the disk is open.
    device: Weak<dyn Device>,
    /// Whether there are failures. Relaxed: a hint. The thread that records a failure sees it at
    /// the end of this turn, or of its next one if it is between turns.
    has_some: AtomicBool,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    found: Vec<Failure>,
    overdue: RateLimit,
}

enum Failure {
    Gone { is_given_up: bool },
    Lost(LostWrites, Option<BlockStatus>),
    Overdue(LateRequest, u64),
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failures").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Failures {
    /// Creates the empty list of a disk.
    pub(crate) fn new(info: &DiskInfo, device: &Arc<dyn Device>) -> Failures {
        Failures(Arc::new(List {
            spec: info.spec.clone(),
            no_answer: info.no_answer(),
            device: Arc::downgrade(device),
            has_some: AtomicBool::new(false),
            pending: Mutex::default(),
        }))
    }

    /// Makes this the receiver of a device's failures.
    pub(crate) fn listen_to(&self, state: &mut DeviceState) {
        state.set_failures(Arc::clone(&self.0) as Arc<dyn DeviceFailures>);
    }

    /// Records an overdue request, unless there are too many.
    pub(crate) fn overdue(&self, late: &LateRequest) {
        let mut pending = self.0.lock();
        if let Some(nr_left_out) = pending.overdue.pass(clock::now_ns()) {
            self.0.add(&mut pending, Failure::Overdue(*late, nr_left_out));
        }
    }

    /// Returns whether there are failures to be emitted.
    #[inline]
    pub(crate) fn are_pending(&self) -> bool {
        self.0.has_some.load(Ordering::Relaxed)
    }

    /// Emits the failures. The caller holds no token.
    pub(crate) fn emit(&self) {
        let found = {
            let mut pending = self.0.lock();
            self.0.has_some.store(false, Ordering::Relaxed);
            mem::take(&mut pending.found)
        };
        // The lock is released: a subscriber may do I/O on this disk, which may fail.
        for failure in found {
            self.0.emit(failure);
        }
    }
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, pending: &mut Pending, failure: Failure) {
        pending.found.push(failure);
        self.has_some.store(true, Ordering::Relaxed);
    }

    fn emit(&self, failure: Failure) {
        match failure {
            Failure::Gone { is_given_up: true } => events::gone(&self.spec, &self.no_answer),
            Failure::Gone { is_given_up: false } => {
                let reason = self.device.upgrade().and_then(|device| device.failure());
                events::gone(&self.spec, reason.as_deref().unwrap_or("a request ended as offline"));
            }
            Failure::Lost(lost, status) => events::lost(&self.spec, lost, status),
            Failure::Overdue(late, nr_left_out) => events::overdue(&self.spec, &late, nr_left_out),
        }
    }
}

impl DeviceFailures for List {
    fn gone(&self, is_given_up: bool) {
        self.add(&mut self.lock(), Failure::Gone { is_given_up });
    }

    fn lost(&self, lost: LostWrites, status: Option<BlockStatus>) {
        self.add(&mut self.lock(), Failure::Lost(lost, status));
    }
}
