//! Models of tag waits: no waiter sleeps while its tag is free (T1, T2, T5).

use std::sync::Arc;

use forebay_core::tag_steps::{self as steps, LockedWaits, TagHolder, TagSleeper};
use forebay_core::{Tag, TagSet, TagWaits, Wait, WaitId, WaiterCount, WakePolicy};
use loom::sync::Mutex;
use loom::thread;

use crate::common::{Baton, explore};

/// A tag set as the runtime uses it: waits under a lock, the waiter count, and a baton per thread.
struct Pool {
    tags: TagSet,
    count: WaiterCount,
    waits: Mutex<TagWaits>,
    batons: Vec<Baton>,
    /// If false, the pool has the planted fault.
    donates: bool,
    counts_busy_under_the_lock: bool,
}

impl Pool {
    /// Creates a set in which the first `nr_busy` tags are in use.
    fn new(policy: WakePolicy, depth: u32, nr_busy: u32) -> Pool {
        let tags = TagSet::new(depth);
        assert!(tags.try_get_exact(nr_busy, &mut 0, &mut |_| ()).is_ok());
        Pool {
            tags,
            count: WaiterCount::new(),
            waits: Mutex::new(TagWaits::new(policy, depth)),
            batons: vec![Baton::new(), Baton::new()],
            donates: true,
            counts_busy_under_the_lock: true,
        }
    }

    fn nr_busy(&self) -> u32 {
        self.tags.depth() - self.tags.nr_free()
    }

    fn user(&self, id: WaitId) -> User<'_> {
        User { pool: self, id, got: Vec::new() }
    }

    fn put(&self, tag: Tag) {
        let mut user = self.user(WaitId(u64::MAX));
        if self.counts_busy_under_the_lock {
            return steps::put(&mut user, |tags| {
                tags.put(tag);
                1
            });
        }
        self.tags.put(tag);
        let nr_busy = self.nr_busy();
        if self.count.any_thread_waits() {
            let mut woken = Vec::new();
            self.waits.lock().unwrap().wake(1, nr_busy, &mut |id| woken.push(id));
            woken.iter().for_each(|_| self.count.leave());
            self.wake(woken);
        }
    }

    fn wake(&self, woken: Vec<WaitId>) {
        woken.into_iter().for_each(|WaitId(id)| self.batons[id as usize].give());
    }

    fn get(&self, id: WaitId) -> Tag {
        let mut user = self.user(id);
        if self.donates {
            steps::take(&mut user, 1);
            return user.got[0];
        }
        if user.try_take(1).is_ok() {
            return user.got[0];
        }
        let wait = Wait { id, need: 1 };
        self.join(wait);
        self.await_tags(wait)[0]
    }

    fn join(&self, wait: Wait) {
        self.user(wait.id).with_waits(|waits, _| {
            waits.join(wait);
            0
        });
    }

    /// Gets tags for a wait that has joined the queue.
    fn await_tags(&self, wait: Wait) -> Vec<Tag> {
        let mut user = self.user(wait.id);
        loop {
            if user.try_take(wait.need).is_ok() {
                if self.donates {
                    user.with_waits(|waits, out| waits.leave(wait, out));
                } else if self.waits.lock().unwrap().remove(wait.id, &mut |_| ()) {
                    self.count.leave();
                }
                return user.got;
            }
            user.sleep(wait.id);
            if user.try_take(wait.need).is_ok() {
                return user.got;
            }
            user.with_waits(|waits, _| {
                waits.rejoin(wait);
                0
            });
        }
    }
}

/// A thread at the set, with the tags that it has taken.
struct User<'a> {
    pool: &'a Pool,
    id: WaitId,
    got: Vec<Tag>,
}

impl TagHolder for User<'_> {
    fn tags(&self) -> &TagSet {
        &self.pool.tags
    }

    fn count(&self) -> &WaiterCount {
        &self.pool.count
    }

    fn with_waits(
        &mut self,
        change: impl FnOnce(&mut LockedWaits<'_>, &mut dyn FnMut(WaitId)) -> u32,
    ) -> u32 {
        let Pool { tags, count, waits, .. } = self.pool;
        let mut woken = Vec::new();
        let mut waits = waits.lock().unwrap();
        let mut locked = LockedWaits::new(&mut waits, tags, count);
        let nr_freed = change(&mut locked, &mut |id| woken.push(id));
        drop(waits);
        self.pool.wake(woken);
        nr_freed
    }
}

impl TagSleeper for User<'_> {
    /// A failed try is not reported, so that only the puts wake a waiter.
    fn try_take(&mut self, need: u32) -> Result<(), u32> {
        let got = &mut self.got;
        self.pool.tags.try_get_exact(need, &mut 0, &mut |tag| got.push(tag)).map_err(|_| 0)
    }

    fn begin_wait(&mut self) -> WaitId {
        self.id
    }

    fn sleep(&mut self, WaitId(id): WaitId) {
        self.pool.batons[id as usize].await_it();
    }
}

