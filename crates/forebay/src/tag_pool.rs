//! Tag set shared by several disks (`tag_set=NAME`), and the disks that wait for its tags.
//!
//! The users are the shared contexts of the disks. Tags that a user does not need are in the set. A
//! user that finds no free tag joins a wait queue here, as a value. When tags are put back that it
//! may have, the thread that puts them runs a turn of its context. So no thread sleeps for tags.
//! (Each such disk has a service thread, so requests with tags make progress even without a thread
//! of the user.)
//!
//! The protocol is that of `tag/shared.rs` in the core, which proves T1, T2 and T13. The order of
//! the steps at the wait queue is the core's too ([`steps`]). The state of
//! each user (out, in line, or woken) is under the lock as well.
//!
//! No wake-up depends on a timer. A disk that waits for tags with nothing in flight is handled like
//! one with a busy device, so its leader turns every 3 ms all the same. In the models
//! (`tag_pool/models.rs`) a timeout never ends a wait (`toy.rs`): each turn there follows a
//! submission, a completion or a wake-up of this protocol, and a lost wake-up is a deadlock.
//! [`TagPool::lost_wake_up`] reports a wait that such a retry has ended.

use crate::sys::fork::PerProcess;
use crate::sys::primitive::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use forebay_core::tag_steps::{self as steps, LockedWaits, TagHolder};
use forebay_core::{TagSet, TagShares, TagWaits, Wait, WaitId, WaiterCount, WakePolicy};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::{Arc, Weak};

/// A tag set shared by several disks; see the module docs.
pub(crate) struct TagPool {
    name: String,
    pub(crate) set: Arc<TagSet>,
    /// Number of users in the wait queue.
    count: WaiterCount,
    /// Number of users that want tags, in the wait queue or woken.
    hungry: WaiterCount,
    state: Mutex<State>,
}

struct State {
    waits: TagWaits,
    shares: TagShares,
    users: Vec<User>,
    next_id: u64,
    /// Total number of wake-ups of users.
    nr_wake_ups: u64,
}

/// A disk that uses the set.
pub(crate) trait PoolDisk: Send + Sync {
    /// Makes the progress that is possible because other disks have put tags into the set. Adds the
    /// disks that are woken in turn to `woken`.
    fn run_for_tags(&self, woken: &mut Woken);
}

/// A context that uses the set.
struct User {
    id: WaitId,
    disk: Weak<dyn PoolDisk>,
    nr_held: u32,
    tag_wait: TagWait,
    is_putting: Arc<AtomicBool>,
}

/// State of a user in the wait protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagWait {
    Out,
    InLine,
    Woken,
}

/// Disks to be run because tags are available for them.
pub(crate) type Woken = Vec<Weak<dyn PoolDisk>>;

thread_local! {
    /// Empty lists, kept so that a turn that wakes disks does not allocate.
    static SPARE: RefCell<Vec<Woken>> = const { RefCell::new(Vec::new()) };
    static HAS_LISTS: Cell<bool> = const { Cell::new(false) };
}

/// Number of lists in use at once: that of a token, that of the loop that runs its disks, and that
/// of the token of one of these disks.
const NR_LISTS: usize = 3;
/// Initial capacity of a list, in disks.
const NR_DISKS_USUAL: usize = 8;

/// Creates the lists of this thread, which runs turns of disks that share tags.
pub(crate) fn make_lists() {
    if !HAS_LISTS.replace(true) {
        let make = || Woken::with_capacity(NR_DISKS_USUAL);
        let _ = SPARE.try_with(|spare| spare.borrow_mut().resize_with(NR_LISTS, make));
    }
}

