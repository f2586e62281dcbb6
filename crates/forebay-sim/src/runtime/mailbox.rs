//! Mailbox of a task: the bios that have ended, and the task's wait cell.

use forebay_core::QueuedBio;
use forebay_core::wait::{NEVER, Notice, TAGS, WaitCell};
use std::cell::{Cell, RefCell};

/// The goal of a task's wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Nothing.
    #[default]
    None,
    /// That so many bios were delivered in total.
    Delivered(u64),
    /// Tags of the budget, for the wait of this number.
    TagsOfBudget(u64),
    /// That none of its bios lacks a tag of its context, where threads wait for those.
    TagsOfContext,
}

impl Goal {
    /// Returns the goal that this number stands for in the core.
    pub(crate) fn of_number(number: u64) -> Goal {
        match number {
            TAGS => Goal::TagsOfContext,
            nr => Goal::Delivered(nr),
        }
    }

    /// Returns the goal as a number of deliveries.
    pub(crate) fn number(self) -> u64 {
        match self {
            Goal::Delivered(nr) => nr,
            Goal::TagsOfContext => TAGS,
            Goal::None | Goal::TagsOfBudget(_) => NEVER,
        }
    }
}

/// The mailbox of one task.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    pub(crate) ended: RefCell<Vec<Box<QueuedBio>>>,
    pub(crate) cell: WaitCell,
    pub(crate) goal: Cell<Goal>,
    /// The newest wait for tags of the budget that was given tags.
    pub(crate) has_tags: Cell<u64>,
    /// The owner is parked as a follower, and would lead.
    pub(crate) is_following: Cell<bool>,
}

impl Mailbox {
    pub(crate) fn is_reached(&self, goal: Goal) -> bool {
        match goal {
            Goal::None => false,
            Goal::TagsOfBudget(wait) => self.has_tags.get() == wait,
            goal => self.cell.is_reached(goal.number()),
        }
    }

    /// Gives tags of the budget to a wait of the owner.
    pub(crate) fn give_tags(&self, wait: u64) -> Notice {
        // A late call, for a wait that is over, must not hide a newer one.
        self.has_tags.set(self.has_tags.get().max(wait));
        match self.is_reached(self.goal.get()) {
            true => self.cell.wake_for_tags(),
            false => Notice::Nothing,
        }
    }
}
