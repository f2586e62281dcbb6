//! The part of a turn that tells threads of tags, where threads wait for them (`wake=` other than
//! `fair`), and the number of tags there are.
// It vouches for the owners of mailboxes.
#![allow(unsafe_code)]

use super::{Hctx, Token};
use crate::runtime::mailbox::{Delivered, Mailbox};
use crate::runtime::primitive::{Mutex, Ordering, lock};
use forebay_core::{Commit, Gates, Turned, WaitId};
// For counts, from which nothing is concluded: models need not look at them.
use std::sync::atomic::{AtomicU32, AtomicU64};

/// What threads and the holder of the token say to each other of tags.
#[derive(Debug, Default)]
pub(crate) struct TagCalls {
    /// Owners who were told that there may be tags, and have come. A run is due after this.
    asking: Mutex<Vec<u64>>,
    /// How many tags may be in use from the next turn on; 0: as it is.
    nr_requests: AtomicU32,
    /// Threads that were woken for tags.
    nr_sleeps: AtomicU64,
    /// Waits for tags of a shared set that no wake-up ended.
    nr_rescues: AtomicU64,
}

impl TagCalls {
    /// Counts a wait for tags of a shared set that no wake-up ended.
    pub(super) fn note_rescue(&self) {
        // Relaxed: a count.
        self.nr_rescues.fetch_add(1, Ordering::Relaxed);
    }
}

impl Hctx {
    /// A thread that was told of tags is running. A turn is due, or a mark.
    pub(crate) fn ask_again(&self, mailbox: &Mailbox) {
        lock(&self.tags.asking).push(std::ptr::from_ref(mailbox).addr() as u64);
    }

    /// How many tags may be in use from the next turn on. A run is due.
    pub(crate) fn set_nr_requests(&self, nr_requests: u32) {
        // Relaxed: the run's change of the word comes after, and the turn before which it is seen
        // acquires it.
        self.tags.nr_requests.store(nr_requests, Ordering::Relaxed);
    }

    /// How many times a thread slept until it was woken for tags.
    pub(crate) fn nr_tag_sleeps(&self) -> u64 {
        self.tags.nr_sleeps.load(Ordering::Relaxed)
    }

    /// Returns how many waits for tags of a shared set no wake-up has ended.
    pub(crate) fn nr_tag_rescues(&self) -> u64 {
        self.tags.nr_rescues.load(Ordering::Relaxed)
    }
}

impl Token<'_> {
    /// Before a turn: who has come to ask again, and how many tags there are.
    #[inline]
    pub(super) fn hear_of_tags(&mut self) {
        if self.hctx.tags.nr_requests.load(Ordering::Relaxed) != 0 {
            let nr_requests = self.hctx.tags.nr_requests.swap(0, Ordering::Relaxed);
            self.core.set_nr_requests(nr_requests);
        }
        if self.core.has_lines() {
            let asking = std::mem::take(&mut *lock(&self.hctx.tags.asking));
            asking.into_iter().for_each(|owner| self.core.awake(WaitId(owner)));
        }
    }

    /// After a turn, and before what it has ended is delivered: wakes those for whom there may be
    /// tags. For those who are awake, another turn tries at once. Says whether a leader is to be
    /// told.
    #[cold]
    pub(super) fn tell_of_tags(
        &mut self,
        now: u64,
        gates: Gates,
        commit: Commit,
        turned: &mut Turned,
    ) -> bool {
        let mut to_leader = false;
        loop {
            let mut told = Vec::new();
            let mut awake = Vec::new();
            self.core.take_changes(&mut |WaitId(owner), lacks| {
                // SAFETY: what waited in its line until this turn has not been delivered.
                told.extend(unsafe { Mailbox::set_lacks_tags(owner, lacks) });
            });
            let nr_before = told.len();
            self.core.take_woken(&mut |WaitId(owner)| {
                // SAFETY: what waits in its line has not been delivered.
                match unsafe { Mailbox::tell(owner) } {
                    Some(call) => told.push(call),
                    None => awake.push(owner),
                }
            });
            let nr_sleeps = (told.len() - nr_before) as u64;
            // Relaxed: a count.
            self.hctx.tags.nr_sleeps.fetch_add(nr_sleeps, Ordering::Relaxed);
            for call in told {
                match call {
                    Delivered::Quietly => {}
                    Delivered::ToLeader => to_leader = true,
                    Delivered::ToSleeper(wake) => self.add_wake(wake),
                }
            }
            if awake.is_empty() {
                return to_leader;
            }
            awake.into_iter().for_each(|owner| self.core.awake(WaitId(owner)));
            let inner = &mut **self;
            *turned = inner.core.turn(&mut *inner.driver, now, gates, commit, &mut inner.ended);
        }
    }
}
