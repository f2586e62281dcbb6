//! Models of ends beside a call of `submit`: only the thread inside the call uses the list of the
//! driver, and each end reaches one of the two lists.

use super::Home;
use crate::sys::primitive::{Arc, AtomicBool, Ordering, check, thread};
use forebay_core::{Completed, Tag};

fn home() -> Arc<Home> {
    Arc::new(Home::new(4, &std::sync::Arc::default(), 512))
}

/// Ends the request of a tag on thread `here`. Returns whether that was inside `submit`.
fn end(home: &Home, here: u64, tag: usize) -> bool {
    let tag = Tag::from_index(tag);
    let is_inside = home.push_at_once(here, tag, Ok(512));
    if !is_inside {
        home.list.push(Completed { tag, result: Ok(512) });
    }
    is_inside
}

/// Submits as thread `here`, and ends the request of a tag inside. Returns the number of requests
/// that have ended so.
fn submit(home: &Home, here: u64, tag: usize) -> usize {
    home.enter(here);
    assert!(end(home, here, tag), "it is inside");
    home.leave();
    // SAFETY: this thread uses the driver, outside `submit`.
    unsafe { home.with_at_once(|ended| ended.drain().count()) }
}

#[test]
fn end_beside_submit_goes_to_the_completion_list() {
    check(|| {
        let home = home();
        let other = Arc::clone(&home);
        let other = thread::spawn(move || assert!(!end(&other, 2, 1)));
        assert_eq!(submit(&home, 1, 0), 1);
        other.join().unwrap();
        assert_eq!(home.list.len(), 1);
    });
}

#[test]
fn thread_that_has_submitted_before_is_not_inside_a_later_submit() {
    check(|| {
        let home = home();
        let released = Arc::new(AtomicBool::new(false));
        let (other, release) = (Arc::clone(&home), Arc::clone(&released));
        let other = thread::spawn(move || {
            assert_eq!(submit(&other, 2, 1), 1);
            release.store(true, Ordering::Release);
            assert!(!end(&other, 2, 2));
        });
        if released.load(Ordering::Acquire) {
            assert_eq!(submit(&home, 1, 0), 1);
        }
        other.join().unwrap();
        assert_eq!(home.list.len(), 1);
    });
}
