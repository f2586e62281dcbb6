//! Part of a turn that concerns tags: it shares them with other disks, changes the number in use,
//! and wakes threads for them, where threads wait for tags (`wake=` other than `fair`).
// It vouches for the owners of mailboxes.
#![allow(unsafe_code)]

use super::{At, Hctx, Inner, Token};
use crate::runtime::mailbox::{Delivered, Mailbox};
use crate::sys::primitive::{AtomicBool, Mutex, Ordering, lock};
use crate::tag_pool::{self, PoolDisk, TagPool, Woken};
use forebay_core::{Commit, Gates, Turned, WaitId, wait};
use std::fmt;
// For counters that carry no synchronization: models need not see them.
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Weak};

/// Messages about tags between threads and the token holder.
#[derive(Debug, Default)]
pub(crate) struct TagCalls {
    /// Owners that were woken because tags may be available, and are running. A run must follow a
    /// push.
    asking: Mutex<Vec<u64>>,
    /// Changes from the next turn on: the limit on the tags in use, where 0 means that it is
    /// unchanged, and [`NEW_OWNERS`].
    changes: AtomicU32,
    /// Number of times a thread was woken for tags.
    nr_sleeps: AtomicU64,
    /// Number of waits for tags of a shared set that ended without a wake-up.
    nr_rescues: AtomicU64,
}

/// The owners of the disk have changed.
const NEW_OWNERS: u32 = 1 << 31;
/// A trace of the disk has begun.
const NEW_TRACE: u32 = 1 << 30;

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
        let with = |changes| Some(changes & (NEW_OWNERS | NEW_TRACE) | nr_requests);
        _ = self.tags.changes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }

    /// Records that the owners of the disk have changed. The next turn passes them to the context.
    /// The caller requests a run afterwards.
    pub(crate) fn note_new_owners(&self) {
        // Relaxed: as in `set_nr_requests`. The owners themselves are read under their lock.
        self.tags.changes.fetch_or(NEW_OWNERS, Ordering::Relaxed);
    }

    /// Records that a trace of the disk has begun, or that it is probed. The next turn takes a
    /// writer of records for the context. The caller requests a run afterwards.
    pub(crate) fn note_new_trace(&self) {
        // Relaxed: as in `set_nr_requests`. The ring is created under a lock.
        self.tags.changes.fetch_or(NEW_TRACE, Ordering::Relaxed);
    }

    /// Returns whether the next turn has to change how many tags may be in use, the owners, or the
    /// trace.
    #[inline]
    pub(super) fn has_changes(&self) -> bool {
        self.tags.changes.load(Ordering::Relaxed) != 0
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
    /// Reads, before a turn, which threads ask for tags again, the new limit of tags in use, and
    /// new owners.
    #[inline(always)]
    pub(super) fn read_tag_calls(&mut self) {
        if self.hctx.has_changes() {
            self.take_changes();
        }
        if self.serves_tag_waits && self.core.has_lines() {
            self.read_asking();
        }
    }

    #[cold]
    pub(super) fn take_changes(&mut self) {
        let changes = self.hctx.tags.changes.swap(0, Ordering::Relaxed);
        match changes & !(NEW_OWNERS | NEW_TRACE) {
            0 => {}
            nr_requests => self.core.set_nr_requests(nr_requests),
        }
        if changes & NEW_OWNERS != 0 {
            let hctx = self.hctx;
            hctx.owners.pass_to(&mut self.core);
        }
        if changes & NEW_TRACE != 0 {
            let writer = self.hctx.trace_writer();
            self.core.set_trace(writer);
        }
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

/// A context's share of a tag set.
pub(crate) struct PoolUser {
    pool: Arc<TagPool>,
    id: WaitId,
    /// The context wants more tags than it has, as recorded in the pool.
    is_hungry: bool,
    /// The argument for [`TagPool::lost_wake_up`], if the context had no tag and was waiting for
    /// one when the current turn began.
    nr_wake_ups: Option<u64>,
    /// Set while tags are put and the resulting wake-ups are made; see [`TagPool::lost_wake_up`].
    is_putting: Arc<AtomicBool>,
}

impl PoolUser {
    pub(crate) fn new(pool: &Arc<TagPool>, disk: Weak<dyn PoolDisk>) -> PoolUser {
        let is_putting = Arc::new(AtomicBool::new(false));
        let id = pool.join(disk, &is_putting);
        PoolUser { pool: Arc::clone(pool), id, is_hungry: false, nr_wake_ups: None, is_putting }
    }
}

impl PoolUser {
    /// Leaves the set. `put` returns its tags to the set, and their number. Returns the disks that
    /// get them.
    pub(crate) fn leave(self, put: impl FnOnce() -> u32) -> Woken {
        tag_pool::make_lists();
        let mut woken = tag_pool::take_list();
        // Relaxed: as in `share_tags`.
        self.is_putting.store(true, Ordering::Relaxed);
        let nr_put = put();
        self.pool.put(self.id, nr_put, 0, &mut woken);
        self.is_putting.store(false, Ordering::Release);
        woken
    }
}

impl Drop for PoolUser {
    fn drop(&mut self) {
        self.pool.leave(self.id);
    }
}

impl fmt::Debug for PoolUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolUser").field(&self.id).finish()
    }
}