/// Runs two waiters on a set of two tags, and for each tag in use a step that should put it. The
/// waiters keep their tags, so only the puts provide them.
fn check(bound: Option<usize>, policy: WakePolicy, donates: bool, puts: [fn(&Pool, Tag); 2]) {
    explore(bound, move || {
        let pool = Arc::new(Pool { donates, ..Pool::new(policy, 2, 2) });
        let spawn_put = |index: usize| {
            let pool = pool.clone();
            thread::spawn(move || puts[index](&pool, Tag::from_index(index)))
        };
        let wakers = [spawn_put(0), spawn_put(1)];
        let other = pool.clone();
        let waiter = thread::spawn(move || other.get(WaitId(1)));
        let tag = pool.get(WaitId(0));
        assert_ne!(tag, waiter.join().unwrap(), "a tag is live twice");
        wakers.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(pool.waits.lock().unwrap().is_empty() && !pool.count.any_thread_waits());
    });
}

/// T1, T2, T5: two waiters, and two wakers that each put one tag: both waiters return.
#[test]
fn two_waiters_and_two_wakers() {
    for policy in WakePolicy::ALL {
        check(Some(2), policy, true, [Pool::put, Pool::put]);
    }
}

/// T1, T2: one waiter and one waker, without a bound.
#[test]
fn one_waiter_and_one_waker() {
    for policy in WakePolicy::ALL {
        explore(None, move || {
            let pool = Arc::new(Pool::new(policy, 2, 2));
            let other = pool.clone();
            let waker = thread::spawn(move || other.put(Tag::from_index(1)));
            assert_eq!(pool.get(WaitId(0)).index(), 1);
            waker.join().unwrap();
        });
    }
}

/// T1, T6: the depth rises from 1 to 2. Tag 0 stays in use. At the same time another thread, which
/// reads either depth, puts tag 1. The waiter gets it. Bound 3.
#[test]
fn a_waiter_and_a_depth_that_rises() {
    for policy in WakePolicy::ALL {
        explore(Some(3), move || {
            let pool = Arc::new(Pool::new(policy, 2, 2));
            steps::resize(&mut pool.user(WaitId(0)), 1);
            let [grower, putter] = [pool.clone(), pool.clone()];
            let grower = thread::spawn(move || steps::resize(&mut grower.user(WaitId(0)), 2));
            let putter = thread::spawn(move || putter.put(Tag::from_index(1)));
            assert_eq!(pool.get(WaitId(0)).index(), 1);
            grower.join().unwrap();
            putter.join().unwrap();
        });
    }
}

/// As above, but the depth falls from 2 to 1: both tags are put, and a waiter gets the one that
/// stays.
#[test]
fn a_waiter_and_a_depth_that_falls() {
    for policy in WakePolicy::ALL {
        explore(Some(3), move || {
            let pool = Arc::new(Pool::new(policy, 2, 2));
            let [shrinker, putter] = [pool.clone(), pool.clone()];
            let shrinker = thread::spawn(move || {
                steps::resize(&mut shrinker.user(WaitId(0)), 1);
                shrinker.put(Tag::from_index(1));
            });
            let putter = thread::spawn(move || putter.put(Tag::from_index(0)));
            let got = pool.get(WaitId(0));
            assert!(got.index() < 2);
            shrinker.join().unwrap();
            putter.join().unwrap();
        });
    }
}

/// Stash with two words: 51 of 66 tags are in use, and two threads put one tag each, of different
/// words. There are four waiters; the first needs 17 tags. The second put leaves 49 tags in use,
/// under three quarters, and wakes the first waiter.
fn check_stash(counts_busy_under_the_lock: bool) {
    explore(Some(4), move || {
        let pool = Pool::new(WakePolicy::Stash, 66, 51);
        // One tag of the last word has to be in use, and one tag of the first word free instead.
        let second = pool.tags.try_get(&mut 1).expect("a tag");
        pool.tags.put(Tag::from_index(50));
        let pool = Arc::new(Pool { counts_busy_under_the_lock, ..pool });
        let wait = Wait { id: WaitId(0), need: 17 };
        pool.join(wait);
        for id in 1..=3 {
            pool.join(Wait { id: WaitId(id), need: 33 });
        }
        let wakers = [Tag::from_index(0), second].map(|tag| {
            let pool = pool.clone();
            thread::spawn(move || pool.put(tag))
        });
        assert_eq!(pool.await_tags(wait).len(), 17);
        wakers.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// T1: the last thread that reports freed tags sees all puts.
#[test]
fn stash_sees_the_last_put() {
    check_stash(true);
}

/// T1, planted: tags in use are counted right after the put, before the barrier and the lock. Each
/// of the two threads counts the other's tag as in use.
#[test]
#[should_panic(expected = "deadlock")]
fn planted_tags_in_use_are_counted_too_early() {
    check_stash(false);
}

/// Planted: a waker puts its tag and does not check for waiters.
#[test]
#[should_panic(expected = "deadlock")]
fn planted_a_wake_up_is_skipped() {
    check(Some(2), WakePolicy::Fair, true, [Pool::put, |pool, tag| pool.tags.put(tag)]);
}

/// T5, planted: a waiter got a tag before it was woken, and does not give its wake-up back. The tag
/// that it was woken for is free, and the other waiter sleeps. The bound is that of the model
/// without the fault; otherwise this would not show that the bound is large enough.
#[test]
#[should_panic(expected = "deadlock")]
fn planted_a_wake_up_is_not_donated() {
    check(Some(2), WakePolicy::Fair, false, [Pool::put, Pool::put]);
}
