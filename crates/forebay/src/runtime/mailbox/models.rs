//! Models of the mailbox: its owner is woken, and may free the mailbox as soon as its goal is
//! reached.
//!
//! Loom does not detect a use after free. So the owner modifies the words of the mailbox through an
//! exclusive access instead of freeing it: then loom rejects a later access. Miri detects the free
//! itself.
// It shares a cell, and takes exclusive access to a mailbox.
#![allow(unsafe_code)]

use super::{Delivered, Mailbox};
use crate::sys::primitive::{UnsafeCell, check, check_within, thread};
use forebay_core::QueuedBio;
use forebay_core::wait::WaitState;
use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// A write of a deliverer before its delivery.
#[derive(Default)]
struct Work(UnsafeCell<u64>);

// SAFETY: written before a delivery, and read by a thread that has seen the delivery.
unsafe impl Sync for Work {}

impl Work {
    fn done(&self) {
        // SAFETY: the reader waits for the delivery.
        self.0.with_mut(|nr| unsafe { *nr += 1 });
    }

    fn nr_done(&self) -> u64 {
        // SAFETY: all deliveries were seen.
        self.0.with(|nr| unsafe { *nr })
    }
}

/// Frees a mailbox: no other thread accesses it from now on.
///
/// Under loom the memory stays until the result is dropped, so that loom can detect a late access.
pub(crate) fn free(mailbox: Arc<Mailbox>) -> Option<Arc<Mailbox>> {
    // Otherwise the mailbox is on a list of followers, and another thread may still offer it a
    // baton.
    #[cfg(blk_loom)]
    if Arc::strong_count(&mailbox) == 1 {
        // SAFETY: loom checks that the access is exclusive.
        let alone = unsafe { &mut *Arc::as_ptr(&mailbox).cast_mut() };
        alone.cell.check_exclusive();
    }
    cfg!(blk_loom).then_some(mailbox)
}

/// Delivers to the mailbox with this owner ID, and wakes its owner. Returns whether the owner leads
/// and must be kicked.
fn deliver(owner: u64, number: u32) -> bool {
    // SAFETY: models free a mailbox only after this delivery.
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

/// Spawns a thread that writes its `Work`, then delivers a bio to the mailbox with this owner ID.
/// The thread returns true if the owner leads and must be kicked.
fn deliverer(owner: u64, number: u32) -> (thread::JoinHandle<bool>, Arc<Work>) {
    let work = Arc::new(Work::default());
    let mine = Arc::clone(&work);
    let thread = thread::spawn(move || {
        mine.done();
        deliver(owner, number)
    });
    (thread, work)
}

/// Waits as a follower does, but without a leader.
fn wait_parked(mailbox: &Mailbox, goal: u64) -> WaitState {
    mailbox.cell.begin_wait(goal, WaitState::Parked);
    if mailbox.cell.nr_delivered() < goal {
        mailbox.park();
    }
    mailbox.cell.end_wait()
}

/// W2, and the last access: the owner waits, takes, and frees.
fn deliver_and_free(nr: u32) {
    let mailbox = Arc::new(Mailbox::of_thread());
    let deliverers: Vec<_> = (0..nr).map(|number| deliverer(mailbox.owner(), number)).collect();
    while mailbox.cell.nr_delivered() < nr.into() {
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
fn two_deliveries_wake_an_owner_that_waits_for_both() {
    check_within(3, || deliver_and_free(2));
}

/// W4: the leader sees the delivery when it checks the count, or the delivery requests a kick; or
/// both.
#[test]
fn a_leader_sees_its_goal_or_is_to_be_kicked() {
    check(|| {
        let mailbox = Arc::new(Mailbox::of_thread());
        let (thread, _) = deliverer(mailbox.owner(), 0);
        mailbox.cell.begin_wait(1, WaitState::Leading);
        let is_seen = mailbox.cell.nr_delivered() == 1;
        let told = thread.join().unwrap();
        assert!(is_seen || told);
        let expected = if told { WaitState::Woken } else { WaitState::Leading };
        assert_eq!(mailbox.cell.end_wait(), expected);
    });
}

/// Gives the baton to the owner if it is parked. Returns whether it is.
fn give_baton(mailbox: &Mailbox) -> bool {
    let is_given = mailbox.cell.give_baton();
    if is_given {
        mailbox.wake_thread();
    }
    is_given
}

/// One thread delivers and another gives the baton. An owner that parks receives one of the two,
/// and the giver of the baton learns whether it was accepted.
fn signal_or_baton(goal: u64) {
    let mailbox = Arc::new(Mailbox::of_thread());
    let (thread, _) = deliverer(mailbox.owner(), 0);
    let giver = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || give_baton(&mailbox))
    };
    mailbox.cell.begin_wait(goal, WaitState::Parked);
    if mailbox.cell.nr_delivered() < goal {
        mailbox.park();
    }
    let (doing, given) = (mailbox.cell.end_wait(), giver.join().unwrap());
    assert_eq!(doing == WaitState::Baton, given, "a baton is not lost, and not made up");
    if doing == WaitState::Woken {
        assert_eq!(mailbox.cell.nr_delivered(), goal);
    }
    thread.join().unwrap();
    assert_eq!(mailbox.cell.nr_delivered(), 1);
}

#[test]
fn owner_is_woken_or_gets_the_baton() {
    check_within(4, || signal_or_baton(1));
}

/// The baton may come before the owner parks. Then it is refused, and only the delivery wakes the
/// owner.
#[test]
fn baton_for_a_thread_that_is_not_parked_is_refused() {
    check(|| {
        let mailbox = Arc::new(Mailbox::of_thread());
        let giver = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || give_baton(&mailbox))
        };
        mailbox.cell.begin_wait(1, WaitState::Parked);
        deliver(mailbox.owner(), 0);
        mailbox.park();
        let doing = mailbox.cell.end_wait();
        assert_eq!(doing == WaitState::Baton, giver.join().unwrap());
        assert!(matches!(doing, WaitState::Baton | WaitState::Woken));
    });
}

/// The owner takes the bio before it is counted, and then ends. It must wait for the count before
/// it frees the mailbox.
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
        assert!(!mailbox.settle(nr_taken), "no thread passes a baton");
        let _memory = free(mailbox);
        assert_eq!(work.nr_done(), 1);
        thread.join().unwrap();
    });
}

/// A task's waker that records the wake-up.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Two threads deliver to a task. The waker that was set before the task announced its wait is not
/// lost.
#[test]
fn two_deliveries_wake_a_task() {
    check_within(4, || {
        let (mailbox, woken) = (Arc::new(Mailbox::of_task()), Arc::new(Woken::default()));
        let deliverers = [0, 1].map(|number| deliverer(mailbox.owner(), number).0);
        mailbox.set_waker(&Waker::from(Arc::clone(&woken)));
        mailbox.cell.begin_wait(1, WaitState::Parked);
        let is_seen = mailbox.cell.nr_delivered() > 0;
        for thread in deliverers {
            thread.join().unwrap();
        }
        assert!(is_seen || woken.0.load(Ordering::SeqCst), "it sleeps forever");
        mailbox.cell.end_wait();
    });
}
