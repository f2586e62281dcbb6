//! Tests of the steps of users that wait for tags, by users that take turns on one thread.

use forebay_core::tag_steps::{
    LockedWaits, TagHolder, TagSleeper, TagStep, put, report_freed, resize, take,
};
use forebay_core::{Tag, TagSet, TagWaits, WaitId, WaiterCount, WakePolicy};
use std::cell::RefCell;

/// The state that all users share.
struct Shared {
    set: TagSet,
    count: WaiterCount,
    waits: RefCell<TagWaits>,
    woken: RefCell<Vec<u64>>,
}

impl Shared {
    fn new(depth: u32) -> Shared {
        Shared {
            set: TagSet::new(depth),
            count: WaiterCount::new(),
            waits: RefCell::new(TagWaits::new(WakePolicy::Fair, depth)),
            woken: RefCell::default(),
        }
    }
}

/// A user of the set. While it sleeps, others act.
struct User<'a> {
    shared: &'a Shared,
    id: u64,
    tags: Vec<Tag>,
    steps: Vec<TagStep>,
    /// The actions of others, in order: after it has joined the queue, and in each sleep.
    on_joined: Option<Box<dyn FnOnce() + 'a>>,
    in_sleeps: Vec<Box<dyn FnOnce() + 'a>>,
}

impl<'a> User<'a> {
    fn new(shared: &'a Shared, id: u64) -> User<'a> {
        let (tags, steps, in_sleeps) = Default::default();
        User { shared, id, tags, steps, on_joined: None, in_sleeps }
    }

    fn put_all(&mut self) {
        let tags = std::mem::take(&mut self.tags);
        let nr = tags.len() as u32;
        put(self, |set| {
            set.put_many(tags.into_iter());
            nr
        });
    }
}

impl TagHolder for User<'_> {
    fn tags(&self) -> &TagSet {
        &self.shared.set
    }

    fn count(&self) -> &WaiterCount {
        &self.shared.count
    }

    fn with_waits(
        &mut self,
        change: impl FnOnce(&mut LockedWaits<'_>, &mut dyn FnMut(WaitId)) -> u32,
    ) -> u32 {
        let Shared { set, count, waits, woken } = self.shared;
        let mut waits = waits.borrow_mut();
        let mut waits = LockedWaits::new(&mut waits, set, count);
        change(&mut waits, &mut |id| woken.borrow_mut().push(id.0))
    }

    fn step(&mut self, made: TagStep) {
        self.steps.push(made);
        if made == TagStep::Joined
            && let Some(act) = self.on_joined.take()
        {
            act();
        }
    }
}

impl TagSleeper for User<'_> {
    fn try_take(&mut self, need: u32) -> Result<(), u32> {
        self.shared.set.try_get_exact(need, &mut 0, &mut |tag| self.tags.push(tag))
    }

    fn begin_wait(&mut self) -> WaitId {
        WaitId(self.id)
    }

    fn sleep(&mut self, id: WaitId) {
        assert_eq!(id, WaitId(self.id));
        assert!(!self.in_sleeps.is_empty(), "no other user is left to wake it");
        self.in_sleeps.remove(0)();
    }
}

/// Asserts that no wait and no announcement is left.
fn check_quiet(shared: &Shared) {
    assert!(shared.waits.borrow().is_empty() && !shared.count.any_thread_waits());
}

#[test]
fn user_that_finds_its_tags_does_not_wait() {
    let shared = Shared::new(4);
    let mut user = User::new(&shared, 1);
    assert_eq!((take(&mut user, 2), user.tags.len()), (0, 2));
    user.put_all();
    assert_eq!(user.steps, [TagStep::Put, TagStep::FoundNoWaiter]);
    report_freed(&mut user, 0);
    assert_eq!(user.steps.len(), 2, "nothing was freed");
    check_quiet(&shared);
}

#[test]
fn user_sleeps_until_its_tags_are_put() {
    let shared = Shared::new(4);
    let mut holder = User::new(&shared, 1);
    assert_eq!(take(&mut holder, 2), 0);
    assert_eq!(take(&mut holder, 2), 0);
    let mut user = User::new(&shared, 2);
    user.in_sleeps.push(Box::new(|| {
        holder.put_all();
        assert_eq!(holder.steps, [TagStep::Put, TagStep::FoundWaiter]);
    }));
    assert_eq!((take(&mut user, 2), user.tags.len()), (1, 2));
    assert_eq!(user.steps, [TagStep::Joined]);
    drop(user);
    assert_eq!(*shared.woken.borrow(), [2]);
    check_quiet(&shared);
}

#[test]
fn user_that_is_woken_in_vain_waits_again() {
    let shared = Shared::new(1);
    let (mut holder, mut faster) = (User::new(&shared, 1), User::new(&shared, 2));
    take(&mut holder, 1);
    let faster = RefCell::new(&mut faster);
    let mut user = User::new(&shared, 3);
    user.in_sleeps.push(Box::new(|| {
        holder.put_all();
        take(*faster.borrow_mut(), 1);
    }));
    user.in_sleeps.push(Box::new(|| faster.borrow_mut().put_all()));
    assert_eq!(take(&mut user, 1), 2);
    assert_eq!(user.steps, [TagStep::Joined, TagStep::WokenInVain, TagStep::Joined]);
    drop(user);
    assert_eq!(*shared.woken.borrow(), [3, 3]);
    check_quiet(&shared);
}

#[test]
fn user_that_gets_its_tags_after_it_has_joined_gives_a_wake_up_back() {
    for is_woken in [false, true] {
        let shared = Shared::new(1);
        let mut holder = User::new(&shared, 1);
        take(&mut holder, 1);
        let mut user = User::new(&shared, 2);
        user.on_joined = Some(Box::new(|| match is_woken {
            true => holder.put_all(),
            // As by a thread that has put the tag before the wait was announced.
            false => shared.set.put(holder.tags.remove(0)),
        }));
        assert_eq!((take(&mut user, 1), user.tags.len()), (0, 1));
        let steps = [TagStep::Joined, TagStep::Got, TagStep::GaveBack];
        assert_eq!(user.steps, steps[..2 + usize::from(is_woken)], "T5");
        drop(user);
        check_quiet(&shared);
    }
}

#[test]
fn policy_gets_a_smaller_depth_first_and_a_larger_one_last() {
    let shared = Shared::new(8);
    let mut user = User::new(&shared, 1);
    resize(&mut user, 2);
    assert_eq!((shared.set.depth(), shared.waits.borrow().depth(), user.steps.len()), (2, 2, 0));
    take(&mut user, 1);
    take(&mut user, 1);
    let mut waiter = User::new(&shared, 2);
    // New tags wake waiters.
    waiter.in_sleeps.push(Box::new(|| {
        resize(&mut user, 6);
        assert_eq!(user.steps, [TagStep::ResizedSet], "T6");
    }));
    assert_eq!((take(&mut waiter, 1), waiter.tags.len()), (1, 1));
    drop(waiter);
    assert_eq!((shared.set.depth(), shared.waits.borrow().depth()), (6, 6));
    check_quiet(&shared);
}
