//! Models of the token: two threads send through one hardware context.

use crate::runtime::gates::Hold;
#[cfg(not(blk_shuttle))]
use crate::runtime::hctx::Hctx;
use crate::runtime::hctx::{At, SHARED, now_ns};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::shared::Shared;
use crate::runtime::thread::Ctx;
use crate::runtime::toy::{AT_ONCE, By, Caller, How, Page, Toy};
use crate::sys::clock;
use crate::sys::primitive::{check, check_within, thread};
use forebay_core::wait;
#[cfg(not(blk_shuttle))]
use forebay_core::wait::RESOURCE_DELAY;
use forebay_core::{Commit, Gate, QueuedBio};
use std::sync::Arc;
#[cfg(not(blk_shuttle))]
use std::time::Duration;

/// The bios that a thread has sent and not taken back.
struct Sent {
    mailbox: Arc<Mailbox>,
    pages: Vec<Box<Page>>,
}

/// Sends `nr` bios, one by one, without waiting.
fn send(shared: &Arc<Shared>, nr: u32) -> Sent {
    let ctx = Ctx::new(shared, SHARED);
    let mailbox = Arc::new(Mailbox::of_thread());
    let pages: Vec<_> = (0..nr).map(|_| Box::<Page>::default()).collect();
    for (number, page) in (0..).zip(&pages) {
        let mut bio = QueuedBio::new(mailbox.owner(), number);
        bio.fill(page.bio());
        ctx.queue_bio(bio, 0).expect("a good bio");
        ctx.turn(shared, now_ns(false), Some(Commit::Now));
    }
    Sent { mailbox, pages }
}

/// Two threads send, and a last turn reaps the remaining completions. No bio is lost, whichever
/// thread's turn handled it.
fn two_send(how: How, nr: u32) {
    let shared = Toy::disk(how);
    let other = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || send(&shared, nr))
    };
    let mine = send(&shared, nr);
    let sents = [mine, other.join().unwrap()];
    assert!(!shared.hctx(SHARED).run.is_running(), "the holder has released the token");
    // Everything is issued by now. The last turn of each thread did not find its own completion
    // yet.
    let mut token = shared.hctx(SHARED).try_take().expect("all other threads have ended");
    let turned = token.turn(0, Commit::Now);
    assert!(turned.is_drained() && !turned.work_left(), "nothing was forgotten in the inbox");
    token.core.check_invariants();
    let token = wait::release(&mut At::new(shared.hctx(SHARED)), token);
    assert!(token.is_none());
    for Sent { mailbox, pages } in sents {
        assert_eq!(mailbox.cell.nr_delivered(), u64::from(nr));
        let bios: Vec<_> = mailbox.take().into_iter().flatten().collect();
        assert_eq!(bios.len(), nr as usize);
        assert!(bios.iter().all(|bio| bio.result() == Ok(512)));
        assert!(pages.iter().all(|page| page.nr_written() == 1));
    }
}

#[test]
fn requests_of_two_threads_are_issued_and_end_once() {
    check(|| two_send(AT_ONCE, 1));
}

#[test]
fn several_bios_of_two_threads_end_once() {
    check_within(4, || two_send(AT_ONCE, 2));
}

/// With one tag, one thread's request waits in the backlog for the completion of the other's, which
/// the last turn reaps.
#[test]
fn one_tag_is_shared_by_two_threads() {
    check(|| {
        let shared = Toy::disk(How { queue_depth: 1, ..AT_ONCE });
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || send(&shared, 1))
        };
        let sents = [send(&shared, 1), other.join().unwrap()];
        let mut token = shared.hctx(SHARED).try_take().expect("all other threads have ended");
        while !token.turn(0, Commit::Now).is_drained() {}
        let token = wait::release(&mut At::new(shared.hctx(SHARED)), token);
        assert!(token.is_none());
        sents.iter().for_each(|sent| assert_eq!(sent.mailbox.cell.nr_delivered(), 1));
    });
}

/// A thread sends while another leads, and does not wait, as the task of a future does. The device
/// reports completions through no wait, so a turn ends the bios: the sender's own, or one after the
/// kick of the leader, because other threads do not reap while it is kicked (W6).
#[test]
fn request_sent_beside_a_leader_on_a_silent_device_ends() {
    check_within(3, || {
        let shared = Toy::disk(How { by: By::Silence, ..AT_ONCE });
        let hold = Hold::new(&shared, Gate::Stopped);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || Caller::new(&shared).read(&shared))
        };
        // This ends the read of a leader that waits already, and kicks it.
        drop(hold);
        let sent = send(&shared, 1);
        other.join().unwrap();
        assert_eq!(sent.mailbox.cell.nr_delivered(), 1, "no thread is left to reap it");
        assert_eq!(sent.mailbox.take().into_iter().flatten().count(), 1);
    });
}

/// Returns how long a leader may wait.
#[cfg(not(blk_shuttle))]
fn delay_left(hctx: &Hctx) -> Option<Duration> {
    hctx.timers.wait_ns(clock::now_ns).map(Duration::from_nanos)
}

/// The delayed run of a busy device belongs to the context: any leader finds it, whichever thread
/// found the device busy. A stop cancels it, because the start runs at once (R4).
#[cfg(not(blk_shuttle))]
#[test]
fn a_delayed_run_stays_with_its_context_until_it_is_stopped() {
    check(|| {
        let shared = Toy::disk(How { nr_busy: 2, ..AT_ONCE });
        let hctx = shared.hctx(SHARED);
        assert_eq!(delay_left(hctx), None);
        let sent = send(&shared, 1);
        assert!(delay_left(hctx).is_some_and(|left| left <= RESOURCE_DELAY));
        hctx.run_turn();
        assert!(delay_left(hctx).is_some(), "the device is still busy");
        let hold = Hold::new(&shared, Gate::Stopped);
        assert_eq!(delay_left(hctx), None);
        assert_eq!(sent.mailbox.cell.nr_delivered(), 0);
        drop(hold);
        hctx.run_turn();
        assert_eq!(sent.mailbox.cell.nr_delivered(), 1);
        assert_eq!(sent.mailbox.take().into_iter().flatten().count(), 1);
    });
}
