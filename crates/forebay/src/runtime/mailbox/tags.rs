//! Tag waits of a mailbox, where threads wait for tags (`wake=` other than `fair`).
//!
//! The token holder keeps a thread's bios that lack tags in a queue of that thread, and sets a flag
//! in the mailbox. Then the thread waits for tags and for nothing else, as a Linux thread sleeps in
//! its submission. When woken it asks for tags again.
//!
//! W2, again by changes of one word: the owner announces that it is about to sleep, then reads the
//! flag. The token holder clears the flag, then modifies the word, even if the value stays the
//! same. If the token holder is first, the owner's change of the word acquires the cleared flag. If
//! the owner is first, the token holder sees that the owner sleeps. A wake-up that finds the owner
//! awake is not left to the owner at all: the token holder tries on its behalf (`hctx/tags.rs`).
// Bios carry the address of their mailbox.
#![allow(unsafe_code)]

use super::{DOING_MASK, Delivered, Doing, Mailbox, Owner, Wake};
use crate::runtime::primitive::Ordering;
use std::ptr;

/// The goal of an owner that waits for tags: no number of deliveries reaches it.
pub(crate) const TAGS: u64 = u64::MAX;

impl Mailbox {
    /// Returns whether the owner's bios wait for tags, as far as the owner knows. Called by the
    /// owner.
    #[inline]
    pub(crate) fn lacks_tags(&self) -> bool {
        // Relaxed: after `begin_wait` the word orders it, see above; before, it is a guess.
        self.lacks_tags.load(Ordering::Relaxed)
    }

    /// Returns whether the owner's goal is reached.
    #[inline]
    pub(crate) fn is_reached(&self, goal: u64) -> bool {
        match goal {
            TAGS => !self.lacks_tags(),
            goal => self.nr_delivered() >= goal,
        }
    }

    /// Returns whether the owner was woken since it announced its wait. Called by the owner. If the
    /// wake-up for tags comes before the leader is blocked, its kick is not sent, but this check
    /// finds it (W4).
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        Doing::of(self.word.load(Ordering::Acquire)) == Doing::Told
    }

    /// Records whether the bios of this mailbox lack tags. Called by the token holder. Wakes the
    /// owner if it waits for tags only and they are no longer lacking.
    ///
    /// # Safety
    /// A bio of the mailbox is in flight.
    pub(crate) unsafe fn set_lacks_tags(owner: u64, lacks: bool) -> Option<Delivered> {
        // SAFETY: the ID came from `owner`, and its bio keeps the mailbox alive.
        let this = unsafe { &*ptr::with_exposed_provenance::<Mailbox>(owner as usize) };
        this.lacks_tags.store(lacks, Ordering::Relaxed);
        match lacks {
            true => None,
            // The owner wrote the goal before it announced the wait.
            false => this.tell_if(|| this.goal.load(Ordering::Relaxed) == TAGS),
        }
    }

    /// Wakes the owner because tags may be available for it. Called by the token holder. Returns
    /// `None` if the owner is not a waiting thread.
    ///
    /// # Safety
    /// A bio of the mailbox is in flight.
    pub(crate) unsafe fn tell(owner: u64) -> Option<Delivered> {
        // SAFETY: the ID came from `owner`, and its bio keeps the mailbox alive.
        let this = unsafe { &*ptr::with_exposed_provenance::<Mailbox>(owner as usize) };
        this.tell_if(|| true)
    }

    fn tell_if(&self, is_wanted: impl Fn() -> bool) -> Option<Delivered> {
        let Owner::Thread(thread) = &self.owner else { return None };
        // A read-modify-write that changes nothing, and not a load: see the module docs.
        let mut word = self.word.fetch_or(0, Ordering::AcqRel);
        loop {
            let doing = Doing::of(word);
            if !matches!(doing, Doing::Parked | Doing::Leading) || !is_wanted() {
                return None;
            }
            let told = word & !DOING_MASK | Doing::Told as u64;
            match self.word.compare_exchange(word, told, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if doing == Doing::Leading => return Some(Delivered::ToLeader),
                Ok(_) => return Some(Delivered::ToSleeper(Wake::Thread(thread.clone()))),
                Err(now) => word = now,
            }
        }
    }
}
