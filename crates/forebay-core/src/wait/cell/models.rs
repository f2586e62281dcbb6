//! Models of the wait cell for loom: one owner, and one or two threads that deliver or wake.
//!
//! A thread does not sleep here. The owner announces a wait and reads the count or the flag. If
//! that shows nothing, it joins the other thread, which must have received the wake-up.

use super::{Notice, TAGS, WaitCell, WaitState};
use alloc::sync::Arc;
use core::sync::atomic::AtomicU32 as Ghost;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread::{self, JoinHandle};

/// A cell, and words without order of their own: a thread sees their values only through the
/// orderings of the cell.
struct Shared {
    cell: WaitCell,
    of_owner: AtomicU32,
    of_other: AtomicU32,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let (of_owner, of_other) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Shared { cell: WaitCell::new(), of_owner, of_other })
    }

    fn deliver(&self) -> Notice {
        self.cell.deliver(1, || ())
    }
}

/// Runs `act` in another thread.
fn beside<T: 'static>(
    shared: &Arc<Shared>,
    act: impl FnOnce(&Shared) -> T + 'static,
) -> JoinHandle<T> {
    let shared = Arc::clone(shared);
    thread::spawn(move || act(&shared))
}

#[test]
fn owner_sees_a_delivery_with_its_bio_or_is_woken() {
    loom::model(|| {
        let shared = Shared::new();
        let deliverer = beside(&shared, |shared| {
            shared.of_other.store(1, Relaxed);
            shared.deliver()
        });
        shared.cell.begin_wait(1, WaitState::Parked);
        if shared.cell.nr_delivered() == 1 {
            assert_eq!(shared.of_other.load(Relaxed), 1);
            deliverer.join().unwrap();
        } else {
            assert_eq!(deliverer.join().unwrap(), Notice::Wake);
        }
    });
}

/// Loom tries the test of an owner before and after a delivery, which other models rely on: see
/// `guess!`.
#[test]
fn test_of_the_owner_is_tried_before_and_after_a_delivery() {
    let nrs = Arc::new([Ghost::new(0), Ghost::new(0)]);
    let counts = Arc::clone(&nrs);
    loom::model(move || {
        let shared = Shared::new();
        let deliverer = beside(&shared, Shared::deliver);
        counts[shared.cell.nr_delivered() as usize].fetch_add(1, Relaxed);
        assert_eq!(deliverer.join().unwrap(), Notice::Nothing);
    });
    assert!(nrs.iter().all(|nr| nr.load(Relaxed) > 0), "{nrs:?}");
}

#[test]
fn delivery_below_the_goal_does_not_wake() {
    loom::model(|| {
        let shared = Shared::new();
        let deliverer = beside(&shared, Shared::deliver);
        shared.cell.begin_wait(2, WaitState::Parked);
        assert_eq!(deliverer.join().unwrap(), Notice::Nothing);
        assert_eq!(shared.cell.end_wait(), WaitState::Parked);
    });
}

#[test]
fn owner_that_waits_for_tags_sees_them_or_is_woken() {
    loom::model(|| {
        let shared = Shared::new();
        shared.cell.set_lacks_tags(true);
        let giver = beside(&shared, |shared| shared.cell.set_lacks_tags(false));
        shared.cell.begin_wait(TAGS, WaitState::Parked);
        let is_seen = shared.cell.is_reached(TAGS);
        assert!(giver.join().unwrap() == Notice::Wake || is_seen, "a wake-up is lost");
    });
}

#[test]
fn delivery_does_not_hide_tags_from_their_waiter() {
    loom::model(|| {
        let shared = Shared::new();
        shared.cell.set_lacks_tags(true);
        let deliverer = beside(&shared, Shared::deliver);
        let giver = beside(&shared, |shared| shared.cell.set_lacks_tags(false));
        shared.cell.begin_wait(TAGS, WaitState::Parked);
        let is_seen = shared.cell.is_reached(TAGS);
        assert!(giver.join().unwrap() == Notice::Wake || is_seen, "a wake-up is lost");
        assert_eq!(deliverer.join().unwrap(), Notice::Nothing);
    });
}

#[test]
fn owner_that_receives_the_baton_sees_the_work_before() {
    loom::model(|| {
        let shared = Shared::new();
        let leader = beside(&shared, |shared| {
            shared.of_other.store(1, Relaxed);
            shared.cell.give_baton()
        });
        shared.cell.begin_wait(1, WaitState::Parked);
        let is_leader = shared.cell.end_wait() == WaitState::Baton;
        if is_leader {
            assert_eq!(shared.of_other.load(Relaxed), 1);
        }
        assert_eq!(leader.join().unwrap(), is_leader);
    });
}

#[test]
fn owner_that_is_listed_already_is_seen_by_the_thread_that_unlists_it() {
    loom::model(|| {
        let shared = Shared::new();
        shared.cell.list();
        let leader = beside(&shared, |shared| {
            shared.cell.unlist();
            shared.cell.state().is_parked()
        });
        shared.cell.begin_wait(1, WaitState::Parked);
        let is_listed_now = shared.cell.list();
        assert!(is_listed_now || leader.join().unwrap(), "the owner is on no list");
    });
}

#[test]
fn cell_is_freed_once_by_the_last_to_access_it() {
    loom::model(|| {
        let shared = Shared::new();
        let deliverer = beside(&shared, |shared| {
            shared.of_other.store(1, Relaxed);
            let notice = shared.deliver();
            if notice == Notice::Free {
                assert_eq!(shared.of_owner.load(Relaxed), 1);
            }
            notice
        });
        shared.of_owner.store(1, Relaxed);
        let is_left = shared.cell.abandon();
        if !is_left {
            assert_eq!(shared.of_other.load(Relaxed), 1);
        }
        assert_eq!(deliverer.join().unwrap() == Notice::Free, is_left);
    });
}