/// Returns an empty list, with the allocation of a kept one if there is any.
pub(crate) fn take_list() -> Woken {
    SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

/// Keeps the allocation of an empty list.
pub(crate) fn keep_list(list: Woken) {
    assert!(list.is_empty());
    if list.capacity() > 0 {
        let _ = SPARE.try_with(|spare| spare.borrow_mut().push(list));
    }
}

/// All named sets. A child of a fork does not use a set of its parent: tags that were in use at the
/// fork would never be put back there.
static POOLS: PerProcess<Vec<Weak<TagPool>>> = PerProcess::new();

impl TagPool {
    pub(crate) fn new(name: &str, depth: u32) -> TagPool {
        TagPool {
            name: name.to_owned(),
            set: Arc::new(TagSet::new(depth)),
            count: WaiterCount::new(),
            hungry: WaiterCount::new(),
            state: Mutex::new(State {
                waits: TagWaits::new(WakePolicy::Fair, depth),
                shares: TagShares::new(depth, 1),
                users: Vec::new(),
                next_id: 0,
                nr_wake_ups: 0,
            }),
        }
    }

    /// Returns the set with this name, and creates it if no open disk uses it. If it exists with
    /// another depth, returns that depth as the error.
    pub(crate) fn named(name: &str, depth: u32) -> Result<Arc<TagPool>, u32> {
        let mut pools = POOLS.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        let is_it = |pool: &Arc<TagPool>| pool.name == name;
        if let Some(pool) = pools.iter().filter_map(Weak::upgrade).find(is_it) {
            let found = pool.set.depth();
            return if found == depth { Ok(pool) } else { Err(found) };
        }
        let pool = Arc::new(TagPool::new(name, depth));
        pools.push(Arc::downgrade(&pool));
        Ok(pool)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a user. It sets `is_putting` before it puts tags, and clears it after the call of
    /// [`put`](Self::put) that follows.
    pub(crate) fn join(&self, disk: Weak<dyn PoolDisk>, is_putting: &Arc<AtomicBool>) -> WaitId {
        let mut state = self.lock();
        state.next_id += 1;
        let id = WaitId(state.next_id);
        let is_putting = Arc::clone(is_putting);
        state.users.push(User { id, disk, nr_held: 0, tag_wait: TagWait::Out, is_putting });
        id
    }

    /// Removes a user, which holds no tags any more.
    pub(crate) fn leave(&self, id: WaitId) {
        self.lock().users.retain(|user| user.id != id);
    }

    /// Returns how many tags a user that has `nr_held` may have in its next turn.
    #[inline]
    pub(crate) fn limit(&self, id: WaitId, nr_held: u32) -> u32 {
        // A hint: a user that misses another user's demand may take more tags, for one turn.
        if !self.hungry.seems_waited() {
            return u32::MAX;
        }
        let mut state = self.lock();
        state.limit(id, nr_held)
    }

    /// Wakes users that may have the `nr_put` tags that a user has put back (T2). That user has
    /// `nr_held` left. Adds the woken disks to `woken`.
    #[inline]
    pub(crate) fn put(&self, id: WaitId, nr_put: u32, nr_held: u32, woken: &mut Woken) {
        steps::report_freed(&mut Putting { pool: self, id, nr_held, woken }, nr_put);
    }

    /// Adds a user to the wait queue, because it wants more tags than it has found. The user then
    /// tries once more, up to the limit that this returns.
    pub(crate) fn want(&self, id: WaitId, nr_held: u32) -> u32 {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.user(id).tag_wait, TagWait::InLine);
        match before {
            TagWait::InLine => {}
            TagWait::Out => {
                state.shares.wait(id, nr_held);
                self.hungry.announce();
                self.locked(&mut state.waits).join(wait_of(id));
            }
            TagWait::Woken => self.locked(&mut state.waits).rejoin(wait_of(id)),
        }
        state.limit(id, nr_held)
    }

    /// Ends the wait of a user that has all the tags that it wants. Passes on a wake-up that it may
    /// not have used (T5).
    pub(crate) fn is_content(&self, id: WaitId, nr_held: u32, woken: &mut Woken) {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.user(id).tag_wait, TagWait::Out);
        if before == TagWait::Out {
            return;
        }
        state.shares.done(id);
        self.hungry.leave();
        state.note_held(id, nr_held);
        self.wake(&mut state, woken, |waits, out| waits.leave(wait_of(id), out));
    }

    /// Returns the total number of wake-ups, before a turn of a user that holds no tag. Returns
    /// `None` if the user is not in the wait queue, or a woken user has not run yet.
    pub(crate) fn before_turn_in_line(&self, id: WaitId) -> Option<u64> {
        let mut state = self.lock();
        let is_woken = state.users.iter().any(|user| user.tag_wait == TagWait::Woken);
        (!is_woken && state.user(id).tag_wait == TagWait::InLine).then_some(state.nr_wake_ups)
    }

    /// Returns whether a wake-up was lost (T1). The user was in the wait queue before its latest
    /// turn, when there had been `nr_wake_ups`. It got tags in that turn, and has `nr_held` now.
    ///
    /// A wake-up was lost if no other user holds a tag or is putting some, and none was woken
    /// meanwhile: the tag was free, and nothing would have woken this user. The result is exact: a
    /// user that puts a tag sets `is_putting` first, and clears it after it has woken another user.
    /// So this finds one or the other.
    pub(crate) fn lost_wake_up(&self, id: WaitId, nr_wake_ups: u64, nr_held: u32) -> bool {
        let state = self.lock();
        // Acquire: pairs with the release that follows `put`.
        let is_putting = |user: &User| user.id != id && user.is_putting.load(Ordering::Acquire);
        state.nr_wake_ups == nr_wake_ups
            && self.set.nr_busy() <= nr_held
            && !state.users.iter().any(is_putting)
    }

    fn locked<'a>(&'a self, waits: &'a mut TagWaits) -> LockedWaits<'a> {
        LockedWaits::new(waits, &self.set, &self.count)
    }

    /// Changes the wait queue and records the users that this wakes.
    fn wake(
        &self,
        state: &mut State,
        woken: &mut Woken,
        change: impl FnOnce(&mut LockedWaits<'_>, &mut dyn FnMut(WaitId)) -> u32,
    ) -> u32 {
        let State { waits, shares, users, nr_wake_ups, .. } = state;
        shares.sort(waits);
        change(&mut self.locked(waits), &mut |id| {
            let user = users.iter_mut().find(|user| user.id == id);
            let user = user.expect("each wait has a user");
            user.tag_wait = TagWait::Woken;
            *nr_wake_ups += 1;
            if woken.capacity() == 0 {
                *woken = take_list();
            }
            woken.push(Weak::clone(&user.disk));
        })
    }
}

/// Returns the wait of a user. Each wait is for one tag.
fn wait_of(id: WaitId) -> Wait {
    Wait { id, need: 1 }
}

/// A user that has put tags, and has `nr_held` left. Users that this wakes are added to `woken`,
/// and run after the token of the context is released.
struct Putting<'a> {
    pool: &'a TagPool,
    id: WaitId,
    nr_held: u32,
    woken: &'a mut Woken,
}

