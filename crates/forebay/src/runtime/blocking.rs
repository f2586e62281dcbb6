//! State of a thread's blocking calls on one disk.

use crate::runtime::mailbox::Mailbox;
use forebay_core::{Bio, QueuedBio};
use std::sync::Arc;

/// A box for a bio, and the mailbox that it comes back to. One call at a time uses it.
///
/// Each disk has its own: a mailbox may stay in a context's list of followers after its owner has
/// returned. It must not receive that context's baton while the owner waits on another context.
#[derive(Debug)]
pub(crate) struct Blocking {
    pub(crate) mailbox: Arc<Mailbox>,
    /// `None` while a bio is in flight.
    bio: Option<Box<QueuedBio>>,
    /// Total number of bios submitted.
    pub(crate) nr_queued: u64,
}

impl Blocking {
    /// Creates the state for the calling thread.
    pub(crate) fn new() -> Blocking {
        let mailbox = Arc::new(Mailbox::of_thread());
        let bio = Some(QueuedBio::new(mailbox.owner(), 0));
        Blocking { mailbox, bio, nr_queued: 0 }
    }

    /// Takes the box and fills it with a bio.
    pub(crate) fn boxed(&mut self, bio: Bio) -> Box<QueuedBio> {
        let mut boxed = self.bio.take().expect("one bio at a time");
        boxed.fill(bio);
        boxed
    }

    /// Returns the box after the call.
    pub(crate) fn put_box(&mut self, boxed: Box<QueuedBio>) {
        self.bio = Some(boxed);
    }
}
