//! A set of tags that several disks share (`tag_set=NAME`), and who of them waits for some.
//!
//! The users are the disks' shared contexts. What one does not use is in the set; who finds none
//! waits here, as a value: when tags are put that it may have, the thread that has put them makes a
//! turn of its context. So nobody sleeps for tags. (But each such disk has a thread, so that what
//! has tags makes progress whether its users are there or not.)
//!
//! The steps are those of core's `tag/shared.rs`; T1, T2 and T13 are argued there. A user's own
//! state (out, in line, or woken) is under the lock as well.

use crate::runtime::fork::Origin;
use crate::runtime::primitive::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use crate::runtime::shared::Shared;
use forebay_core::{TagSet, TagShares, TagWaits, Wait, WaitId, WaiterCount, WakePolicy};
use std::fmt;
use std::sync::{Arc, PoisonError, Weak};

/// See the module.
pub(crate) struct TagPool {
    name: String,
    origin: Origin,
    pub(crate) set: Arc<TagSet>,
    /// Those in line.
    count: WaiterCount,
    /// Those that want tags, in line or woken.
    hungry: WaiterCount,
    state: Mutex<State>,
}

struct State {
    waits: TagWaits,
    shares: TagShares,
    users: Vec<User>,
    next_id: u64,
    /// How often a user was woken.
    nr_wake_ups: u64,
}

/// A context that uses the set.
struct User {
    id: WaitId,
    disk: Weak<Shared>,
    nr_held: u32,
    place: Place,
    is_putting: Arc<AtomicBool>,
}

/// Where a user stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Out,
    InLine,
    Woken,
}

/// Disks whose contexts are to be run, since there are tags for them.
pub(crate) type Woken = Vec<Weak<Shared>>;

/// All sets with a name.
static POOLS: std::sync::Mutex<Vec<Weak<TagPool>>> = std::sync::Mutex::new(Vec::new());

