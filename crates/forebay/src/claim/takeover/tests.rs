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

/// Returns an open file as a predecessor has left it.
fn left_behind(path: &Path) -> File {
    let file = open(path);
    ofd_lock::set(&file, RANGE, libc::F_RDLCK).expect("it has locks");
    file
}

/// Returns whether an open file has the lock.
fn is_locked(path: &Path) -> bool {
    let found = ofd_lock::conflict(&open(path), RANGE, libc::F_WRLCK).expect("it has locks");
    i32::from(found.l_type) != libc::F_UNLCK
}

#[test]
fn first_writer_waits_until_the_file_of_a_predecessor_is_closed() {
    let (_folder, path) = image();
    let old = left_behind(&path);
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
fn subscriber_of_the_wait_may_open_the_same_file() {
    let (_folder, path) = image();
    let mut old = Some(left_behind(&path));
    let file = open(&path);
    let writers = Writers::default();
    let patience = Duration::from_secs(60);
    let mut nr_reports = 0;
    let entered = writers.enter_reporting(&file, patience, || {
        nr_reports += 1;
        // In the same thread, before and after the predecessor's I/O has ended.
        let again = || panic!("the wait is reported once");
        let moment = Duration::from_millis(1);
        assert!(!writers.enter_reporting(&file, moment, again).expect("it has locks"));
        drop(old.take());
        assert!(writers.enter_reporting(&file, patience, again).expect("it has locks"));
    });
    assert!(entered.expect("it has locks"));
    assert_eq!(nr_reports, 1);
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
    // All writers were closed, and a queue was left behind.
    drop(queue);
    enter(true);
    writers.leave();
    drop(sibling);
    let old = left_behind(&path);
    enter(false);
    drop(old);
    // The child of a fork of another test may have a copy of the open file for a moment.
    assert!(writers.enter(&file, Duration::from_secs(60)).expect("it has locks"));
}

#[test]
fn a_queue_that_does_not_write_holds_no_lock() {
    let (_folder, path) = image();
    let reader = QueueFile::new(open(&path), false);
    let _again = reader.sibling(open(&path));
    assert!(!is_locked(&path));
}

#[test]
fn a_lock_stays_although_a_child_of_a_fork_drops_its_copy_of_the_queue() {
    let (_folder, path) = image();
    let mut queue = Some(QueueFile::new(open(&path), true));
    assert!(in_child(|| {
        drop(queue.take());
        true
    }));
    assert!(is_locked(&path), "the queue of this process may have I/O in flight");
    drop(queue);
    assert!(!is_locked(&path));
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
    assert!(is_locked(&path));
    drop(of_ring);
    // The child of a fork of another test may have a copy of the open file for a moment.
    let until = Instant::now() + Duration::from_secs(60);
    while is_locked(&path) {
        assert!(Instant::now() < until, "the lock ends with the last descriptor");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_new_file_cannot_be_taken_for_one_whose_lock_a_panic_has_left_behind() {
    let (folder, path) = image();
    let queue = QueueFile::new(open(&path), true);
    let name = Name::of(&queue.metadata().expect("an open file"));
    let panics = thread::spawn(move || {
        let _queue = queue;
        panic!("a test has this thread panic");
    });
    assert!(panics.join().is_err());
    std::fs::remove_file(&path).expect("it was there");
    // A file system such as ext4 assigns the lowest free inode number next.
    for nr in 0..100 {
        let path = folder.path().join(nr.to_string());
        std::fs::write(&path, [0; 4096]).expect("a file");
        assert_ne!(Name::of(&open(&path).metadata().expect("an open file")), name);
    }
}

#[test]
fn a_lock_ends_with_its_queue_although_a_copy_of_the_descriptor_is_open() {
    let (_folder, path) = image();
    let queue = QueueFile::new(open(&path), true);
    let _copy = queue.try_clone().expect("a descriptor");
    drop(queue);
    assert!(!is_locked(&path));
}
