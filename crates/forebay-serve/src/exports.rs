//! The exports of a server, which may be added and removed while it runs.
//!
//! Each has an index, which threads use in the place of its name. The index of a removed export is
//! used again. An export is removed in three steps:
//!
//! 1. It is withdrawn: no client finds it any more, and each worker and device is asked to leave
//!    it.
//! 2. A worker leaves it when none of its clients uses the export, and none of their I/O is in
//!    flight. It closes its queue then. A device leaves it when its front end has disconnected.
//! 3. When all have left it, its disk is flushed, and its index is free.

use crate::export::Export;
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The exports of a server.
#[derive(Debug)]
pub(crate) struct Exports {
    state: Mutex<State>,
    /// Signalled when a worker has left an export, when an export was removed, and at shutdown.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// By index. `None`: free.
    slots: Vec<Option<Slot>>,
    /// The names of exports that were removed.
    removed: HashSet<String>,
    is_ending: bool,
}

#[derive(Debug)]
struct Slot {
    export: Arc<Export>,
    /// If it was withdrawn: the number of workers and devices that have not left it.
    nr_users: Option<usize>,
}

/// An export that was found by its name.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) index: usize,
    pub(crate) export: Arc<Export>,
    /// Whether it is being removed.
    pub(crate) is_withdrawn: bool,
}

impl Exports {
    pub(crate) fn new(exports: Vec<Export>) -> Exports {
        let slot = |export| Some(Slot { export: Arc::new(export), nr_users: None });
        let slots = exports.into_iter().map(slot).collect();
        let state = State { slots, removed: HashSet::new(), is_ending: false };
        Exports { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under this lock is complete even if a panic follows.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the export with this index.
    ///
    /// # Panics
    /// Panics if the index is free.
    pub(crate) fn get(&self, index: usize) -> Arc<Export> {
        let state = self.state();
        let slot = state.slots.get(index).and_then(Option::as_ref);
        Arc::clone(&slot.expect("an index in use").export)
    }

    /// Returns all exports, including those that are being removed.
    pub(crate) fn all(&self) -> Vec<Arc<Export>> {
        self.state().slots.iter().flatten().map(|slot| Arc::clone(&slot.export)).collect()
    }

    /// Returns the exports that clients can find, with their indices.
    pub(crate) fn offered(&self) -> Vec<(usize, Arc<Export>)> {
        let state = self.state();
        let slots = state.slots.iter().enumerate();
        let offered = slots.filter_map(|(index, slot)| {
            let slot = slot.as_ref().filter(|slot| slot.nr_users.is_none())?;
            Some((index, Arc::clone(&slot.export)))
        });
        offered.collect()
    }

    /// Returns the export with this name.
    pub(crate) fn named(&self, name: &str) -> Option<Found> {
        let state = self.state();
        let mut slots = state.slots.iter().enumerate();
        slots.find_map(|(index, slot)| {
            let slot = slot.as_ref().filter(|slot| slot.export.name == name)?;
            let (export, is_withdrawn) = (Arc::clone(&slot.export), slot.nr_users.is_some());
            Some(Found { index, export, is_withdrawn })
        })
    }

    /// Returns the lowest free index.
    pub(crate) fn free_index(&self) -> usize {
        let state = self.state();
        state.slots.iter().position(Option::is_none).unwrap_or(state.slots.len())
    }

    /// Adds an export at a free index. Returns false, and does not add it, during shutdown.
    pub(crate) fn add(&self, index: usize, export: &Arc<Export>) -> bool {
        let mut state = self.state();
        if state.is_ending {
            return false;
        }
        if index == state.slots.len() {
            state.slots.push(None);
        }
        debug_assert!(state.slots[index].is_none(), "index {index} is in use");
        state.slots[index] = Some(Slot { export: Arc::clone(export), nr_users: None });
        true
    }

    /// Records that an export is offered no more, and that this many workers and devices use it.
    pub(crate) fn withdraw(&self, index: usize, nr_users: usize) {
        if let Some(slot) = &mut self.state().slots[index] {
            slot.nr_users = Some(nr_users);
        }
    }

    /// Records that a worker or a device has left an export. Only the users of one that was
    /// withdrawn are counted.
    pub(crate) fn left(&self, index: usize) {
        if let Some(Slot { nr_users: Some(nr), .. }) = &mut self.state().slots[index] {
            *nr -= 1;
        }
        self.changed.notify_all();
    }

    /// Waits until all workers and devices have left a withdrawn export, or until it is removed.
    /// Returns false if shutdown begins before that.
    pub(crate) fn wait_until_unused(&self, index: usize, export: &Arc<Export>) -> bool {
        let is_used = |state: &mut State| {
            let slot = state.slots[index].as_ref();
            let slot = slot.filter(|slot| Arc::ptr_eq(&slot.export, export));
            !state.is_ending && slot.is_some_and(|slot| slot.nr_users != Some(0))
        };
        let state = self.changed.wait_while(self.state(), is_used);
        !state.unwrap_or_else(PoisonError::into_inner).is_ending
    }

    /// Waits until an export was removed by another thread. Returns false if shutdown begins before
    /// that.
    pub(crate) fn wait_until_removed(&self, index: usize, export: &Arc<Export>) -> bool {
        let is_there = |state: &mut State| {
            let slot = state.slots[index].as_ref();
            !state.is_ending && slot.is_some_and(|slot| Arc::ptr_eq(&slot.export, export))
        };
        let state = self.changed.wait_while(self.state(), is_there);
        !state.unwrap_or_else(PoisonError::into_inner).is_ending
    }

    /// Removes an export, which no worker or device uses.
    pub(crate) fn remove(&self, index: usize) {
        let mut state = self.state();
        if let Some(slot) = state.slots[index].take() {
            state.removed.insert(slot.export.name.clone());
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns whether an export with this name was removed.
    pub(crate) fn was_removed(&self, name: &str) -> bool {
        self.state().removed.contains(name)
    }

    /// Begins shutdown: no export is added or removed any more.
    pub(crate) fn end(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExportOptions;

    fn export(name: &str) -> Export {
        let (spec, name) = ("ram:1M".to_owned(), name.to_owned());
        Export::open(&ExportOptions { spec, name, ..ExportOptions::default() }, None).unwrap().0
    }

    #[test]
    fn index_of_a_removed_export_is_used_again() {
        let exports = Exports::new(vec![export("a"), export("b")]);
        assert_eq!(exports.free_index(), 2);
        exports.withdraw(0, 1);
        assert!(exports.named("a").is_some_and(|found| found.is_withdrawn));
        assert_eq!(exports.offered().len(), 1);
        assert_eq!((exports.all().len(), exports.free_index()), (2, 2));
        exports.left(0);
        assert!(exports.wait_until_unused(0, &exports.get(0)));
        exports.remove(0);
        assert_eq!(exports.free_index(), 0);
        assert!(exports.add(0, &Arc::new(export("c"))));
        assert_eq!(exports.named("c").map(|found| found.index), Some(0));
    }

    #[test]
    fn end_of_the_server_ends_the_wait_for_clients() {
        let exports = Exports::new(vec![export("a")]);
        let withdrawn = exports.get(0);
        exports.withdraw(0, 1);
        std::thread::scope(|scope| {
            let unused = scope.spawn(|| exports.wait_until_unused(0, &withdrawn));
            let removed = scope.spawn(|| exports.wait_until_removed(0, &withdrawn));
            exports.end();
            assert!(!unused.join().unwrap() && !removed.join().unwrap());
        });
        assert!(!exports.add(1, &Arc::new(export("b"))));
    }
}
