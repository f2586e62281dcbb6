//! An export as an owner of I/O: its limits, its priority, and its clients.
//!
//! The owner is made when the export, or its clients, first get a limit. Until then the I/O of its
//! disk does not pass through the queues of owners, and costs no more than without this module.
//! Owners of clients are below it ([`clients`](crate::clients)).

use crate::clients::{ClientStats, Clients, Place, SharedOwner, add};
use crate::export_limits::{ClientLimits, ExportLimits};
use forebay::{Disk, Origin, Owner, OwnerError, OwnerStats, Priority};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Changes of limits: a new value for each key, or `None` for its default.
pub(crate) type Changes = [(String, Option<String>)];

/// The limits and the priority of an export, and its clients.
#[derive(Debug)]
pub(crate) struct Tenant {
    disk: Disk,
    /// The name of the owner.
    name: String,
    priority: Priority,
    owner: OnceLock<Owner>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The limits as they were set: a burst may be the default.
    limits: ExportLimits,
    clients: Clients,
    /// Limits were lifted for good, because the server ends.
    is_lifted: bool,
}

impl Tenant {
    /// Creates the tenant of the export with this name.
    pub(crate) fn new(disk: &Disk, export: &str, priority: Priority) -> Tenant {
        let (disk, name) = (disk.clone(), format!("export:{export}"));
        Tenant { disk, name, priority, owner: OnceLock::new(), state: Mutex::default() }
    }

    /// Returns the origin of I/O of a client: its owner, or that of the export if it has none.
    #[inline]
    pub(crate) fn origin_of(&self, client: &SharedOwner) -> Origin {
        let origin = match client.owner() {
            0 => self.owner.get().map_or(Origin::NONE, Owner::origin),
            owner => Origin::NONE.with_owner(owner),
        };
        origin.with_priority(self.priority)
    }

    /// Returns the limits, as they were set.
    pub(crate) fn limits(&self) -> ExportLimits {
        self.lock().limits
    }

    /// Sets all limits. I/O that waits is checked against the new ones.
    ///
    /// # Errors
    /// Fails if a burst has no rate, or if the disk can have no owners, or no weights. Nothing is
    /// changed then.
    pub(crate) fn set_limits(&self, limits: &ExportLimits) -> Result<(), OwnerError> {
        self.apply(&mut self.lock(), limits)
    }

    /// Changes some limits, as [`set_limits`](Tenant::set_limits) does.
    pub(crate) fn change_limits(&self, changes: &Changes) -> Result<(), OwnerError> {
        let mut state = self.lock();
        let mut new = state.limits;
        new.change(changes)?;
        self.apply(&mut state, &new)
    }

    /// Passes limits to the owners, which are made for the first of them.
    fn apply(&self, state: &mut State, limits: &ExportLimits) -> Result<(), OwnerError> {
        // Before the owner is made.
        limits.check()?;
        if self.owner.get().is_none() && *limits == ExportLimits::default() {
            return Ok(());
        }
        let owner = self.owner_for(&limits.client)?;
        owner.set_limits(&limits.all)?;
        state.clients.apply(&owner, &limits.client);
        state.limits = *limits;
        Ok(())
    }

    /// Returns the owner of the export, below which clients may have these limits.
    fn owner_for(&self, client: &ClientLimits) -> Result<Owner, OwnerError> {
        if let Some(owner) = self.owner.get() {
            check_weight(owner, client)?;
            return Ok(owner.clone());
        }
        // Another server of the process may have an export of this name on the same disk.
        let is_new = self.disk.owners().iter().all(|owner| owner.name() != self.name);
        let owner = self.disk.owner(&self.name)?;
        if let Err(error) = check_weight(&owner, client) {
            // It would cost each I/O something, although the limits are refused.
            if is_new {
                let _ = owner.remove();
            }
            return Err(error);
        }
        Ok(self.owner.get_or_init(|| owner).clone())
    }

    /// Changes limits of one client, while it is connected. Its keys have no prefix.
    ///
    /// # Errors
    /// Returns an error as [`set_limits`](Tenant::set_limits) does, or if there is no such client.
    pub(crate) fn change_client(&self, id: u64, changes: &Changes) -> Result<(), String> {
        let state = &mut *self.lock();
        let limits = state.clients.limits_of(id, &state.limits.client);
        let mut limits = limits.ok_or_else(|| {
            let ids = state.clients.ids();
            let ids = if ids.is_empty() { "none".to_owned() } else { ids };
            format!("client {id} is not connected to this export; connected: {ids}")
        })?;
        if changes.is_empty() || state.is_lifted {
            return Ok(());
        }
        limits.change(changes).map_err(|bad| bad.to_string())?;
        let owner = self.owner_for(&limits).map_err(|error| error.to_string())?;
        state.clients.set_own(id, limits);
        state.clients.apply(&owner, &state.limits.client);
        Ok(())
    }

    /// Removes all limits for good, so that no request in flight waits for one.
    pub(crate) fn lift_limits(&self) {
        let state = &mut *self.lock();
        state.is_lifted = true;
        state.clients.lift();
        self.apply(state, &ExportLimits::default()).expect("no limits are good limits");
    }

    /// Adds a client. It has an owner if clients have limits.
    pub(crate) fn connect(self: &Arc<Tenant>, id: u64, place: Place) -> Seat {
        let submitter = Arc::clone(&place.submitter);
        let state = &mut *self.lock();
        let parent = self.owner.get().filter(|_| !state.is_lifted);
        state.clients.connect(id, place, parent, &state.limits.client);
        Seat { tenant: Arc::clone(self), id, submitter, stage: Stage::Open }
    }

    /// Returns the counters of the export with all its clients, present and former. All are 0 until
    /// the export or its clients get a limit.
    pub(crate) fn stats(&self) -> OwnerStats {
        let mut stats = self.owner.get().map(Owner::stats).unwrap_or_default();
        add(&mut stats, &self.lock().clients.stats());
        stats
    }

    /// Returns up to `max` connected clients, the oldest first, and the number of all.
    pub(crate) fn clients(&self, max: usize) -> (Vec<ClientStats>, usize) {
        self.lock().clients.list(max)
    }

    /// Returns the owner of the export. `None` until the export or its clients get a limit.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.get()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that the disk can have weights, if clients have some.
fn check_weight(owner: &Owner, client: &ClientLimits) -> Result<(), OwnerError> {
    if client.weight.is_some() { owner.set_weight(owner.weight()) } else { Ok(()) }
}

/// A client of an export, from its choice of the export until its last I/O has ended.
#[derive(Debug)]
pub(crate) struct Seat {
    tenant: Arc<Tenant>,
    id: u64,
    submitter: Arc<SharedOwner>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The client is gone; I/O of the owner with this number may be in flight.
    Left(Option<u32>),
}

impl Seat {
    /// Returns the origin of the client's I/O.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        self.tenant.origin_of(&self.submitter)
    }

    /// Records that the client is gone. Dropping this records that its I/O has ended.
    pub(crate) fn leave(&mut self) {
        if self.stage == Stage::Open {
            let left = self.tenant.lock().clients.leave(self.id);
            self.stage = Stage::Left(left);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
        if let Stage::Left(Some(owner)) = self.stage {
            self.tenant.lock().clients.drained(owner);
        }
    }
}

#[cfg(test)]
mod tests;
