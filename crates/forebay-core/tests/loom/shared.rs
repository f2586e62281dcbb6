//! Models of two users of one tag set: no user sleeps forever, although a free tag may be refused
//! to one of them (T1, T13).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32 as Ghost, Ordering::Relaxed};

use forebay_core::{Tag, TagSet, TagShares, TagWaits, Wait, WaitId, WaiterCount, WakePolicy};
use loom::sync::Mutex;
use loom::thread;

use crate::common::{Baton, explore};

/// Five tags. Each of two users may have four while the other waits. At first, user 0 has all five.
struct Pool {
    tags: TagSet,
    count: WaiterCount,
    hungry: WaiterCount,
    waits: Mutex<(TagShares, TagWaits)>,
    batons: [Baton; 2],
    /// The number of tags of each user. It belongs to the user's context, so it orders nothing.
    held: [Ghost; 2],
    is_done_told: bool,
}

type Line = (TagShares, TagWaits);

impl Pool {
    fn new(is_done_told: bool) -> Pool {
        let tags = TagSet::new(5);
        assert!(tags.try_get_exact(5, &mut 0, &mut |_| ()).is_ok());
        let waits = TagWaits::new(WakePolicy::Fair, 5);
        Pool {
            tags,
            count: WaiterCount::new(),
            hungry: WaiterCount::new(),
            waits: Mutex::new((TagShares::new(5, 2), waits)),
            batons: [Baton::new(), Baton::new()],
            held: [Ghost::new(5), Ghost::new(0)],
            is_done_told,
        }
    }

    fn locked<T>(&self, act: impl FnOnce(&mut Line, &mut dyn FnMut(WaitId)) -> T) -> T {
        let mut woken = Vec::new();
        let mut line = self.waits.lock().unwrap();
        let result = act(&mut line, &mut |id| {
            self.count.leave();
            woken.push(id);
        });
        drop(line);
        woken.into_iter().for_each(|id: WaitId| self.batons[id.0 as usize].give());
        result
    }

    fn put(&self, user: usize, tag: usize) {
        self.held[user].fetch_sub(1, Relaxed);
        self.tags.put(Tag::from_index(tag));
        if self.count.any_thread_waits() {
            self.locked(|(shares, waits), out| {
                shares.hold(WaitId(user as u64), self.held[user].load(Relaxed));
                shares.sort(waits);
                waits.wake(1, self.tags.nr_busy(), &mut |id| out(id));
            });
        }
    }

    fn try_get(&self, user: usize) -> bool {
        let is_got = self.tags.try_get(&mut 0).is_some();
        self.held[user].fetch_add(u32::from(is_got), Relaxed);
        is_got
    }

    fn get(&self, user: usize) {
        if !self.hungry.seems_waited() && self.try_get(user) {
            return;
        }
        let id = WaitId(user as u64);
        let held = || self.held[user].load(Relaxed);
        let join = |line: &mut Line| {
            line.0.wait(id, held());
            self.hungry.announce();
            line.1.push(Wait { id, need: 1 });
            self.count.announce();
        };
        self.locked(|line, _| join(line));
        let is_allowed = || self.locked(|(shares, _), _| shares.allowance(id, held()) > 0);
        loop {
            if is_allowed() && self.try_get(user) {
                return self.locked(|line, out| self.leave(line, id, out));
            }
            self.batons[user].await_it();
            if is_allowed() && self.try_get(user) {
                return self.locked(|(shares, _), _| self.is_done(shares, id));
            }
            self.locked(|(_, waits), _| {
                waits.requeue(Wait { id, need: 1 });
                self.count.announce();
            });
        }
    }

    fn is_done(&self, shares: &mut TagShares, id: WaitId) {
        if self.is_done_told {
            assert!(shares.done(id));
            self.hungry.leave();
        }
    }

    fn leave(&self, (shares, waits): &mut Line, id: WaitId, out: &mut dyn FnMut(WaitId)) {
        self.is_done(shares, id);
        if waits.remove(id, &mut |id| out(id)) {
            self.count.leave();
        } else {
            shares.sort(waits);
            waits.donate(1, self.tags.nr_busy(), &mut |id| out(id));
        }
    }
}

/// Puts two tags of the first user while both users want one.
fn check(is_done_told: bool) {
    explore(Some(3), move || {
        let pool = Arc::new(Pool::new(is_done_told));
        let [device, other] = [pool.clone(), pool.clone()];
        let device = thread::spawn(move || [0, 1].map(|tag| device.put(0, tag)));
        let other = thread::spawn(move || other.get(1));
        pool.get(0);
        other.join().unwrap();
        device.join().unwrap();
        assert_eq!(pool.tags.nr_free(), 0);
        let line = pool.waits.lock().unwrap();
        assert!(line.1.is_empty() && !pool.count.any_thread_waits());
        assert!(!pool.hungry.seems_waited(), "somebody stays hungry");
    });
}

/// T1, T13. Bound 3.
#[test]
fn two_users_get_their_tags() {
    check(true);
}

/// Planted: a user that has got its tag stays hungry, and others are refused forever.
#[test]
#[should_panic(expected = "somebody stays hungry")]
fn planted_one_that_has_its_tag_stays_hungry() {
    check(false);
}
