//! Models of the stack: each pushed bio is taken once, in its pusher's order, and with the writes
//! that its pusher made before.
// It shares cells, to check the happens-before order.
#![allow(unsafe_code)]

use super::BioStack;
use crate::sys::primitive::{Arc, UnsafeCell, check, check_within, thread};
use forebay_core::QueuedBio;

/// A stack, and a cell for each of two pushers. Each pusher writes its cell before it pushes.
struct Pushed {
    stack: BioStack,
    cells: [UnsafeCell<u32>; 2],
}

// SAFETY: a pusher writes its cell before it pushes. A thread reads the cell after it has taken
// that push.
unsafe impl Sync for Pushed {}

impl Pushed {
    fn new() -> Arc<Pushed> {
        let cells = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Arc::new(Pushed { stack: BioStack::new(), cells })
    }

    fn push(&self, pusher: usize, nr: u32) {
        // SAFETY: the reader waits for the push.
        self.cells[pusher].with_mut(|cell| unsafe { *cell = nr });
        self.stack.push_all((0..nr).map(|number| QueuedBio::new(pusher as u64, number)));
    }

    /// Takes all bios. Checks that each pusher's bios come in order, starting at `next`.
    fn take(&self, next: &mut [u32; 2]) {
        for bio in self.stack.take_all() {
            let pusher = bio.owner() as usize;
            assert_eq!(bio.number(), next[pusher]);
            next[pusher] += 1;
            // SAFETY: the cell's writer has pushed since.
            self.cells[pusher].with(|cell| assert!(unsafe { *cell } > bio.number()));
        }
    }
}

/// Two pushers make one push each, of `first` and `second` bios. A taker takes meanwhile.
fn push_and_take(first: u32, second: u32) {
    let pushed = Pushed::new();
    let pushers = [(0, first), (1, second)].map(|(pusher, nr)| {
        let pushed = Arc::clone(&pushed);
        thread::spawn(move || pushed.push(pusher, nr))
    });
    let mut next = [0; 2];
    pushed.take(&mut next);
    pushed.take(&mut next);
    pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    pushed.take(&mut next);
    assert_eq!(next, [first, second], "nothing is lost, or there twice");
    assert!(pushed.stack.is_empty());
}

#[test]
fn boxes_of_two_pushers_are_taken_once_and_in_order() {
    check(|| push_and_take(1, 2));
}

#[test]
fn several_pushes_of_one_thread_stay_in_order() {
    check_within(4, || {
        let pushed = Pushed::new();
        let pusher = {
            let pushed = Arc::clone(&pushed);
            thread::spawn(move || {
                pushed.push(0, 1);
                pushed.stack.push_all(std::iter::once(QueuedBio::new(1, 0)));
                pushed.stack.push_all((1..3).map(|number| QueuedBio::new(1, number)));
            })
        };
        let mut numbers = Vec::new();
        for _ in 0..2 {
            numbers.extend(pushed.stack.take_all().map(|bio| (bio.owner(), bio.number())));
        }
        pusher.join().unwrap();
        numbers.extend(pushed.stack.take_all().map(|bio| (bio.owner(), bio.number())));
        assert_eq!(numbers, [(0, 0), (1, 0), (1, 1), (1, 2)]);
    });
}

/// Two takers, as when the token moves from one thread to another: each bio goes to one of them.
#[test]
fn two_takers_share_the_free_tags() {
    check(|| {
        let pushed = Pushed::new();
        let taker = {
            let pushed = Arc::clone(&pushed);
            thread::spawn(move || pushed.stack.take_all().count())
        };
        pushed.push(0, 1);
        pushed.push(1, 2);
        let mut nr = pushed.stack.take_all().count();
        nr += taker.join().unwrap();
        assert_eq!(nr, 3);
    });
}

/// The bios left in a stack are freed with it: Miri and loom would report a leak.
#[test]
fn remaining_boxes_are_freed() {
    check(|| {
        let pushed = Pushed::new();
        let pusher = {
            let pushed = Arc::clone(&pushed);
            thread::spawn(move || pushed.push(0, 2))
        };
        pushed.push(1, 2);
        pushed.stack.take_all().next();
        pusher.join().unwrap();
    });
}