impl Hctx {
    /// Runs a context for which tags may be available. Adds the disks that this wakes to `woken`.
    pub(crate) fn run_for_tags(&self, woken: &mut Woken) {
        wait::run_turn(&mut At::with(self, woken));
    }
}

impl Token<'_> {
    /// Limits the number of tags that the next turn may use.
    #[inline]
    pub(super) fn limit_tags(&mut self) {
        let inner = &mut **self;
        if let Some(user) = &mut inner.pool {
            let nr_held = inner.core.nr_busy_tags();
            if user.is_hungry && nr_held == 0 {
                user.nr_wake_ups = user.pool.before_turn_in_line(user.id);
            }
            inner.core.set_tag_limit(user.pool.limit(user.id, nr_held));
        }
    }

    /// Returns unused tags to the set after a turn, for other disks. If the context wants more
    /// tags, it joins the wait queue, then tries once more (T2).
    #[cold]
    pub(super) fn share_tags(
        &mut self,
        now: u64,
        gates: Gates,
        commit: Commit,
        turned: &mut Turned,
    ) {
        if self.pool.is_none() {
            return;
        }
        tag_pool::make_lists();
        let (hctx, mut woken) = (self.hctx, self.take_disks());
        let inner = &mut **self;
        let user = inner.pool.as_mut().expect("checked above");
        let mut may_join = true;
        loop {
            // Relaxed: a context that gets one of these tags acquires this store with the tag.
            user.is_putting.store(true, Ordering::Relaxed);
            let (nr_put, nr_held) = (inner.core.give_back_tags(), inner.core.nr_busy_tags());
            if let Some(nr_wake_ups) = user.nr_wake_ups.take()
                && nr_put + nr_held > 0
                && user.pool.lost_wake_up(user.id, nr_wake_ups, nr_held)
            {
                hctx.tags.note_rescue();
            }
            user.pool.put(user.id, nr_put, nr_held, &mut woken);
            user.is_putting.store(false, Ordering::Release);
            let wants = inner.core.wants_tags();
            if !wants && user.is_hungry {
                user.is_hungry = false;
                user.pool.is_content(user.id, nr_held, &mut woken);
            }
            if !wants || !may_join {
                break;
            }
            (user.is_hungry, may_join) = (true, false);
            inner.core.set_tag_limit(user.pool.want(user.id, nr_held));
            *turned = inner.core.turn(&mut *inner.driver, now, gates, commit, &mut inner.ended);
        }
        if woken.capacity() > 0 {
            self.owed().disks = woken;
        }
    }
}
