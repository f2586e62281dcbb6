//! Tests of this crate's own primitives, under every back end.
// It shares a cell, to check that a model checker detects a conflict.
#![allow(unsafe_code)]

use super::{Arc, AtomicBool, Mutex, Ordering, Sleeper, UnsafeCell, check, thread};

struct Handed {
    value: UnsafeCell<u32>,
    ready: AtomicBool,
}

// SAFETY: `value` is written before `ready` is set, and read after `ready` was seen.
unsafe impl Sync for Handed {}

#[test]
fn write_before_a_wake_is_visible_after_the_sleep() {
    check(|| {
        let sleeper = Sleeper::of_this_thread();
        let woken = sleeper.clone();
        let handed = Arc::new(Handed { value: UnsafeCell::new(0), ready: AtomicBool::new(false) });
        let giver = {
            let handed = Arc::clone(&handed);
            thread::spawn(move || {
                // SAFETY: the reader waits for `ready`, which is set afterwards.
                handed.value.with_mut(|value| unsafe { *value = 7 });
                // Pairs with the load below.
                handed.ready.store(true, Ordering::Release);
                woken.wake();
            })
        };
        // Pairs with the store above.
        while !handed.ready.load(Ordering::Acquire) {
            sleeper.sleep();
        }
        // SAFETY: the writer set `ready` when it was done.
        assert_eq!(handed.value.with(|value| unsafe { *value }), 7);
        giver.join().unwrap();
    });
}

#[test]
fn a_wake_outlives_a_lock_between_it_and_the_sleep() {
    check(|| {
        let sleeper = Sleeper::of_this_thread();
        let woken = sleeper.clone();
        let lock = Arc::new(Mutex::new(false));
        let waker = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                woken.wake();
                *lock.lock().unwrap() = true;
                woken.wake();
            })
        };
        while !*lock.lock().unwrap() {
            sleeper.sleep();
        }
        waker.join().unwrap();
    });
}

#[test]
#[should_panic]
#[cfg(any(blk_loom, blk_shuttle))]
fn two_writers_of_a_cell_are_found() {
    check(|| {
        let handed = Arc::new(Handed { value: UnsafeCell::new(0), ready: AtomicBool::new(false) });
        let other = {
            let handed = Arc::clone(&handed);
            // SAFETY: none; the checker stops the second access before it happens.
            thread::spawn(move || handed.value.with_mut(|value| unsafe { *value += 1 }))
        };
        // SAFETY: as above.
        handed.value.with_mut(|value| unsafe { *value += 1 });
        other.join().unwrap();
    });
}
