//! The part of a turn that shares tags with other disks.

use super::{Hctx, Token, now_ns};
use crate::runtime::primitive::{AtomicBool, Ordering};
use crate::runtime::shared::Shared;
use crate::runtime::tag_pool::{TagPool, Woken};
use forebay_core::{Commit, Gates, Turned, WaitId};
use std::fmt;
use std::sync::{Arc, Weak};

/// A context's share in a set of tags.
pub(crate) struct PoolUser {
    pool: Arc<TagPool>,
    id: WaitId,
    /// It wants more tags than it has, as far as the others know.
    is_hungry: bool,
    /// See [`TagPool::lost_wake_up`]: what it takes, if it had no tag and was in line when the turn
    /// under way began.
    nr_wake_ups: Option<u64>,
    /// Set while tags are put and their wake-ups are made; see [`TagPool::lost_wake_up`].
    is_putting: Arc<AtomicBool>,
}

impl PoolUser {
    pub(crate) fn new(pool: &Arc<TagPool>, disk: &Weak<Shared>) -> PoolUser {
        let is_putting = Arc::new(AtomicBool::new(false));
        let id = pool.join(disk, &is_putting);
        PoolUser { pool: Arc::clone(pool), id, is_hungry: false, nr_wake_ups: None, is_putting }
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
    /// Runs a context for which there may be tags; `woken` are others, that this wakes.
    pub(crate) fn run_for_tags(&self, woken: &mut Woken) {
        if let Some(mut token) = self.run() {
            token.turn(now_ns(self.is_timed), Commit::Now, None, None);
            token.finish_into(woken);
        }
    }
}

impl Token<'_> {
    /// Sets how many tags the next turn may have.
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

    /// After a turn: gives back what it does not use, for others; joins the line if it wants more,
    /// and tries once more then (T2).
    #[cold]
    pub(super) fn share_tags(
        &mut self,
        now: u64,
        gates: Gates,
        commit: Commit,
        turned: &mut Turned,
    ) {
        let mut woken = Woken::new();
        let hctx = self.hctx;
        let inner = &mut **self;
        let Some(user) = &mut inner.pool else { return };
        let mut may_join = true;
        loop {
            // Relaxed: whoever gets one of these tags acquires it with the tag.
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
        self.disks.append(&mut woken);
    }
}
