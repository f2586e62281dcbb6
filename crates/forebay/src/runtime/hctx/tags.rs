//! Part of a turn that wakes threads for tags, where threads wait for them (`wake=` other than
//! `fair`); and the number of tags in use.
// It vouches for the owners of mailboxes.
#![allow(unsafe_code)]

use super::{Hctx, Inner, Token};
use crate::runtime::mailbox::{Delivered, Mailbox};
use crate::sys::primitive::{Mutex, Ordering, lock};
use forebay_core::WaitId;
// For counters that carry no synchronization: models need not see them.
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Messages about tags between threads and the token holder.
#[derive(Debug, Default)]
pub(crate) struct TagCalls {
    /// Owners that were woken because tags may be available, and are running. A run must follow a
    /// push.
    asking: Mutex<Vec<u64>>,
    /// Limit on the tags in use from the next turn on; 0: unchanged.
    nr_requests: AtomicU32,
    /// Number of times a thread was woken for tags.
    nr_sleeps: AtomicU64,
    /// Number of waits for tags of a shared set that ended without a wake-up.
    nr_rescues: AtomicU64,
}

impl TagCalls {
    /// Reserves room for threads that ask for tags.
    pub(super) fn reserve(&self) {
        lock(&self.asking).reserve(NR_THREADS_USUAL);
    }

    /// Counts a wait for tags of a shared set that ended without a wake-up.
    pub(super) fn note_rescue(&self) {
        // Relaxed: a count.
        self.nr_rescues.fetch_add(1, Ordering::Relaxed);
    }
}

/// Buffers of the token holder, empty between turns. Kept so that no turn allocates.
#[derive(Debug, Default)]
pub(super) struct TagLists {
    asking: Vec<u64>,
    calls: Vec<Delivered>,
    awake: Vec<u64>,
}

/// Initial capacity of each list, in threads.
const NR_THREADS_USUAL: usize = 32;

impl TagLists {
    /// Returns empty lists, with room if threads wait for tags (`has_lines`).
    pub(super) fn new(has_lines: bool) -> TagLists {
        let nr = if has_lines { NR_THREADS_USUAL } else { 0 };
        TagLists {
            asking: Vec::with_capacity(nr),
            calls: Vec::with_capacity(2 * nr),
            awake: Vec::with_capacity(nr),
        }
    }
}

impl Hctx {
    /// Records that a thread that was woken for tags is running. The caller requests a turn
    /// afterwards.
    pub(crate) fn ask_for_tags(&self, mailbox: &Mailbox) {
        lock(&self.tags.asking).push(std::ptr::from_ref(mailbox).addr() as u64);
    }

    /// Sets how many tags may be in use from the next turn on. The caller requests a run
    /// afterwards.
    pub(crate) fn set_nr_requests(&self, nr_requests: u32) {
        // Relaxed: the run's later change of the run word publishes it to the next turn.
        self.tags.nr_requests.store(nr_requests, Ordering::Relaxed);
    }

    /// Returns whether the next turn has to change how many tags may be in use.
    #[inline]
    pub(super) fn has_new_nr_requests(&self) -> bool {
        self.tags.nr_requests.load(Ordering::Relaxed) != 0
    }

    /// Returns how many times a thread was woken from a wait for tags.
    pub(crate) fn nr_tag_sleeps(&self) -> u64 {
        self.tags.nr_sleeps.load(Ordering::Relaxed)
    }

    /// Returns how many waits for tags of a shared set ended without a wake-up.
    pub(crate) fn nr_tag_rescues(&self) -> u64 {
        self.tags.nr_rescues.load(Ordering::Relaxed)
    }
}

impl Token<'_> {
    /// Reads, before a turn, which threads ask for tags again, and the new limit of tags in use.
    #[inline(always)]
    pub(super) fn read_tag_calls(&mut self) {
        if self.hctx.has_new_nr_requests() {
            self.resize_tags();
        }
        if self.serves_tag_waits && self.core.has_lines() {
            self.read_asking();
        }
    }

    #[cold]
    pub(super) fn resize_tags(&mut self) {
        let nr_requests = self.hctx.tags.nr_requests.swap(0, Ordering::Relaxed);
        self.core.set_nr_requests(nr_requests);
    }

    #[inline(never)]
    fn read_asking(&mut self) {
        let hctx = self.hctx;
        let Inner { core, lists, .. } = &mut **self;
        std::mem::swap(&mut *lock(&hctx.tags.asking), &mut lists.asking);
        lists.asking.drain(..).for_each(|owner| core.awake(WaitId(owner)));
    }

    /// Wakes the threads for which tags may be available, and lists those that are awake already.
    /// Returns whether the leader must be kicked.
    pub(super) fn wake_for_tags(&mut self) -> bool {
        let mut to_leader = false;
        let TagLists { asking, mut calls, mut awake } = std::mem::take(&mut self.lists);
        self.core.take_changes(&mut |WaitId(owner), lacks| {
            // SAFETY: a bio that waited for tags until this turn has not been delivered.
            calls.push(unsafe { Mailbox::set_lacks_tags(owner, lacks) });
        });
        let mut nr_sleeps = 0;
        self.core.take_woken(&mut |WaitId(owner)| {
            // SAFETY: a bio that waits for tags has not been delivered.
            match unsafe { Mailbox::wake_for_tags(owner) } {
                Delivered::Quietly => awake.push(owner),
                call => {
                    nr_sleeps += 1;
                    calls.push(call);
                }
            }
        });
        // Relaxed: a count.
        self.hctx.tags.nr_sleeps.fetch_add(nr_sleeps, Ordering::Relaxed);
        for call in calls.drain(..) {
            match call {
                Delivered::Quietly => {}
                Delivered::ToLeader => to_leader = true,
                Delivered::ToSleeper(wake) => self.add_wake(wake),
            }
        }
        self.lists = TagLists { asking, calls, awake };
        to_leader
    }

    /// Retries the bios of the threads that [`Token::wake_for_tags`] has listed.
    pub(super) fn retry_for_awake(&mut self) -> bool {
        let Inner { core, lists, .. } = &mut **self;
        let is_due = !lists.awake.is_empty();
        lists.awake.drain(..).for_each(|owner| core.awake(WaitId(owner)));
        is_due
    }
}
