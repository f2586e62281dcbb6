//! Models of a leader that leaves requests to its next wait, and then does not wait (W5).
//!
//! Only the leader itself begins these requests: their submitters do not wait, and there is no
//! follower that would lead next.

use crate::runtime::hctx::SHARED;
use crate::runtime::toy::{AT_ONCE, By, Caller, How, Posted, Toy};
use crate::sys::primitive::{check_within, thread};
use std::sync::Arc;

/// One tag, a device with its own thread, and waits that begin the requests left to them.
const ONE_TAG: How = How { queue_depth: 1, by: By::Thread, begins: true, ..AT_ONCE };

/// A leader reaps its own read, gives the tag to another thread's read in the same turn, and stops.
fn stop_with_a_request_left() {
    let toy = Toy::new(ONE_TAG);
    let disk = Toy::open(&toy);
    let leader = {
        let disk = Arc::clone(&disk);
        thread::spawn(move || Caller::new(&disk).read(&disk))
    };
    toy.await_requests(1);
    let posted = Posted::submit(&disk);
    toy.work(1);
    leader.join().unwrap();
    assert!(!disk.hctx(SHARED).run.has_leader());
    assert_eq!(toy.nr_at_device(), 1, "a leader has stopped, and left a request behind");
    toy.work(1);
    posted.check();
}

#[test]
fn a_leader_that_stops_begins_the_requests_left_to_its_wait() {
    check_within(2, stop_with_a_request_left);
}
