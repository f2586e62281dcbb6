//! Models of the submit-and-reap interface on a shared hardware context.
// It vouches for the memory of its bios, like any caller of `submit_raw`.
#![allow(unsafe_code)]

use super::BioQueue;
use crate::runtime::gates::Hold;
use crate::runtime::hctx::SHARED;
use crate::runtime::mailbox::{Mailbox, models::free};
use crate::runtime::plug::plug;
use crate::runtime::shared::Shared;
use crate::runtime::thread::Ctx;
use crate::runtime::toy::{AT_ONCE, By, How, Page, Toy};
use crate::sys::primitive::{check, check_within, thread};
use forebay_core::Gate;
use std::rc::Rc;
use std::sync::Arc;

/// Creates a queue with its own per-thread state.
fn queue_on(shared: &Arc<Shared>) -> BioQueue {
    BioQueue::on(Arc::clone(shared), Ctx::new(shared, SHARED))
}

fn submit(queue: &mut BioQueue, page: &Page) {
    // SAFETY: the page is read only after the queue is dropped, which waits.
    unsafe { queue.submit_raw(page.bio()) }.expect("a good bio");
}

/// The memory of a freed mailbox, kept for loom.
type Memory = Option<Arc<Mailbox>>;

/// Drops a queue. No thread may access its mailbox afterwards: Miri and loom detect a late access.
fn drop_whole(queue: BioQueue) -> Memory {
    let mailbox = cfg!(blk_loom).then(|| Arc::clone(queue.ready.borrow().mailbox()));
    drop(queue);
    mailbox.and_then(free)
}

/// Submits, reaps without waiting, and drops the queue, which waits for the remaining bios.
fn submit_and_poll(shared: &Arc<Shared>, nr_polls: usize) -> Memory {
    let (page, mut done) = (Page::default(), Vec::new());
    let mut queue = queue_on(shared);
    submit(&mut queue, &page);
    for _ in 0..nr_polls {
        queue.reap(0, 1, &mut done);
    }
    let memory = drop_whole(queue);
    assert!(done.iter().all(|completion| completion.result == Ok(512)));
    assert_eq!(page.nr_written(), 1);
    memory
}

/// Submits two bios and waits for both, one by one.
fn submit_and_wait(shared: &Arc<Shared>) -> Memory {
    let (pages, mut done) = ([Page::default(), Page::default()], Vec::new());
    let mut queue = queue_on(shared);
    pages.iter().for_each(|page| submit(&mut queue, page));
    assert_eq!(queue.reap(1, 1, &mut done), 1);
    assert_eq!(queue.reap(1, 2, &mut done), 1);
    let memory = drop_whole(queue);
    assert!(pages.iter().all(|page| page.nr_written() == 1));
    memory
}

fn in_two_threads(how: How, work: impl Fn(&Arc<Shared>) -> Memory + Send + Copy + 'static) {
    let shared = Toy::disk(how);
    let other = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || work(&shared))
    };
    let _memories = [work(&shared), other.join().unwrap()];
    let run = &shared.hctx(SHARED).run;
    assert!(!run.is_running() && !run.has_leader(), "all is given back");
}

/// A bio that another thread's turn delivers may be reaped before its delivery is over. Then the
/// queue is dropped while the other thread still uses its mailbox.
#[test]
fn a_queue_that_has_reaped_everything_may_be_dropped() {
    check_within(3, || in_two_threads(AT_ONCE, |shared| submit_and_poll(shared, 1)));
}

#[test]
fn a_queue_is_dropped_with_bios_in_flight() {
    check_within(3, || in_two_threads(AT_ONCE, |shared| submit_and_poll(shared, 0)));
}

#[test]
fn two_queues_wait_for_their_own() {
    check_within(2, || in_two_threads(AT_ONCE, submit_and_wait));
}

/// A device with completions that the committing turn reaps: its descriptor would not report them.
const SILENT: How = How { by: By::Silence, ..AT_ONCE };

/// The owner of a context submits under a plug, while another thread opens the gate that holds the
/// disk. Afterwards the owner reaps only when its descriptor is readable, or will be.
fn plug_beside_a_gate(how: How, gate: Gate, closes_again: bool) {
    let shared = Toy::disk(How { nr_hw_queues: 2, ..how });
    let ctx = Ctx::new(&shared, shared.assign());
    let mut queue = BioQueue::on(Arc::clone(&shared), Rc::clone(&ctx));
    let (page, mut done) = (Page::default(), Vec::new());
    queue.poll_fd().expect("a descriptor");
    let hold = Hold::new(&shared, gate);
    queue.reap(0, 1, &mut done);
    let other = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            drop(hold);
            if closes_again {
                drop(Hold::new(&shared, gate));
            }
        })
    };
    let plugged = plug();
    submit(&mut queue, &page);
    drop(plugged);
    other.join().unwrap();
    while done.is_empty() {
        let has_ended = !queue.ready.borrow().is_empty();
        let is_woken = has_ended || shared.hctx(ctx.hctx()).alarm.is_set();
        assert!(is_woken, "the loop sleeps forever");
        queue.reap(0, 1, &mut done);
    }
    assert_eq!(page.nr_written(), 1);
    drop(queue);
    ctx.retire();
}

#[test]
#[cfg_attr(miri, ignore = "Miri has neither timerfds nor level-triggered epoll")]
fn a_gate_that_opens_beside_the_end_of_a_plug_wakes_the_loop() {
    for gate in [Gate::Quiesced, Gate::Stopped, Gate::Frozen] {
        check(move || plug_beside_a_gate(SILENT, gate, false));
    }
    check_within(3, || plug_beside_a_gate(SILENT, Gate::Quiesced, true));
    check_within(3, || plug_beside_a_gate(SILENT, Gate::Frozen, true));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has neither timerfds nor level-triggered epoll")]
fn a_gate_that_opens_on_a_busy_device_wakes_the_loop() {
    let busy = How { nr_busy: 2, ..SILENT };
    check(move || plug_beside_a_gate(busy, Gate::Stopped, false));
    check_within(3, move || plug_beside_a_gate(busy, Gate::Quiesced, true));
}
