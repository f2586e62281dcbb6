//! The list of a disk's owners, as its hardware contexts see it.

use crate::sys::primitive::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use forebay_core::{CostModel, HardwareContext, Owners, Policy, WeightBy};

/// The owners of a disk.
#[derive(Debug)]
pub(crate) struct OwnerList {
    owners: Mutex<Owners>,
    /// The measure of weights. Locked after the owners.
    measure: Mutex<(WeightBy, CostModel)>,
    /// The disk has or had an owner. Changes under the lock.
    is_used: AtomicBool,
}

impl OwnerList {
    /// Creates an empty list. Weights have the measure of this policy.
    pub(crate) fn new(policy: &Policy) -> OwnerList {
        OwnerList {
            owners: Mutex::default(),
            measure: Mutex::new((policy.weight_by, policy.cost)),
            is_used: AtomicBool::new(false),
        }
    }

    /// Locks the list.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Owners> {
        lock(&self.owners)
    }

    /// Locks the measure of weights.
    pub(crate) fn measure(&self) -> MutexGuard<'_, (WeightBy, CostModel)> {
        lock(&self.measure)
    }

    /// Records that the list has got an owner. The caller has locked it.
    pub(crate) fn note_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Returns whether the disk has or had an owner.
    pub(crate) fn is_used(&self) -> bool {
        // Relaxed: a thread that submits I/O of an owner has got that owner, and sees this.
        self.is_used.load(Ordering::Relaxed)
    }

    /// Passes the owners to a context, if there are or were any.
    pub(crate) fn pass_to(&self, core: &mut HardwareContext) {
        if self.is_used() {
            let owners = self.lock().clone();
            let (by, cost) = *self.measure();
            core.set_owners(owners, by, cost);
        }
    }
}
