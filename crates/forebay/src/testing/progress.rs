//! Checks of waits, drops, wake-ups and holds.

use super::helpers::{
    assert_read, assert_result, await_readable, block_on, join_all, pattern, reap_all, submit,
};
use super::{LEN, Subject};
use crate::{BlockStatus, Buf, Disk, Io};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const BLOCK: u64 = 4096;
const NR: u64 = LEN / BLOCK;

pub(super) fn many_requests_in_flight_all_complete(subject: &Subject<'_>) {
    for keys in ["", "queue_depth=3", "nomerges=2&kick=per-request"] {
        for disk in subject.each(keys) {
            let mut queue = disk.queue();
            for n in 0..NR {
                submit(&mut queue, Io::write(pattern(n, 0, BLOCK), n * BLOCK).user_data(n));
            }
            assert_eq!(reap_all(&mut queue).len() as u64, NR);
            for n in 0..NR {
                submit(&mut queue, Io::read(Buf::new(BLOCK as usize), n * BLOCK).user_data(n));
            }
            let mut done = Vec::new();
            while !queue.is_empty() {
                queue.reap(queue.len().min(7), 64, &mut done);
            }
            for done in done {
                assert_result("one of many reads", &done.result, &Ok(BLOCK));
                let read = done.buf.expect("a read has its buffer");
                assert_read(&disk, &read, &pattern(done.user_data, 0, BLOCK));
            }
        }
    }
}

/// Exercises leaders, followers and kicks. On `psync`, a waiting thread may also run a pending call
/// itself, its own or another thread's.
pub(super) fn threads_share_a_context(subject: &Subject<'_>) {
    let disk = subject.open("nr_hw_queues=1&queue_depth=8");
    thread::scope(|scope| {
        let run = |number: u64| {
            let disk = &disk;
            scope.spawn(move || {
                let mut queue = disk.queue();
                let mut back = Buf::new(BLOCK as usize);
                for round in 0..100 {
                    let at = (number * 20 + round % 20) * BLOCK;
                    let data = pattern(round, at, BLOCK);
                    if number.is_multiple_of(2) {
                        assert_eq!(disk.write_at(&data, at), Ok(BLOCK as usize));
                        assert_eq!(disk.read_at(&mut back, at), Ok(BLOCK as usize));
                        assert_read(disk, &back, &data);
                    } else {
                        submit(&mut queue, Io::write(data, at));
                        submit(&mut queue, Io::discard((200 + number) * BLOCK, BLOCK));
                        submit(&mut queue, Io::flush());
                        let ended = reap_all(&mut queue);
                        let is_ok = ended.iter().all(|done| done.result.is_ok());
                        assert!(is_ok, "a write, a discard or a flush has failed: {ended:?}");
                        assert_eq!(disk.read_at(&mut back, at), Ok(BLOCK as usize));
                        assert_read(disk, &back, &pattern(round, at, BLOCK));
                    }
                }
            })
        };
        join_all((0..6).map(run).collect::<Vec<_>>());
    });
}

pub(super) fn dropping_a_queue_completes_its_writes(subject: &Subject<'_>) {
    for disk in subject.each("") {
        for round in 0..20 {
            let mut queue = disk.queue();
            for n in 0..32 {
                submit(&mut queue, Io::write(pattern(round, n, BLOCK), n * BLOCK));
                submit(&mut queue, Io::read(Buf::new(BLOCK as usize), (32 + n) * BLOCK));
            }
            drop(queue);
            for n in [0, 17, 31] {
                let mut back = Buf::new(BLOCK as usize);
                assert_eq!(disk.read_at(&mut back, n * BLOCK), Ok(BLOCK as usize));
                assert_read(&disk, &back, &pattern(round, n, BLOCK));
            }
        }
    }
}

/// A dropped future leaves its I/O to the disk, whose close waits for it.
pub(super) fn dropping_a_disk_completes_its_io(subject: &Subject<'_>) {
    for disk in subject.each("") {
        for n in 0..64 {
            let mut future =
                std::pin::pin!(disk.start(Io::write(pattern(77, n, BLOCK), n * BLOCK)));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            // The future may already be ready.
            let _ = future.as_mut().poll(&mut context);
        }
        drop(disk);
    }
}

