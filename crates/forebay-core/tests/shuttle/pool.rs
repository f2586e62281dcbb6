//! A tag set whose users are threads, by the core's steps.

use forebay_core::tag_steps::{self as steps, LockedWaits, TagHolder, TagSleeper, TagStep};
use forebay_core::{Tag, TagSet, TagWaits, WaitId, WaiterCount, WakePolicy};
use shuttle::sync::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(crate) struct Pool {
    tags: TagSet,
    /// Whether each tag is in use. Shuttle does not see these.
    live: Vec<AtomicBool>,
    count: WaiterCount,
    waits: Mutex<TagWaits>,
    beds: Vec<(Mutex<bool>, Condvar)>,
}

impl Pool {
    pub(crate) fn new(policy: WakePolicy, depth: u32) -> Pool {
        Pool {
            tags: TagSet::new(depth),
            live: (0..depth).map(|_| AtomicBool::new(false)).collect(),
            count: WaiterCount::new(),
            waits: Mutex::new(TagWaits::new(policy, depth)),
            beds: (0..8).map(|_| (Mutex::new(false), Condvar::new())).collect(),
        }
    }

    fn user(&self, id: u64) -> User<'_> {
        User { pool: self, id: WaitId(id), got: Vec::new() }
    }

    pub(crate) fn get(&self, id: u64, need: u32) -> Vec<Tag> {
        let mut user = self.user(id);
        steps::take(&mut user, need);
        for tag in &user.got {
            assert!(!self.live[tag.index()].swap(true, Relaxed), "a tag is live twice");
        }
        user.got
    }

    pub(crate) fn put(&self, id: u64, tags: Vec<Tag>) {
        let nr = tags.len() as u32;
        tags.iter().for_each(|tag| self.live[tag.index()].store(false, Relaxed));
        steps::put(&mut self.user(id), |set| {
            set.put_many(tags.into_iter());
            nr
        });
    }

    pub(crate) fn resize(&self, depth: u32) {
        steps::resize(&mut self.user(u64::MAX), depth);
    }

    pub(crate) fn check_idle(&self) {
        assert_eq!((self.tags.nr_busy(), self.tags.nr_free()), (0, self.tags.depth()));
        assert!(self.waits.lock().unwrap().is_empty() && !self.count.any_thread_waits());
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
        let Pool { tags, count, waits, beds, .. } = self.pool;
        let mut woken = Vec::new();
        let mut waits = waits.lock().unwrap();
        let mut locked = LockedWaits::new(&mut waits, tags, count);
        let nr_freed = change(&mut locked, &mut |id| woken.push(id));
        drop(waits);
        for WaitId(id) in woken {
            let (is_given, changed) = &beds[id as usize];
            *is_given.lock().unwrap() = true;
            changed.notify_one();
        }
        nr_freed
    }

    fn step(&mut self, made: TagStep) {
        if made == TagStep::GaveBack {
            // The wake-up has arrived or will arrive.
            self.sleep(self.id);
        }
    }
}

impl TagSleeper for User<'_> {
    fn try_take(&mut self, need: u32) -> Result<(), u32> {
        let got = &mut self.got;
        self.pool.tags.try_get_exact(need, &mut 0, &mut |tag| got.push(tag))
    }

    fn begin_wait(&mut self) -> WaitId {
        self.id
    }

    fn sleep(&mut self, WaitId(id): WaitId) {
        let (is_given, changed) = &self.pool.beds[id as usize];
        let mut is_given = is_given.lock().unwrap();
        while !*is_given {
            is_given = changed.wait(is_given).unwrap();
        }
        *is_given = false;
    }
}
