//! Models of the mailbox: its owner wakes, and may free it as soon as its goal is delivered.
//!
//! Loom does not see memory that is freed. So its owner does not free a mailbox but changes its
//! words, as nobody may who is not alone: then loom rejects a later touch. Miri sees the free.
// It shares a cell, and claims a mailbox for itself.
#![allow(unsafe_code)]

use super::{Delivered, Doing, Mailbox};
use crate::runtime::primitive::{UnsafeCell, check, check_within, thread};
use forebay_core::QueuedBio;
use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// What a deliverer did before it delivered.
#[derive(Default)]
struct Work(UnsafeCell<u64>);

// SAFETY: written before a delivery, read by who has seen it.
unsafe impl Sync for Work {}

impl Work {
    fn done(&self) {
        // SAFETY: its reader waits for the delivery.
        self.0.with_mut(|nr| unsafe { *nr += 1 });
    }

    fn nr_done(&self) -> u64 {
        // SAFETY: all deliveries were seen.
        self.0.with(|nr| unsafe { *nr })
    }
}

/// Ends the life of a mailbox: no other thread touches it from now on.
///
/// Under loom the memory stays, for who comes too late to find, until what is returned is dropped.
pub(crate) fn free(mailbox: Arc<Mailbox>) -> Option<Arc<Mailbox>> {
    // Else it is on a list of followers, and somebody may yet try to give it a baton.
    #[cfg(blk_loom)]
    if Arc::strong_count(&mailbox) == 1 {
        // SAFETY: loom looks whether we are alone.
        let alone = unsafe { &mut *Arc::as_ptr(&mailbox).cast_mut() };
        alone.word.with_mut(|_| ());
        alone.goal.with_mut(|_| ());
    }
    cfg!(blk_loom).then_some(mailbox)
}

/// Delivers to the mailbox of that name, and wakes whom that is about.
fn deliver(owner: u64, number: u32) -> bool {
    // SAFETY: models free a mailbox when this was delivered, and no sooner.
    match unsafe { Mailbox::deliver(owner, once(QueuedBio::new(0, number))) } {
        Delivered::Quietly => false,
        Delivered::ToLeader => true,
        Delivered::ToSleeper(wake) => {
            wake.fire_thread();
            wake.fire_task();
            false
        }
    }
}

/// A thread that does some work, and delivers a bio to the mailbox of that name. True: the owner
/// leads, and is to be kicked.
fn deliverer(owner: u64, number: u32) -> (thread::JoinHandle<bool>, Arc<Work>) {
    let work = Arc::new(Work::default());
    let mine = Arc::clone(&work);
    let thread = thread::spawn(move || {
        mine.done();
        deliver(owner, number)
    });
    (thread, work)
}

/// As a follower waits, but that nobody leads.
fn wait_parked(mailbox: &Mailbox, goal: u64) -> Doing {
    mailbox.begin_wait(goal, Doing::Parked);
    if mailbox.nr_delivered() < goal {
        mailbox.park();
    }
    mailbox.end_wait()
}

/// W2, and the last touch: the owner waits, takes, and frees.
fn deliver_and_free(nr: u32) {
    let mailbox = Arc::new(Mailbox::of_thread());
    let deliverers: Vec<_> = (0..nr).map(|number| deliverer(mailbox.owner(), number)).collect();
    while mailbox.nr_delivered() < nr.into() {
        wait_parked(&mailbox, nr.into());
    }
    let taken = mailbox.take().into_iter().flatten().count();
    assert_eq!(taken, nr as usize, "what was delivered is there");
    let _memory = free(mailbox);
    for (thread, work) in deliverers {
        assert_eq!(work.nr_done(), 1);
        assert!(!thread.join().unwrap(), "nobody leads");
    }
}

#[test]
fn an_owner_that_parks_is_woken_and_may_free_its_mailbox() {
    check(|| deliver_and_free(1));
}

