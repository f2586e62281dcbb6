//! What has ended of a queue's bios, and was not reaped.
//!
//! A turn of the queue's own thread puts its ends here at once; what turns of other threads ended
//! comes through the mailbox.

use crate::runtime::event::Event;
use crate::runtime::mailbox::Mailbox;
use forebay_core::QueuedBio;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// The list of a queue. It stays on its thread.
#[derive(Debug)]
pub(crate) struct Ready {
    mailbox: Arc<Mailbox>,
    owner: u64,
    /// Oldest first.
    ended: VecDeque<Box<QueuedBio>>,
    /// How many came through the mailbox, ever.
    nr_mailed: u64,
    /// Tells a descriptor's holder of ends.
    event: Option<Arc<Event>>,
}

impl Ready {
    /// That of a new queue of this thread.
    pub(crate) fn of_thread() -> Rc<RefCell<Ready>> {
        let mailbox = Arc::new(Mailbox::of_thread());
        let owner = mailbox.owner();
        Rc::new(RefCell::new(Ready {
            mailbox,
            owner,
            ended: VecDeque::new(),
            nr_mailed: 0,
            event: None,
        }))
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// The name under which bios know the queue.
    #[inline]
    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    /// From now on every end signals this; or, where the owner looks after each call of its own,
    /// `is_attended`, those that others deliver.
    pub(crate) fn set_event(&mut self, event: &Arc<Event>, is_attended: bool) {
        self.mailbox.set_event(event);
        self.event = (!is_attended).then(|| Arc::clone(event));
    }

    /// After a turn of this thread that the queue itself did not ask for.
    #[inline]
    pub(crate) fn signal(&self) {
        if let Some(event) = &self.event
            && !self.ended.is_empty()
        {
            event.signal();
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ended.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// Makes room for so many in all, so that no end allocates.
    pub(crate) fn make_room(&mut self, nr: usize) {
        self.ended.reserve(nr.saturating_sub(self.ended.len()));
    }

    /// How many came through the mailbox, ever.
    pub(crate) fn nr_mailed(&self) -> u64 {
        self.nr_mailed
    }

    /// Takes what turns of others have delivered. What a turn of this thread ends comes after.
    #[inline]
    pub(crate) fn take_mail(&mut self) {
        if let Some(mail) = self.mailbox.take() {
            let before = self.ended.len();
            self.ended.extend(mail);
            self.nr_mailed += (self.ended.len() - before) as u64;
        }
    }

    /// Takes all of `bios`, if all of them are the queue's.
    #[inline]
    pub(crate) fn take_all(&mut self, bios: &mut Vec<Box<QueuedBio>>) -> bool {
        if bios.iter().any(|bio| bio.owner() != self.owner) {
            return false;
        }
        // One by one costs less than a drain, where it is one.
        match bios.len() {
            1 => self.ended.extend(bios.pop()),
            _ => self.ended.extend(bios.drain(..)),
        }
        true
    }

    /// Takes a bio, if it is the queue's.
    pub(crate) fn take(&mut self, bio: Box<QueuedBio>) -> Option<Box<QueuedBio>> {
        if bio.owner() != self.owner {
            return Some(bio);
        }
        self.ended.push_back(bio);
        None
    }

    /// Takes the oldest out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Box<QueuedBio>> {
        self.ended.pop_front()
    }
}
