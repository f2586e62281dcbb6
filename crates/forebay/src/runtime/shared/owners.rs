//! Changes of a disk's owners, and how they reach its hardware contexts.
//!
//! The list is under a lock, and each context has a copy. A change marks every context; the next
//! turn of a context takes the new copy. A turn of the shared context follows at once, because a
//! limit may let I/O go that waits. The owner of another context is woken if it waits in an event
//! loop; if it waits in the driver, it turns with the next completion.

use super::Shared;
use crate::error::OwnerError;
use crate::sys::clock;
use forebay_core::{
    CostModel, Emulation, Limits, Owner, OwnerId, WEIGHT_MAX, WEIGHT_MIN, WeightBy,
};
use std::sync::Arc;

impl Shared {
    /// Returns the owner with this name below `parent`, and adds it if there is none.
    pub(crate) fn owner(
        &self,
        name: &str,
        parent: Option<&Arc<Owner>>,
    ) -> Result<Arc<Owner>, OwnerError> {
        let info = self.info();
        let spec = || info.spec.to_string();
        if info.policy.emulation != Emulation::default() {
            return Err(OwnerError::Emulated { disk: spec() });
        }
        if name.is_empty() {
            return Err(OwnerError::Unnamed { disk: spec() });
        }
        let mut owners = self.owners.lock();
        if let Some(parent) = parent
            && owners.get(parent.id()).is_none_or(|found| !Arc::ptr_eq(found, parent))
        {
            let (owner, parent) = (name.to_owned(), parent.name().to_owned());
            return Err(OwnerError::Parent { owner, parent });
        }
        let parent = parent.map(|parent| parent.id());
        if let Some(found) = owners.named(name)
            && found.parent().map(|up| up.id()) == parent
        {
            return Ok(Arc::clone(found));
        }
        let owner = owners.add(name, parent, clock::now_ns())?;
        self.owners.note_used();
        // Limits need the time. Under the lock: see `update_timed`.
        self.timed.set(true);
        drop(owners);
        self.publish_owners();
        Ok(owner)
    }

    /// Returns all owners, by number.
    pub(crate) fn all_owners(&self) -> Vec<Arc<Owner>> {
        self.meters.owners()
    }

    /// Sets the limits of an owner.
    pub(crate) fn set_owner_limits(
        &self,
        owner: &Owner,
        limits: &Limits,
    ) -> Result<(), OwnerError> {
        limits.check()?;
        let owners = self.owners.lock();
        // The lock keeps other changes out.
        owner.set_limits(limits, clock::now_ns()).expect("no other thread changes limits");
        drop(owners);
        self.publish_owners();
        Ok(())
    }

    /// Sets the weight of an owner.
    pub(crate) fn set_owner_weight(&self, owner: &Owner, weight: u32) -> Result<(), OwnerError> {
        if !(WEIGHT_MIN..=WEIGHT_MAX).contains(&weight) {
            return Err(OwnerError::Weight { owner: owner.name().into(), weight });
        }
        let nr_hw_queues = self.hctxs().len();
        if nr_hw_queues > 1 {
            return Err(OwnerError::Contexts { disk: self.info().spec.to_string(), nr_hw_queues });
        }
        owner.set_weight(weight);
        self.publish_owners();
        Ok(())
    }

    /// Sets the measure of weights.
    pub(crate) fn set_weight_measure(&self, by: WeightBy, cost: CostModel) {
        *self.owners.measure() = (by, cost);
        self.publish_owners();
    }

    /// Returns the measure of weights.
    pub(crate) fn weight_measure(&self) -> (WeightBy, CostModel) {
        *self.owners.measure()
    }

    /// Removes an owner, if it is still this one that has the number.
    pub(crate) fn remove_owner(&self, id: OwnerId, owner: &Arc<Owner>) -> Result<(), OwnerError> {
        let mut owners = self.owners.lock();
        match owners.get(id) {
            Some(found) if Arc::ptr_eq(found, owner) => _ = owners.remove(id)?,
            _ => return Err(OwnerError::Removed { owner: owner.name().into() }),
        }
        drop(owners);
        self.publish_owners();
        Ok(())
    }

    /// Removes all owners before the disk is closed, so that no limit holds its I/O back.
    pub(super) fn remove_owners(&self) {
        if !self.owners.is_used() {
            return;
        }
        let mut owners = self.owners.lock();
        let mut by_level: Vec<_> =
            owners.iter().map(|owner| (std::cmp::Reverse(owner.level()), owner.id())).collect();
        by_level.sort_unstable();
        by_level.into_iter().for_each(|(_, id)| _ = owners.remove(id));
        drop(owners);
        self.publish_owners();
    }

    /// Passes the owners to each context in its next turn.
    fn publish_owners(&self) {
        self.hctxs().iter().for_each(|hctx| hctx.note_new_owners());
        self.run_for_changes();
    }
}
