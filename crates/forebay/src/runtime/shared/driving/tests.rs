//! A service thread that is slow to step down, and the start of the next one.

use crate::runtime::service::Service;
use crate::runtime::toy::{AT_ONCE, Caller, Toy};
use crate::sys::primitive::lock;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// V5: the former thread has begun to step down, and runs a waker until the test ends it.
#[test]
fn a_service_thread_starts_beside_one_that_runs_a_waker() {
    let toy = Toy::new(AT_ONCE);
    let shared = Toy::open(&toy);
    let (end, waker) = mpsc::channel::<()>();
    let former = thread::spawn(move || waker.recv().expect("the test ends the waker"));
    lock(&shared.driving.state).service = Some(Service::stepping_down(former));
    shared.drive().expect("a thread starts");
    assert_eq!(lock(&shared.driving.state).former.len(), 1);
    // The new thread serves.
    Caller::new(&shared).read(&shared);
    let closer = thread::spawn(move || drop(shared));
    // The close waits for the former thread, however long its waker takes.
    thread::sleep(Duration::from_millis(50));
    assert!(!closer.is_finished(), "the former thread still runs");
    end.send(()).expect("the former thread waits");
    closer.join().expect("the close joins both threads");
}
