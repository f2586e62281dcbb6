//! Models of the service thread of a disk whose ring has ended, so that no kick ends its wait.
//!
//! A thread that waits and is not replaced shows as a deadlock. A thread that is replaced although
//! it does not wait aborts the process: it uses a context without an inner part, or blocks without
//! leading.

use crate::runtime::shared::Shared;
use crate::runtime::toy::{AT_ONCE, Caller, Toy};
use crate::sys::primitive::{check_within, thread};
use std::sync::Arc;

/// Closes a disk with a service thread after its ring has ended. The thread may not have begun yet,
/// may turn, may be in a wait that no kick ends, or may return from it. Before that, `nr_reads`
/// threads read, so the service thread may follow.
fn close_after_the_end_of_the_ring(nr_reads: usize) {
    let toy = Toy::new(AT_ONCE);
    let shared = Toy::open(&toy);
    let readers = (0..nr_reads).map(|_| {
        let shared: Arc<Shared> = Arc::clone(&shared);
        thread::spawn(move || Caller::new(&shared).read(&shared))
    });
    let readers: Vec<_> = readers.collect();
    shared.drive().expect("a thread");
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    toy.end_ring();
    drop(shared);
    toy.exit();
}

#[test]
fn disk_is_closed_beside_a_thread_that_no_kick_reaches() {
    check_within(3, || close_after_the_end_of_the_ring(0));
}

#[test]
fn disk_is_closed_beside_a_thread_that_may_have_followed() {
    check_within(1, || close_after_the_end_of_the_ring(1));
}
