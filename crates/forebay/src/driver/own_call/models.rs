//! Models of the list of results: each result is taken once, with the bytes that its thread read.
// The models share cells, to check the happens-before order.
#![allow(unsafe_code)]

use super::{Made, OwnCalls};
use crate::sys::primitive::{Arc, UnsafeCell, check, thread};
use forebay_core::Tag;

/// Results, and the memory of two reads.
struct Reads {
    own: OwnCalls,
    memory: [UnsafeCell<i32>; 2],
}

// SAFETY: a thread writes the memory of its tag before it adds the result, and another reads it
// after it has taken the result.
unsafe impl Sync for Reads {}

impl Reads {
    fn make(&self, tag: usize, answer: i32) {
        // SAFETY: the reader waits for the result.
        self.memory[tag].with_mut(|place| unsafe { *place = answer });
        self.own.push(Tag::from_index(tag), answer);
    }

    fn take(&self, taken: &mut [u32; 2]) {
        self.own.take(&mut 0, |tag, made| {
            let at = tag.index();
            taken[at] += 1;
            // SAFETY: the writer has added the result.
            let read = self.memory[at].with(|place| unsafe { *place });
            assert_eq!(made, Made::Answer(read));
        });
    }
}

#[test]
fn results_of_two_threads_are_taken_once_each_with_their_bytes() {
    check(|| {
        let memory = [UnsafeCell::new(0), UnsafeCell::new(0)];
        let reads = Arc::new(Reads { own: OwnCalls::new(2, true), memory });
        let makers = [0, 1].map(|tag| {
            let reads = Arc::clone(&reads);
            thread::spawn(move || reads.make(tag, 100 + tag as i32))
        });
        let mut taken = [0; 2];
        reads.take(&mut taken);
        makers.into_iter().for_each(|maker| maker.join().unwrap());
        reads.take(&mut taken);
        assert_eq!(taken, [1, 1]);
        assert!(!reads.own.has_results());
    });
}

#[test]
fn reused_tag_is_taken_again_while_another_thread_adds_a_result() {
    check(|| {
        let memory = [UnsafeCell::new(0), UnsafeCell::new(0)];
        let reads = Arc::new(Reads { own: OwnCalls::new(2, true), memory });
        let maker = {
            let reads = Arc::clone(&reads);
            thread::spawn(move || reads.make(1, 200))
        };
        let mut taken = [0; 2];
        for answer in [7, 8] {
            reads.make(0, answer);
            reads.take(&mut taken);
        }
        maker.join().unwrap();
        reads.take(&mut taken);
        assert_eq!(taken, [2, 1]);
    });
}
