//! The part of a turn that shares tags with other disks.

use super::{Hctx, Token, now_ns};
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
}

impl PoolUser {
    pub(crate) fn new(pool: &Arc<TagPool>, disk: &Weak<Shared>) -> PoolUser {
        PoolUser { pool: Arc::clone(pool), id: pool.join(disk), is_hungry: false }
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
    /// Before a turn: how many tags it may have.
    #[inline]
    pub(super) fn limit_tags(&mut self) {
        let inner = &mut **self;
        if let Some(user) = &inner.pool {
            inner.core.set_tag_limit(user.pool.limit(user.id, inner.core.nr_busy_tags()));
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
        let inner = &mut **self;
        let Some(user) = &mut inner.pool else { return };
        let mut may_join = true;
        loop {
            let (nr_put, nr_held) = (inner.core.give_back_tags(), inner.core.nr_busy_tags());
            user.pool.put(user.id, nr_put, nr_held, &mut woken);
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