impl TagHolder for Putting<'_> {
    fn tags(&self) -> &TagSet {
        &self.pool.set
    }

    #[inline]
    fn count(&self) -> &WaiterCount {
        &self.pool.count
    }

    fn with_waits(
        &mut self,
        change: impl FnOnce(&mut LockedWaits<'_>, &mut dyn FnMut(WaitId)) -> u32,
    ) -> u32 {
        let mut state = self.pool.lock();
        state.note_held(self.id, self.nr_held);
        self.pool.wake(&mut state, self.woken, change)
    }
}

impl State {
    fn user(&mut self, id: WaitId) -> &mut User {
        let user = self.users.iter_mut().find(|user| user.id == id);
        user.expect("the context has joined the set")
    }

    /// Returns how many tags a user may have in its next turn: its share, if another user has less
    /// than its share and wants more. A user over its share keeps its tags, but does not replace
    /// them.
    fn limit(&mut self, id: WaitId, nr_held: u32) -> u32 {
        self.note_held(id, nr_held);
        match self.shares.allowance(id, nr_held) {
            u32::MAX => u32::MAX,
            _ => self.shares.share(),
        }
    }

    /// Records how many tags a user has. Shares are computed over users that have or want tags.
    fn note_held(&mut self, id: WaitId, nr_held: u32) {
        self.user(id).nr_held = nr_held;
        self.shares.hold(id, nr_held);
        let is_active = |user: &&User| user.nr_held > 0 || user.tag_wait != TagWait::Out;
        let nr_active = self.users.iter().filter(is_active).count().max(1) as u32;
        let depth = self.waits.depth();
        self.shares.resize(depth, nr_active);
    }
}

impl fmt::Debug for TagPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagPool").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk;
    use crate::sys::forked::in_child;

    #[test]
    fn child_of_a_fork_opens_a_set_while_its_parent_opens_one() {
        let mut pools = POOLS.lock();
        let in_parent = Arc::new(TagPool::new("parent-set", 1));
        pools.push(Arc::downgrade(&in_parent));
        assert!(in_child(|| {
            let other = Disk::open("ram:1M?tag_set=child-set&queue_depth=2");
            let same_name = TagPool::named("parent-set", 2);
            other.is_ok() && same_name.is_ok()
        }));
        drop((pools, in_parent));
    }
}
