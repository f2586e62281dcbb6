//! Part of a turn that shares tags with other disks.

use super::{At, Hctx, Token};
use crate::sys::primitive::{AtomicBool, Ordering};
use crate::tag_pool::{self, PoolDisk, TagPool, Woken};
use forebay_core::{Commit, Gates, Turned, WaitId, wait};
use std::fmt;
use std::sync::{Arc, Weak};

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
