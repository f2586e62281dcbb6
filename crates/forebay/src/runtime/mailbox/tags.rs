//! A mailbox's part in waiting for tags, where threads wait for them (`wake=` other than `fair`).
//!
//! The holder of the token keeps a thread's bios that lack tags in its line, and says so here: then
//! the thread waits for tags, and for nothing else, as a thread of Linux sleeps in its submission.
//! Told, it asks again.
//!
//! W2, once more by changes of one word: the owner says that it is going to sleep, then looks at
//! the flag. Who clears the flag does so first, and changes the word then, even if to what it was:
//! so either it comes first, and the owner's change acquires the flag with it; or it sees that the
//! owner sleeps. A wake-up that finds the owner awake is not left to it at all: the holder of the
//! token tries for it (`hctx/tags.rs`).
// Bios carry the address of their mailbox.
#![allow(unsafe_code)]

use super::{DOING_MASK, Delivered, Doing, Mailbox, Owner, Wake};
use crate::runtime::primitive::Ordering;
use std::ptr;

/// The goal of an owner that waits for tags: no number of deliveries is enough.
pub(crate) const TAGS: u64 = u64::MAX;

impl Mailbox {
    /// Whether the owner's bios wait in its line for tags, as far as is known. For the owner.
    #[inline]
    pub(crate) fn lacks_tags(&self) -> bool {
        // Relaxed: after `begin_wait` it is ordered by the word, see above; before, it is a guess.
        self.lacks_tags.load(Ordering::Relaxed)
    }

    /// Whether what the owner waits for has come.
    #[inline]
    pub(crate) fn is_reached(&self, goal: u64) -> bool {
        match goal {
            TAGS => !self.lacks_tags(),
            goal => self.nr_delivered() >= goal,
        }
    }

    /// For the owner, which has said that it waits: whether it was told meanwhile. Where it is told
    /// of tags before it is blocked, the kick does not find it; this does (W4).
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        Doing::of(self.word.load(Ordering::Acquire)) == Doing::Told
    }

    /// For the holder of the token: the bios of the mailbox of that name have begun to lack tags,
    /// or do not any more. Who waits for just that is told.
    ///
    /// # Safety
    /// A bio of the mailbox is in the layer.
    pub(crate) unsafe fn set_lacks_tags(owner: u64, lacks: bool) -> Option<Delivered> {
        // SAFETY: the name came from `owner`, and its bio keeps the mailbox.
        let this = unsafe { &*ptr::with_exposed_provenance::<Mailbox>(owner as usize) };
        this.lacks_tags.store(lacks, Ordering::Relaxed);
        match lacks {
            true => None,
            // The goal was written before the owner said that it waits.
            false => this.tell_if(|| this.goal.load(Ordering::Relaxed) == TAGS),
        }
    }

    /// For the holder of the token: there may be tags for the owner of that name. None where it is
    /// no thread that sleeps.
    ///
    /// # Safety
    /// A bio of the mailbox is in the layer.
    pub(crate) unsafe fn tell(owner: u64) -> Option<Delivered> {
        // SAFETY: the name came from `owner`, and its bio keeps the mailbox.
        let this = unsafe { &*ptr::with_exposed_provenance::<Mailbox>(owner as usize) };
        this.tell_if(|| true)
    }

    fn tell_if(&self, is_wanted: impl Fn() -> bool) -> Option<Delivered> {
        let Owner::Thread(thread) = &self.owner else { return None };
        // It changes nothing, and is no load: see the module.
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