impl TagPool {
    pub(crate) fn new(name: &str, depth: u32) -> TagPool {
        TagPool {
            name: name.to_owned(),
            origin: Origin::here(),
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

    /// The set of this name, which is made if no open disk has it; or the depth that it has, if
    /// that is another. A parent's is not a child's: what was in use when it forked never comes
    /// back there.
    pub(crate) fn named(name: &str, depth: u32) -> Result<Arc<TagPool>, u32> {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        let is_it = |pool: &Arc<TagPool>| pool.name == name && !pool.origin.is_elsewhere();
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
    pub(crate) fn join(&self, disk: &Weak<Shared>, is_putting: &Arc<AtomicBool>) -> WaitId {
        let mut state = self.lock();
        state.next_id += 1;
        let id = WaitId(state.next_id);
        let (disk, is_putting) = (Weak::clone(disk), Arc::clone(is_putting));
        state.users.push(User { id, disk, nr_held: 0, place: Place::Out, is_putting });
        id
    }

    /// A user is gone, which has no tags any more.
    pub(crate) fn leave(&self, id: WaitId) {
        self.lock().users.retain(|user| user.id != id);
    }

    /// How many tags a user that has `nr_held` may have in its next turn.
    #[inline]
    pub(crate) fn limit(&self, id: WaitId, nr_held: u32) -> u32 {
        // A hint: who does not see that others want some may take one turn's tags more.
        if !self.hungry.seems_waited() {
            return u32::MAX;
        }
        let mut state = self.lock();
        state.limit(id, nr_held)
    }

    /// A user has put tags back (T2), and has `nr_held`. Adds to `woken` who may have them.
    #[inline]
    pub(crate) fn put(&self, id: WaitId, nr_put: u32, nr_held: u32, woken: &mut Woken) {
        if nr_put > 0 && self.count.anybody_waits() {
            let mut state = self.lock();
            state.note_held(id, nr_held);
            self.wake(&mut state, woken, |waits, nr_busy, out| {
                waits.wake(nr_put, nr_busy, &mut |id| out(id))
            });
        }
    }

    /// A user wants more than it has found. It is in line after this, and tries once more, up to
    /// the limit that this returns.
    pub(crate) fn want(&self, id: WaitId, nr_held: u32) -> u32 {
        let mut state = self.lock();
        let wait = Wait { id, need: 1 };
        let before = std::mem::replace(&mut state.user(id).place, Place::InLine);
        match before {
            Place::InLine => {}
            Place::Out => {
                state.shares.wait(id, nr_held);
                self.hungry.announce();
                state.waits.push(wait);
                self.count.announce();
            }
            Place::Woken => {
                state.waits.requeue(wait);
                self.count.announce();
            }
        }
        state.limit(id, nr_held)
    }

    /// A user that was in line has all it wants. A wake-up that it may not have used goes on (T5).
    pub(crate) fn is_content(&self, id: WaitId, nr_held: u32, woken: &mut Woken) {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.user(id).place, Place::Out);
        if before == Place::Out {
            return;
        }
        state.shares.done(id);
        self.hungry.leave();
        state.note_held(id, nr_held);
        self.wake(&mut state, woken, |waits, nr_busy, out| {
            if before == Place::Woken {
                waits.donate(1, nr_busy, &mut |id| out(id));
            } else if waits.remove(id, &mut |id| out(id)) {
                self.count.leave();
            }
        });
    }

    /// For a user that holds no tag, before a turn: returns how many wake-ups there were, if the
    /// user is in line and no wake-up is on its way to another.
    pub(crate) fn before_turn_in_line(&self, id: WaitId) -> Option<u64> {
        let mut state = self.lock();
        let is_woken = state.users.iter().any(|user| user.place == Place::Woken);
        (!is_woken && state.user(id).place == Place::InLine).then_some(state.nr_wake_ups)
    }

    /// Returns whether a wake-up was lost (T1), for a user that was in line before its latest turn,
    /// when there were `nr_wake_ups`, and got tags in that turn. It has `nr_held` now.
    ///
    /// One was, if no other user holds a tag or is putting some, and none was woken meanwhile: the
    /// tag was free, and nothing would have woken this user. It is exact: whoever puts a tag sets
    /// `is_putting` before, and clears it when it has woken another, so this finds either.
    pub(crate) fn lost_wake_up(&self, id: WaitId, nr_wake_ups: u64, nr_held: u32) -> bool {
        let state = self.lock();
        // Acquire: pairs with the release that follows `put`.
        let is_putting = |user: &User| user.id != id && user.is_putting.load(Ordering::Acquire);
        state.nr_wake_ups == nr_wake_ups
            && self.set.nr_busy() <= nr_held
            && !state.users.iter().any(is_putting)
    }

    /// Lets the line say whom something wakes.
    fn wake(
        &self,
        state: &mut State,
        woken: &mut Woken,
        act: impl FnOnce(&mut TagWaits, u32, &mut dyn FnMut(WaitId)),
    ) {
        let State { waits, shares, users, nr_wake_ups, .. } = state;
        shares.sort(waits);
        act(waits, self.set.nr_busy(), &mut |id| {
            self.count.leave();
            let user = users.iter_mut().find(|user| user.id == id);
            let user = user.expect("who is in line is a user");
            user.place = Place::Woken;
            *nr_wake_ups += 1;
            woken.push(Weak::clone(&user.disk));
        });
    }
}

impl State {
    fn user(&mut self, id: WaitId) -> &mut User {
        let user = self.users.iter_mut().find(|user| user.id == id);
        user.expect("who uses the set has joined")
    }

    /// How many tags a user may have in its next turn: its share, if another has less than its own
    /// and wants more. What it has over that it keeps, and does not replace.
    fn limit(&mut self, id: WaitId, nr_held: u32) -> u32 {
        self.note_held(id, nr_held);
        match self.shares.allowance(id, nr_held) {
            u32::MAX => u32::MAX,
            _ => self.shares.share(),
        }
    }

    /// How many tags a user has. Shares are among those that have some, or want some.
    fn note_held(&mut self, id: WaitId, nr_held: u32) {
        self.user(id).nr_held = nr_held;
        self.shares.hold(id, nr_held);
        let is_active = |user: &&User| user.nr_held > 0 || user.place != Place::Out;
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
