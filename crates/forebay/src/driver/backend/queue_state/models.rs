//! Models of ends beside a call of `submit`: only the thread inside the call uses the list of the
//! driver, and each end reaches one of the two lists.

use super::QueueState;
use crate::sys::primitive::{Arc, AtomicBool, Ordering, check, thread};
use forebay_core::{Completed, Tag};

fn state() -> Arc<QueueState> {
    Arc::new(QueueState::new(4, &std::sync::Arc::default(), 512))
}

/// Ends the request of a tag on thread `here`. Returns whether that was inside `submit`.
fn end(state: &QueueState, here: u64, tag: usize) -> bool {
    let tag = Tag::from_index(tag);
    let is_inside = state.push_at_once(here, tag, Ok(512));
    if !is_inside {
        state.list.push(Completed { tag, result: Ok(512) });
    }
    is_inside
}

/// Submits as thread `here`, and ends the request of a tag inside. Returns the number of requests
/// that have ended so.
fn submit(state: &QueueState, here: u64, tag: usize) -> usize {
    state.enter(here);
    assert!(end(state, here, tag), "it is inside");
    state.leave();
    // SAFETY: this thread uses the driver, outside `submit`.
    unsafe { state.with_at_once(|at_once| at_once.ended.drain().count()) }
}

#[test]
fn end_beside_submit_goes_to_the_completion_list() {
    check(|| {
        let state = state();
        let other = Arc::clone(&state);
        let other = thread::spawn(move || assert!(!end(&other, 2, 1)));
        assert_eq!(submit(&state, 1, 0), 1);
        other.join().unwrap();
        assert_eq!(state.list.len(), 1);
    });
}

#[test]
fn thread_that_has_submitted_before_is_not_inside_a_later_submit() {
    check(|| {
        let state = state();
        let released = Arc::new(AtomicBool::new(false));
        let (other, release) = (Arc::clone(&state), Arc::clone(&released));
        let other = thread::spawn(move || {
            assert_eq!(submit(&other, 2, 1), 1);
            release.store(true, Ordering::Release);
            assert!(!end(&other, 2, 2));
        });
        if released.load(Ordering::Acquire) {
            assert_eq!(submit(&state, 1, 0), 1);
        }
        other.join().unwrap();
        assert_eq!(state.list.len(), 1);
    });
}

#[test]
fn thread_with_the_number_of_one_that_has_exited_is_not_inside_submit() {
    check(|| {
        let state = state();
        let first = Arc::clone(&state);
        let first = thread::spawn(move || assert_eq!(submit(&first, 2, 0), 1));
        // Its exit precedes the reuse of its number.
        first.join().unwrap();
        let second = Arc::clone(&state);
        let second = thread::spawn(move || assert!(!end(&second, 2, 1)));
        assert_eq!(submit(&state, 1, 2), 1);
        second.join().unwrap();
        assert_eq!(state.list.len(), 1);
    });
}
