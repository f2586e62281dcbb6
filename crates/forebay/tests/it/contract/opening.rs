//! Contract of disks that specs open: keys that back ends and drivers of the tests do not have.

use super::{LEN, Subject, pattern};
use crate::common::{open, reap_all, submit};
use forebay::{Buf, Disk, Io};
use std::thread;

const BLOCK: u64 = 4096;

pub(super) fn a_growing_disk_ends_where_it_ends(subject: &Subject) {
    if subject.is_backend() {
        return;
    }
    if !subject.is_file() {
        // No other driver has a growing capacity: there the key is unknown.
        let spec = subject.spec("capacity=growing");
        let error = Disk::open(&spec).expect_err(&spec);
        return assert!(error.to_string().contains("unknown key `capacity`"), "{error}");
    }
    for nr in [1, 2] {
        let disk = subject.open_growing(&format!("nr_hw_queues={}", subject.nr_hw_queues(nr)));
        assert_eq!(disk.capacity_bytes(), None);
        let end = LEN + 7 + nr;
        assert_eq!(disk.write_at(&pattern(1, 0, 7), end - 7), Ok(7));
        let mut queue = disk.queue();
        for (start, len, expected) in [(end - 6, 20, 6), (end, 20, 0), (end + 4096, 1, 0)] {
            submit(&mut queue, Io::read(Buf::new(len), start));
            assert_eq!(reap_all(&mut queue)[0].result, Ok(expected), "{start}");
        }
        // Two reads that merge: each receives its own share of the available bytes.
        let plug = forebay::plug();
        submit(&mut queue, Io::read(Buf::new(4), end - 6).user_data(4));
        submit(&mut queue, Io::read(Buf::new(8), end - 2).user_data(2));
        drop(plug);
        for done in reap_all(&mut queue) {
            assert_eq!(done.result, Ok(done.user_data));
        }
    }
}

pub(super) fn a_future_that_is_dropped_has_written(subject: &Subject) {
    let image = |n: u64| pattern(77, n, BLOCK);
    let disk = subject.open("");
    for n in 0..64 {
        let mut future = std::pin::pin!(disk.start(Io::write(image(n), n * BLOCK)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // The future may already be ready.
        let _ = future.as_mut().poll(&mut context);
    }
    drop(disk);
    if subject.is_file() {
        let disk = subject.open("read_only=on");
        for n in 0..64 {
            let mut back = Buf::new(BLOCK as usize);
            assert_eq!(disk.read_at(&mut back, n * BLOCK), Ok(BLOCK as usize));
            subject.assert_read(&back, &image(n));
        }
    }
}

pub(super) fn a_thread_of_the_disk_makes_progress(subject: &Subject) {
    // A back end has no such thread until the first future.
    if subject.is_backend() {
        return;
    }
    let keys = if subject.is_file() { "service=on&direct=on" } else { "service=on" };
    let disk = open(&subject.spec(keys));
    thread::scope(|scope| {
        for number in 0..3u64 {
            let disk = &disk;
            scope.spawn(move || {
                let mut back = Buf::new(BLOCK as usize);
                for round in 0..50 {
                    let at = (number * 50 + round) * BLOCK;
                    assert_eq!(disk.write_at(&pattern(4, at, BLOCK), at), Ok(BLOCK as usize));
                    assert_eq!(disk.read_at(&mut back, at), Ok(BLOCK as usize));
                    subject.assert_read(&back, &pattern(4, at, BLOCK));
                }
                disk.flush().expect("a flush");
            });
        }
    });
}
