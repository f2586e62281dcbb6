//! List of owners by number, as a value under a lock of its caller.

use super::peers::{OwnerGoal, Peers};
use super::tree::{OWNER_LEVELS_MAX, Owner, OwnerId};
use crate::origin::OWNER_MAX;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// The owners of a disk, by number.
///
/// A clone is a snapshot: it shares the owners, and later changes of their limits and weights show
/// in it. Owners that were added or removed later do not.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// The owner with number `n` is at index `n - 1`.
    owners: Vec<Option<Arc<Owner>>>,
    generation: u64,
    /// `None` before the first owner.
    top: Option<Top>,
}

/// The group of the owners without a parent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Top {
    pub(crate) peers: Arc<Peers>,
    /// The depth of I/O without an owner.
    pub(crate) unowned: Arc<OwnerGoal>,
}

/// An owner that cannot be added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerError {
    /// Another owner has this name.
    NameTaken(String),
    /// There is no owner with this number.
    Unknown(OwnerId),
    /// The parent is on the lowest level that there may be.
    TooDeep(String),
    /// No number is free.
    TooMany,
    /// The owner has children.
    HasChildren(String),
}

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OwnerError::NameTaken(name) => {
                write!(
                    f,
                    "owner {name} not added, because one with this name exists: choose another name"
                )
            }
            OwnerError::Unknown(id) => write!(f, "there is no owner with the number {}", id.0),
            OwnerError::TooDeep(parent) => write!(
                f,
                "no owner added below {parent}, because a tree has at most {OWNER_LEVELS_MAX} \
                 levels: add it further up"
            ),
            OwnerError::TooMany => {
                write!(f, "owner not added, because there are {OWNER_MAX} already: remove some")
            }
            OwnerError::HasChildren(name) => {
                write!(f, "owner {name} not removed, because it has children: remove these first")
            }
        }
    }
}

impl core::error::Error for OwnerError {}

impl Owners {
    /// Creates an empty list.
    pub const fn new() -> Owners {
        Owners { owners: Vec::new(), generation: 0, top: None }
    }

    /// Creates an empty list whose latency goals have windows of this length. The usual length is
    /// 100 ms. For simulators, where little time passes.
    pub fn with_goal_windows(window_ns: u64) -> Owners {
        let top = Top { peers: Arc::new(Peers::new(window_ns)), unowned: Arc::default() };
        Owners { top: Some(top), ..Owners::new() }
    }

    /// Returns the depth that latency goals leave I/O without an owner. `None` without a limit.
    pub fn depth_of_unowned(&self) -> Option<u32> {
        self.top.as_ref()?.unowned.depth()
    }

    /// Returns the group of the owners without a parent. `None` if there was never an owner.
    pub(crate) fn top(&self) -> Option<&Top> {
        self.top.as_ref()
    }

    /// Adds an owner without limits, with the usual weight.
    ///
    /// It has the lowest free number. An owner must have no I/O when it is removed, or else that
    /// I/O may count against the next owner with its number.
    ///
    /// # Errors
    /// Fails if the name is taken, if there is no such parent, if the parent is on the lowest
    /// level, or if no number is free.
    pub fn add(
        &mut self,
        name: &str,
        parent: Option<OwnerId>,
        now_ns: u64,
    ) -> Result<Arc<Owner>, OwnerError> {
        if self.named(name).is_some() {
            return Err(OwnerError::NameTaken(name.into()));
        }
        let parent = match parent {
            Some(id) => Some(self.get(id).cloned().ok_or(OwnerError::Unknown(id))?),
            None => None,
        };
        if let Some(parent) = parent.as_ref().filter(|up| up.level() + 1 >= OWNER_LEVELS_MAX) {
            return Err(OwnerError::TooDeep(parent.name().into()));
        }
        let free = self.owners.iter().position(Option::is_none);
        let place = free.unwrap_or(self.owners.len());
        if place >= OWNER_MAX as usize {
            return Err(OwnerError::TooMany);
        }
        if free.is_none() {
            self.owners.push(None);
        }
        let id = OwnerId(place as u32 + 1);
        let top = &self.top.get_or_insert_default().peers;
        let peers = Arc::clone(parent.as_ref().map_or(top, |parent| parent.below()));
        let owner = Arc::new(Owner::new(id, name, parent, peers, now_ns));
        self.owners[place] = Some(Arc::clone(&owner));
        self.generation += 1;
        Ok(owner)
    }

