//! List of a queue's bios that have ended and are not reaped.
//!
//! Turns of the queue's own thread put ended bios here directly. Bios that turns of other threads
//! ended arrive through the mailbox.

use crate::runtime::mailbox::Mailbox;
use crate::runtime::stack::BioList;
use crate::sys::event::Event;
use forebay_core::QueuedBio;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The list of one queue. It stays on its thread.
#[derive(Debug)]
pub(crate) struct Ready {
    mailbox: Arc<Mailbox>,
    owner: u64,
    /// Oldest first. Older bios are in `next`.
    ended: Vec<Box<QueuedBio>>,
    /// Oldest last: the next bios to pop.
    next: Vec<Box<QueuedBio>>,
    /// Total number of bios that came through the mailbox.
    nr_mailed: u64,
    /// Signalled when a bio ends, for an event loop.
    event: Option<Arc<Event>>,
}

impl Ready {
    /// Creates the list of a new queue of this thread.
    pub(crate) fn of_thread() -> Rc<RefCell<Ready>> {
        let mailbox = Arc::new(Mailbox::of_thread());
        let owner = mailbox.owner();
        Rc::new(RefCell::new(Ready {
            mailbox,
            owner,
            ended: Vec::new(),
            next: Vec::new(),
            nr_mailed: 0,
            event: None,
        }))
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Returns the owner ID of the queue's bios.
    #[inline]
    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    /// Sets the event that every ended bio signals from now on. If `reaps_before_poll`, the owner
    /// checks the list after each of its own calls, and only deliveries by other threads signal it.
    pub(crate) fn set_event(&mut self, event: &Arc<Event>, reaps_before_poll: bool) {
        self.mailbox.set_event(event);
        self.event = (!reaps_before_poll).then(|| Arc::clone(event));
    }

    /// Signals the event after a turn of this thread that the queue itself did not request.
    #[inline]
    pub(crate) fn signal(&self) {
        if let Some(event) = &self.event
            && !self.is_empty()
        {
            event.signal();
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ended.len() + self.next.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves room for `nr` bios in total, so that no ended bio allocates.
    pub(crate) fn make_room(&mut self, nr: usize) {
        self.ended.reserve(nr.saturating_sub(self.ended.len()));
        self.next.reserve(nr.saturating_sub(self.next.len()));
    }

    /// Returns the total number of bios that came through the mailbox.
    pub(crate) fn nr_mailed(&self) -> u64 {
        self.nr_mailed
    }

    /// Takes the bios that turns of other threads have delivered. Bios that a later turn of this
    /// thread ends come after them.
    #[inline]
    pub(crate) fn take_mail(&mut self) {
        if let Some(mail) = self.mailbox.take() {
            self.add_mail(mail);
        }
    }

    #[inline(never)]
    fn add_mail(&mut self, mail: BioList) {
        let before = self.ended.len();
        self.ended.extend(mail);
        self.nr_mailed += (self.ended.len() - before) as u64;
    }

    /// Returns how many bios are in the list that turns of this thread append to.
    #[inline]
    pub(crate) fn nr_ended(&self) -> usize {
        self.ended.len()
    }

    /// Returns that list, for a turn that appends to it.
    #[inline]
    pub(crate) fn ended_mut(&mut self) -> &mut Vec<Box<QueuedBio>> {
        &mut self.ended
    }

    /// Returns whether bios of other owners were appended after the first `nr`.
    #[inline]
    pub(crate) fn has_others_since(&self, nr: usize) -> bool {
        let is_other = |bio: &QueuedBio| bio.owner() != self.owner;
        match self.ended.get(nr..) {
            // A turn for one I/O ends one.
            Some([bio]) => is_other(bio),
            new => new.is_some_and(|new| new.iter().any(|bio| is_other(bio))),
        }
    }

    /// Takes all of `bios` if all of them belong to the queue.
    #[inline]
    pub(crate) fn take_all(&mut self, bios: &mut Vec<Box<QueuedBio>>) -> bool {
        match &bios[..] {
            // For one bio, a push costs less than a copy of the list.
            [bio] if bio.owner() == self.owner => {
                if let Some(bio) = bios.pop() {
                    self.ended.push(bio);
                }
            }
            bios if bios.iter().any(|bio| bio.owner() != self.owner) => return false,
            _ => self.ended.append(bios),
        }
        true
    }

    /// Appends a bio of the queue.
    pub(crate) fn push(&mut self, bio: Box<QueuedBio>) {
        debug_assert!(bio.owner() == self.owner);
        self.ended.push(bio);
    }

    /// Removes the oldest bio.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Box<QueuedBio>> {
        self.next.pop().or_else(|| self.pop_first())
    }

    #[inline(never)]
    fn pop_first(&mut self) -> Option<Box<QueuedBio>> {
        std::mem::swap(&mut self.ended, &mut self.next);
        self.next.reverse();
        self.next.pop()
    }
}
