//! An export as an owner of I/O: its limits and its priority.
//!
//! The owner is made when the export first gets a limit. Until then the I/O of its disk does not
//! pass through the queues of owners, and costs no more than without this module.

use forebay::{Disk, Limits, Origin, Owner, OwnerError, OwnerStats, Priority};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The limits and the priority of an export.
#[derive(Debug)]
pub(crate) struct Tenant {
    disk: Disk,
    /// The name of the owner.
    name: String,
    priority: Priority,
    owner: OnceLock<Owner>,
    /// The limits as they were set: a burst may be the default.
    limits: Mutex<Limits>,
}

impl Tenant {
    /// Creates the tenant of the export with this name.
    pub(crate) fn new(disk: &Disk, export: &str, priority: Priority) -> Tenant {
        let (disk, name) = (disk.clone(), format!("export:{export}"));
        let limits = Mutex::default();
        Tenant { disk, name, priority, owner: OnceLock::new(), limits }
    }

    /// Returns the origin of the export's I/O.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        let origin = self.owner.get().map_or(Origin::NONE, Owner::origin);
        origin.with_priority(self.priority)
    }

    /// Returns the limits, as they were set.
    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the limits. I/O that waits is checked against the new ones.
    ///
    /// # Errors
    /// Fails if a burst has no rate, or if the disk can have no owners. Nothing is changed then.
    pub(crate) fn change_limits(&self, change: impl FnOnce(&mut Limits)) -> Result<(), OwnerError> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = *limits;
        change(&mut new);
        self.apply(&new)?;
        *limits = new;
        Ok(())
    }

    /// Passes limits to the owner, which is made for the first of them.
    fn apply(&self, limits: &Limits) -> Result<(), OwnerError> {
        // Before the owner is made.
        limits.check()?;
        let owner = match self.owner.get() {
            Some(owner) => owner,
            None if *limits == Limits::default() => return Ok(()),
            None => {
                let owner = self.disk.owner(&self.name)?;
                self.owner.get_or_init(|| owner)
            }
        };
        owner.set_limits(limits)
    }

    /// Removes all limits, so that no request in flight waits for one.
    pub(crate) fn lift_limits(&self) {
        self.change_limits(|limits| *limits = Limits::default())
            .expect("no limits are good limits");
    }

    /// Returns the counters of the owner. All are 0 until the export gets a limit.
    pub(crate) fn stats(&self) -> OwnerStats {
        self.owner.get().map(Owner::stats).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::Rate;

    #[test]
    fn export_is_an_owner_once_it_has_a_limit() {
        let disk = Disk::open("ram:1M").expect("a disk");
        let tenant = Tenant::new(&disk, "a", Priority::default());
        tenant.change_limits(|_| {}).expect("good limits");
        assert_eq!((tenant.origin(), disk.owners().len()), (Origin::NONE, 0));
        let mut limits = Limits::default();
        limits.both.iops = Rate { per_s: 5, burst: Some(1) };
        tenant.change_limits(|all| *all = limits).expect("good limits");
        assert_eq!((tenant.origin().owner(), tenant.limits()), (1, limits));
        assert_eq!(disk.owners()[0].name(), "export:a");
        tenant.lift_limits();
        let owners = disk.owners();
        assert_eq!((owners[0].limits(), owners.len()), (Limits::default(), 1));
    }
}
