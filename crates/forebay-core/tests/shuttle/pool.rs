//! Tags and waits as the runtime uses them: the steps of core's `tag/wait.rs`.

use forebay_core::{Tag, TagSet, TagWaits, Wait, WaitId, WaiterCount, WakePolicy};
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

    fn with_waits(&self, act: impl FnOnce(&mut TagWaits, &mut dyn FnMut(WaitId))) {
        let mut woken = Vec::new();
        let mut waits = self.waits.lock().unwrap();
        act(&mut waits, &mut |id| {
            self.count.leave();
            woken.push(id);
        });
        drop(waits);
        for WaitId(id) in woken {
            let (is_given, changed) = &self.beds[id as usize];
            *is_given.lock().unwrap() = true;
            changed.notify_one();
        }
    }

    fn sleep(&self, id: WaitId) {
        let (is_given, changed) = &self.beds[id.0 as usize];
        let mut is_given = is_given.lock().unwrap();
        while !*is_given {
            is_given = changed.wait(is_given).unwrap();
        }
        *is_given = false;
    }

    /// Gets tags. Tags that a failed try held for a moment are reported as put.
    fn try_get(&self, need: u32) -> Option<Vec<Tag>> {
        let mut got = Vec::new();
        if let Err(nr) = self.tags.try_get_exact(need, &mut 0, &mut |tag| got.push(tag)) {
            self.wake(nr);
            return None;
        }
        for tag in &got {
            assert!(!self.live[tag.index()].swap(true, Relaxed), "a tag is live twice");
        }
        Some(got)
    }

    fn wake(&self, nr: u32) {
        if nr > 0 && self.count.any_thread_waits() {
            self.with_waits(|waits, out| waits.wake(nr, self.tags.nr_busy(), &mut |id| out(id)));
        }
    }

    pub(crate) fn get(&self, id: u64, need: u32) -> Vec<Tag> {
        if let Some(got) = self.try_get(need) {
            return got;
        }
        let wait = Wait { id: WaitId(id), need };
        let mut join: fn(&mut TagWaits, Wait) = TagWaits::push;
        loop {
            self.with_waits(|waits, _| {
                join(waits, wait);
                self.count.announce();
            });
            join = TagWaits::requeue;
            if let Some(got) = self.try_get(need) {
                self.leave(wait);
                return got;
            }
            self.sleep(wait.id);
            if let Some(got) = self.try_get(need) {
                return got;
            }
        }
    }

    fn leave(&self, wait: Wait) {
        let mut was_woken = false;
        self.with_waits(|waits, out| {
            was_woken = !waits.remove(wait.id, &mut |id| out(id));
            if was_woken {
                waits.donate(wait.need, self.tags.nr_busy(), &mut |id| out(id));
            } else {
                self.count.leave();
            }
        });
        if was_woken {
            // The wake-up has arrived or will arrive.
            self.sleep(wait.id);
        }
    }

    pub(crate) fn put(&self, tags: Vec<Tag>) {
        let nr = tags.len() as u32;
        tags.iter().for_each(|tag| self.live[tag.index()].store(false, Relaxed));
        self.tags.put_many(tags.into_iter());
        self.wake(nr);
    }

    /// Resizes in the order of T6.
    pub(crate) fn resize(&self, depth: u32) {
        self.with_waits(|waits, out| {
            if depth > self.tags.depth() {
                self.tags.resize(depth);
            }
            waits.resize(depth, &mut |id| out(id));
            if depth < self.tags.depth() {
                self.tags.resize(depth);
            }
        });
    }

    pub(crate) fn check_idle(&self) {
        assert_eq!((self.tags.nr_busy(), self.tags.nr_free()), (0, self.tags.depth()));
        assert!(self.waits.lock().unwrap().is_empty() && !self.count.any_thread_waits());
    }
}
