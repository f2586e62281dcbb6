//! Takeover locks of queues that are dropped in every way.

use super::*;
use crate::sys::forked::in_child;
use std::fs::OpenOptions;
use std::path::Path;
use std::thread;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("it opens")
}

fn image() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, [0; 4096]).expect("a file");
    (folder, path)
}

#[test]
fn first_writer_waits_until_the_file_of_a_predecessor_is_closed() {
    let (_folder, path) = image();
    let old = QueueFile::new(open(&path), true);
    let file = open(&path);
    let writers = Writers::default();
    assert!(!writers.enter(&file, Duration::ZERO).expect("it has locks"));
    let closer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        drop(old);
    });
    assert!(writers.enter(&file, Duration::from_secs(60)).expect("it has locks"));
    closer.join().expect("no panic");
}

#[test]
fn later_writers_of_the_process_do_not_wait_for_its_own_queues() {
    let (_folder, path) = image();
    let file = open(&path);
    let writers = Writers::default();
    let enter = |expected| {
        assert_eq!(writers.enter(&file, Duration::ZERO).expect("it has locks"), expected);
    };
    enter(true);
    let queue = QueueFile::new(open(&path), true);
    let sibling = queue.sibling(open(&path));
    enter(true);
    writers.leave();
    enter(true);
    writers.leave();
    writers.leave();
    // All writers were closed, so these are taken for files of another program.
    drop(queue);
    enter(false);
    drop(sibling);
    enter(true);
}

#[test]
fn a_queue_that_does_not_write_holds_no_lock() {
    let (_folder, path) = image();
    let reader = QueueFile::new(open(&path), false);
    let _again = reader.sibling(open(&path));
    assert!(Writers::default().enter(&open(&path), Duration::ZERO).expect("it has locks"));
}

#[test]
fn a_lock_stays_although_a_child_of_a_fork_drops_its_copy_of_the_queue() {
    let (_folder, path) = image();
    let mut queue = Some(QueueFile::new(open(&path), true));
    assert!(in_child(|| {
        drop(queue.take());
        true
    }));
    let enter = || Writers::default().enter(&open(&path), Duration::ZERO);
    assert!(!enter().expect("it has locks"), "the queue of this process may have I/O in flight");
    drop(queue);
    assert!(enter().expect("it has locks"));
}

#[test]
fn a_lock_stays_if_a_panic_drops_the_queue_with_io_in_flight() {
    let (_folder, path) = image();
    let queue = QueueFile::new(open(&path), true);
    // A ring refers to the open file until its I/O has ended.
    let of_ring = queue.try_clone().expect("a descriptor");
    let panics = thread::spawn(move || {
        let _queue = queue;
        panic!("a test has this thread panic");
    });
    assert!(panics.join().is_err());
    let enter = || Writers::default().enter(&open(&path), Duration::ZERO);
    assert!(!enter().expect("it has locks"));
    drop(of_ring);
    assert!(enter().expect("it has locks"));
}

#[test]
fn a_lock_ends_with_its_queue_although_a_copy_of_the_descriptor_is_open() {
    let (_folder, path) = image();
    let queue = QueueFile::new(open(&path), true);
    let _copy = queue.try_clone().expect("a descriptor");
    drop(queue);
    assert!(Writers::default().enter(&open(&path), Duration::ZERO).expect("it has locks"));
}