    /// Removes an owner. Threads that still have it may charge it.
    ///
    /// # Errors
    /// Fails if there is no such owner, or if it has children.
    pub fn remove(&mut self, id: OwnerId) -> Result<Arc<Owner>, OwnerError> {
        let owner = self.get(id).cloned().ok_or(OwnerError::Unknown(id))?;
        if self.children(Some(id)).next().is_some() {
            return Err(OwnerError::HasChildren(owner.name().into()));
        }
        self.owners[id.0 as usize - 1] = None;
        self.generation += 1;
        Ok(owner)
    }

    /// Returns how often owners were added or removed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the owner with a number.
    #[inline]
    pub fn get(&self, id: OwnerId) -> Option<&Arc<Owner>> {
        self.numbered(id.0)
    }

    /// Returns the owner with the number of an origin, which may be 0 or the number of an owner
    /// that was removed.
    #[inline]
    pub fn numbered(&self, number: u32) -> Option<&Arc<Owner>> {
        self.owners.get((number as usize).checked_sub(1)?)?.as_ref()
    }

    /// Returns the owner with a name.
    pub fn named(&self, name: &str) -> Option<&Arc<Owner>> {
        self.iter().find(|owner| owner.name() == name)
    }

    /// Returns all owners, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Owner>> {
        self.owners.iter().flatten()
    }

    /// Returns the owners below another, or all roots.
    pub fn children(&self, parent: Option<OwnerId>) -> impl Iterator<Item = &Arc<Owner>> {
        self.iter().filter(move |owner| owner.parent().map(|up| up.id()) == parent)
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn numbers_start_at_1_and_free_ones_are_used_again() {
        let mut owners = Owners::new();
        let first = owners.add("a", None, 0).expect("free").id();
        let second = owners.add("b", Some(first), 0).expect("free").id();
        assert_eq!((first.number(), second.number(), owners.generation()), (1, 2, 2));
        assert_eq!(owners.remove(first).map(|_| ()), Err(OwnerError::HasChildren("a".into())));
        assert_eq!(owners.add("b", None, 0).map(|_| ()), Err(OwnerError::NameTaken("b".into())));
        let snapshot = owners.clone();
        assert!(owners.remove(second).is_ok() && owners.remove(first).is_ok());
        assert_eq!(owners.remove(first).map(|_| ()), Err(OwnerError::Unknown(first)));
        assert_eq!((owners.iter().count(), snapshot.iter().count()), (0, 2));
        assert_eq!(owners.add("c", Some(second), 0).map(|_| ()), Err(OwnerError::Unknown(second)));
        assert_eq!(owners.add("c", None, 0).expect("free").id(), first);
        assert!(owners.numbered(0).is_none() && owners.numbered(3).is_none());
    }

    #[test]
    fn tree_has_a_largest_number_of_levels() {
        let mut owners = Owners::new();
        let mut parent = None;
        for level in 0..OWNER_LEVELS_MAX {
            let owner = owners.add(&level.to_string(), parent, 0).expect("not too deep");
            assert_eq!(owner.level(), level);
            parent = Some(owner.id());
        }
        assert_eq!(owners.add("x", parent, 0).map(|_| ()), Err(OwnerError::TooDeep("7".into())));
        assert_eq!(owners.children(None).count(), 1);
        assert_eq!(owners.children(parent).count(), 0);
    }

    #[test]
    fn errors_name_the_owner_and_the_remedy() {
        let text = OwnerError::TooDeep("x".into()).to_string();
        assert_eq!(
            text,
            "no owner added below x, because a tree has at most 8 levels: add it further up"
        );
        assert!(OwnerError::Unknown(OwnerId(7)).to_string().ends_with("the number 7"));
        assert!(OwnerError::NameTaken("y".into()).to_string().starts_with("owner y not added"));
    }
}