/// No I/O is in flight when the hold ends, so no completion wakes the two threads.
pub(super) fn waiters_continue_after_the_end_of_a_hold(subject: &Subject<'_>) {
    let disk = subject.open("nr_hw_queues=1");
    for round in 0..10u64 {
        let held = disk.quiesce();
        thread::scope(|scope| {
            let wait = || {
                let mut queue = disk.queue();
                submit(&mut queue, Io::read(Buf::new(BLOCK as usize), 0));
                assert_result("a read after a hold", &reap_all(&mut queue)[0].result, &Ok(BLOCK));
                disk.flush().expect("a flush");
            };
            let threads = [scope.spawn(wait), scope.spawn(wait)];
            thread::sleep(Duration::from_micros(round * 300));
            let is_held = threads.iter().all(|thread| !thread.is_finished());
            drop(held);
            join_all(threads);
            assert!(is_held, "I/O has completed during a hold");
        });
    }
}

pub(super) fn a_descriptor_is_readable_when_a_reap_is_due(subject: &Subject<'_>) {
    for disk in subject.each("") {
        let mut queue = disk.queue();
        let mut done = Vec::new();
        for n in 0..50u64 {
            let at = n * BLOCK;
            submit(&mut queue, Io::write(pattern(1, at, BLOCK), at));
            submit(&mut queue, if n % 2 == 0 { Io::flush() } else { Io::discard(at, BLOCK) });
            while !queue.is_empty() {
                await_readable(queue.poll_fd().expect("a descriptor"));
                queue.reap(0, 8, &mut done);
            }
        }
        assert!(done.iter().all(|done| done.result.is_ok()), "I/O has failed: {done:?}");
        assert_eq!(done.len(), 100, "each I/O ends once");
    }
}

/// Ends the loops of other threads when it is dropped, also by a failed assertion.
struct EndsLoops<'a>(&'a AtomicBool);

impl Drop for EndsLoops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) fn a_freeze_waits_for_entered_bios(subject: &Subject<'_>) {
    for disk in subject.each("") {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let work = || {
                let mut buf = Buf::new(BLOCK as usize);
                while !is_over.load(Ordering::Relaxed) {
                    let result = disk.read_at(&mut buf, 0).map(|nr| nr as u64);
                    assert_result("a read beside freezes", &result, &Ok(BLOCK));
                }
            };
            let ends_loops = EndsLoops(&is_over);
            let threads = [scope.spawn(work), scope.spawn(work)];
            for _ in 0..20 {
                let frozen = disk.freeze().expect("no other hold");
                let issued = disk.stats().queue.issued;
                let mut queue = disk.queue();
                submit(&mut queue, Io::read(Buf::new(512), 0).nowait());
                let result = reap_all(&mut queue)[0].result;
                assert_result("a nowait read during a freeze", &result, &Err(BlockStatus::Again));
                thread::yield_now();
                assert_eq!(disk.stats().queue.issued, issued, "nothing goes while it is frozen");
                drop(frozen);
            }
            drop(ends_loops);
            join_all(threads);
        });
    }
}

pub(super) fn futures_complete_when_no_other_code_drives_the_disk(subject: &Subject<'_>) {
    for disk in subject.each("") {
        thread::scope(|scope| {
            let run = |number: u64| {
                let disk = &disk;
                scope.spawn(move || block_on(use_disk(disk, number << 16)))
            };
            join_all((0..3).map(run).collect::<Vec<_>>());
        });
    }
}

/// Writes, reads, flushes and waits for durability. No other task uses the range.
async fn use_disk(disk: &Disk, first: u64) {
    // A kick that is lost matters only at certain moments, so it takes many rounds to find one.
    for round in 1..=60_u8 {
        let at = first + u64::from(round % 4) * BLOCK;
        let write = disk.start(Io::write(Buf::from(&[round; BLOCK as usize][..]), at)).await;
        let point = write.expect("a good I/O").durable_point;
        let read = disk.start(Io::read(Buf::new(BLOCK as usize), at)).await.expect("a good I/O");
        assert_result("an awaited read", &read.result, &Ok(BLOCK));
        assert_read(disk, &read.buf.expect("its buffer"), &[round; BLOCK as usize]);
        if round % 8 == 0 {
            disk.durable(point).await.expect("a flush");
            assert_eq!(disk.start(Io::flush()).await.expect("a good I/O").result, Ok(0));
        }
    }
}
