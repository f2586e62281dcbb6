//! Where the ends of a task's bios wait for it, and what it is doing meanwhile.

use forebay_core::QueuedBio;
use std::cell::{Cell, RefCell};

/// What the owner of a mailbox is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Not waiting.
    #[default]
    Awake,
    /// Asleep, or about to be.
    Parked,
    /// In the driver as the leader, or about to be.
    Leading,
    /// What it waited for has come.
    Told,
    /// It was parked, and is the leader now (W3).
    Baton,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Nothing.
    #[default]
    None,
    /// That so many bios were delivered, ever.
    Delivered(u64),
    /// That somebody says that there are tags, for the wait of this number.
    Tags(u64),
    /// That nothing of its own lacks a tag of its context, where threads wait for those.
    Lines,
}

/// One task's.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    pub(crate) ended: RefCell<Vec<Box<QueuedBio>>>,
    pub(crate) nr_delivered: Cell<u64>,
    pub(crate) doing: Cell<Doing>,
    pub(crate) goal: Cell<Goal>,
    /// The last wait for tags that was told that there are some.
    pub(crate) has_tags: Cell<u64>,
    /// Bios of the owner are in its line for tags, as the holder of the token has it.
    pub(crate) lacks_tags: Cell<bool>,
    /// It is parked as a follower, and would lead.
    pub(crate) is_following: Cell<bool>,
    /// It is in the list of a context's followers.
    pub(crate) is_listed: Cell<bool>,
}

/// What a change leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// Nothing.
    Nobody,
    /// The owner sleeps, and must be woken.
    Wake,
    /// The owner leads, and must be kicked.
    Kick,
}

impl Mailbox {
    pub(crate) fn is_reached(&self, goal: Goal) -> bool {
        match goal {
            Goal::None => false,
            Goal::Delivered(nr) => self.nr_delivered.get() >= nr,
            Goal::Tags(wait) => self.has_tags.get() == wait,
            Goal::Lines => !self.lacks_tags.get(),
        }
    }

    /// Counts bios that are there already, and says whom to tell: one change of the word.
    pub(crate) fn count(&self, nr: u64) -> Tell {
        self.nr_delivered.set(self.nr_delivered.get() + nr);
        self.told()
    }

    /// There are tags for a wait of the owner's.
    pub(crate) fn give_tags(&self, wait: u64) -> Tell {
        // One that comes late, for a wait that is over, must not hide a newer one.
        self.has_tags.set(self.has_tags.get().max(wait));
        self.told()
    }

    /// Nothing of the owner lacks a tag any more: who waits for just that is told.
    pub(crate) fn no_tags_lacked(&self) -> Tell {
        if self.goal.get() == Goal::Lines { self.told() } else { Tell::Nobody }
    }

    /// There may be tags for the owner's line: whatever it waits for, it is to ask again. Nobody:
    /// it does not sleep.
    pub(crate) fn tell_of_tags(&self) -> Tell {
        self.told_if(true)
    }

    fn told(&self) -> Tell {
        self.told_if(self.is_reached(self.goal.get()))
    }

    fn told_if(&self, is_wanted: bool) -> Tell {
        let doing = self.doing.get();
        if !matches!(doing, Doing::Parked | Doing::Leading) || !is_wanted {
            return Tell::Nobody;
        }
        self.doing.set(Doing::Told);
        if doing == Doing::Parked { Tell::Wake } else { Tell::Kick }
    }

    pub(crate) fn begin_wait(&self, goal: Goal, doing: Doing) {
        assert!(self.doing.get() == Doing::Awake, "who waits was awake");
        self.goal.set(goal);
        self.doing.set(doing);
    }

    pub(crate) fn end_wait(&self) -> Doing {
        self.goal.set(Goal::None);
        self.doing.replace(Doing::Awake)
    }

    /// Makes an owner that is parked the leader. False where it is not parked.
    pub(crate) fn give_baton(&self) -> bool {
        let is_parked = self.doing.get() == Doing::Parked;
        if is_parked {
            self.doing.set(Doing::Baton);
        }
        is_parked
    }
}
