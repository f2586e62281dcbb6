//! Waiting for tags: nobody sleeps while its tag is free (T1, T2, T5).

use std::sync::Arc;

use forebay_core::{Tag, TagSet, TagWaits, Wait, WaitId, WaiterCount};
use loom::sync::Mutex;
use loom::thread;

use crate::common::{Baton, explore};

/// A tag set as the runtime has it: waits under a lock, their count beside it, and beds.
struct Pool {
    tags: TagSet,
    count: WaiterCount,
    waits: Mutex<TagWaits>,
    batons: Vec<Baton>,
    donates: bool,
}

impl Pool {
    /// Two tags, both in use.
    fn new(donates: bool) -> Arc<Pool> {
        let tags = TagSet::new(2);
        assert!(tags.try_get_all(2, &mut 0, &mut |_| ()));
        let waits = Mutex::new(TagWaits::new(2));
        let batons = vec![Baton::new(), Baton::new()];
        Arc::new(Pool { tags, count: WaiterCount::new(), waits, batons, donates })
    }

    /// What is said under the lock; who is woken by it is so after.
    fn with_waits<T>(&self, act: impl FnOnce(&mut TagWaits, &mut dyn FnMut(WaitId)) -> T) -> T {
        let mut woken = Vec::new();
        let mut waits = self.waits.lock().unwrap();
        let result = act(&mut waits, &mut |id| {
            self.count.leave();
            woken.push(id);
        });
        drop(waits);
        woken.into_iter().for_each(|id: WaitId| self.batons[id.0 as usize].give());
        result
    }

    fn put(&self, tag: Tag) {
        self.tags.put(tag);
        if self.count.anybody_waits() {
            self.with_waits(|waits, out| waits.wake(1, &mut |id| out(id)));
        }
    }

    fn get(&self, id: WaitId) -> Tag {
        let mut hint = 0;
        let wait = Wait { id, need: 1 };
        let mut join: fn(&mut TagWaits, Wait) = TagWaits::push;
        let mut got = self.tags.try_get(&mut hint);
        while got.is_none() {
            self.with_waits(|waits, _| {
                join(waits, wait);
                self.count.announce();
            });
            join = TagWaits::requeue;
            got = self.tags.try_get(&mut hint);
            if got.is_some() {
                self.with_waits(|waits, out| self.leave(waits, wait, out));
            } else {
                self.batons[id.0 as usize].await_it();
                got = self.tags.try_get(&mut hint);
            }
        }
        got.unwrap()
    }

    fn leave(&self, waits: &mut TagWaits, wait: Wait, out: &mut dyn FnMut(WaitId)) {
        if waits.remove(wait.id, &mut |id| out(id)) {
            self.count.leave();
        } else if self.donates {
            waits.donate(wait.need, &mut |id| out(id));
        }
    }
}

/// Two waiters, and for each tag in use a step that ought to put it. The waiters keep what they
/// get, so that they get it from the puts alone.
fn check(bound: Option<usize>, donates: bool, puts: [fn(&Pool, Tag); 2]) {
    explore(bound, move || {
        let pool = Pool::new(donates);
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
        assert!(pool.waits.lock().unwrap().is_empty() && !pool.count.anybody_waits());
    });
}

/// T1, T2, T5: two waiters and two wakers, each with one tag to put: both waiters come back.
/// Bound 3: 16 s.
#[test]
fn two_waiters_and_two_wakers() {
    check(Some(3), true, [Pool::put, Pool::put]);
}

/// T1, T2: one waiter and one waker, without a bound.
#[test]
fn one_waiter_and_one_waker() {
    explore(None, || {
        let pool = Pool::new(true);
        let other = pool.clone();
        let waker = thread::spawn(move || other.put(Tag::from_index(1)));
        assert_eq!(pool.get(WaitId(0)).index(), 1);
        waker.join().unwrap();
    });
}

/// Planted: a waker puts its tag and does not look for waiters.
#[test]
#[should_panic(expected = "deadlock")]
fn planted_a_wake_up_is_skipped() {
    check(Some(2), true, [Pool::put, |pool, tag| pool.tags.put(tag)]);
}

/// T5, planted: a waiter got a tag before it was woken, and keeps the wake to itself. The tag it
/// was woken for is free, and the other sleeps.
#[test]
#[should_panic(expected = "deadlock")]
fn planted_a_wake_up_is_not_donated() {
    check(Some(3), false, [Pool::put, Pool::put]);
}