#[test]
fn two_that_deliver_wake_an_owner_that_waits_for_both() {
    check_within(3, || deliver_and_free(2));
}

/// W4: a leader finds the delivery when it looks, or its deliverer is told to kick; or both.
#[test]
fn a_leader_sees_its_goal_or_is_to_be_kicked() {
    check(|| {
        let mailbox = Arc::new(Mailbox::of_thread());
        let (thread, _) = deliverer(mailbox.owner(), 0);
        mailbox.begin_wait(1, Doing::Leading);
        let is_seen = mailbox.nr_delivered() == 1;
        let told = thread.join().unwrap();
        assert!(is_seen || told);
        let expected = if told { Doing::Told } else { Doing::Leading };
        assert_eq!(mailbox.end_wait(), expected);
    });
}

/// One that delivers and one that gives the baton: an owner that parks gets one of the two, and
/// who gave the baton knows.
fn told_or_baton(goal: u64) {
    let mailbox = Arc::new(Mailbox::of_thread());
    let (thread, _) = deliverer(mailbox.owner(), 0);
    let giver = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || mailbox.give_baton())
    };
    mailbox.begin_wait(goal, Doing::Parked);
    if mailbox.nr_delivered() < goal {
        mailbox.park();
    }
    let (doing, given) = (mailbox.end_wait(), giver.join().unwrap());
    assert_eq!(doing == Doing::Baton, given, "a baton is not lost, and not made up");
    if doing == Doing::Told {
        assert_eq!(mailbox.nr_delivered(), goal);
    }
    thread.join().unwrap();
    assert_eq!(mailbox.nr_delivered(), 1);
}

#[test]
fn an_owner_is_told_or_gets_the_baton() {
    check_within(4, || told_or_baton(1));
}

/// A goal out of reach, so only the baton ends the wait. It may come too early: then the owner is
/// not parked yet, and nobody has promised to wake it.
#[test]
fn a_baton_for_who_is_not_parked_is_refused() {
    check(|| {
        let mailbox = Arc::new(Mailbox::of_thread());
        let giver = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.give_baton())
        };
        mailbox.begin_wait(1, Doing::Parked);
        deliver(mailbox.owner(), 0);
        mailbox.park();
        let doing = mailbox.end_wait();
        assert_eq!(doing == Doing::Baton, giver.join().unwrap());
        assert!(matches!(doing, Doing::Baton | Doing::Told));
    });
}

/// An owner that takes what it finds, before it is counted, and is gone when it has it all. It has
/// to wait for the count before it frees the mailbox.
#[test]
fn an_owner_that_takes_early_waits_for_the_count() {
    check(|| {
        let mailbox = Arc::new(Mailbox::of_thread());
        let (thread, work) = deliverer(mailbox.owner(), 0);
        let mut nr_taken = mailbox.take().into_iter().flatten().count() as u64;
        if nr_taken == 0 {
            wait_parked(&mailbox, 1);
            nr_taken = mailbox.take().into_iter().flatten().count() as u64;
        }
        assert!(!mailbox.settle(nr_taken), "nobody gives a baton");
        let _memory = free(mailbox);
        assert_eq!(work.nr_done(), 1);
        thread.join().unwrap();
    });
}

/// A task's waker: notes that it was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Two that deliver to a task: the waker that was there when it said that it waits is not lost.
#[test]
fn two_that_deliver_wake_a_task() {
    check_within(4, || {
        let (mailbox, woken) = (Arc::new(Mailbox::of_task()), Arc::new(Woken::default()));
        let deliverers = [0, 1].map(|number| deliverer(mailbox.owner(), number).0);
        mailbox.set_waker(&Waker::from(Arc::clone(&woken)));
        mailbox.begin_wait(1, Doing::Parked);
        let is_seen = mailbox.nr_delivered() > 0;
        for thread in deliverers {
            thread.join().unwrap();
        }
        assert!(is_seen || woken.0.load(Ordering::SeqCst), "it sleeps for ever");
        mailbox.end_wait();
    });
}
