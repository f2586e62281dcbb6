//! Checks of waits, drops, wake-ups and holds.

use super::helpers::{
    assert_read, await_readable, block_on, keeps_data, pattern, reap_all, submit,
};
use super::{LEN, Subject};
use crate::{BlockStatus, Buf, Disk, Io};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const BLOCK: u64 = 4096;
const NR: u64 = LEN / BLOCK;

pub(super) fn many_are_in_flight_at_once(subject: &Subject<'_>) {
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
                assert_eq!(done.result, Ok(BLOCK));
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
        for number in 0..6u64 {
            let disk = &disk;
            scope.spawn(move || {
                let mut queue = disk.queue();
                let mut back = Buf::new(BLOCK as usize);
                for round in 0..100 {
                    let at = (number * 20 + round % 20) * BLOCK;
                    let data = pattern(round, at, BLOCK);
                    if number % 2 == 0 {
                        assert_eq!(disk.write_at(&data, at), Ok(BLOCK as usize));
                        assert_eq!(disk.read_at(&mut back, at), Ok(BLOCK as usize));
                        assert_read(disk, &back, &data);
                    } else {
                        submit(&mut queue, Io::write(data, at));
                        submit(&mut queue, Io::discard((200 + number) * BLOCK, BLOCK));
                        submit(&mut queue, Io::flush());
                        let ended = reap_all(&mut queue);
                        assert!(ended.iter().all(|done| done.result.is_ok()), "{ended:?}");
                        assert_eq!(disk.read_at(&mut back, at), Ok(BLOCK as usize));
                        assert_read(disk, &back, &pattern(round, at, BLOCK));
                    }
                }
            });
        }
    });
}

pub(super) fn a_queue_that_is_dropped_has_written(subject: &Subject<'_>) {
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
pub(super) fn a_disk_that_is_dropped_has_ended_its_io(subject: &Subject<'_>) {
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

/// No I/O is in flight, so only a kick ends the wait of the leader.
pub(super) fn waiters_continue_after_the_end_of_a_hold(subject: &Subject<'_>) {
    let disk = subject.open("nr_hw_queues=1");
    for round in 0..10u64 {
        let held = disk.quiesce();
        thread::scope(|scope| {
            let wait = || {
                let mut queue = disk.queue();
                submit(&mut queue, Io::read(Buf::new(BLOCK as usize), 0));
                assert_eq!(reap_all(&mut queue)[0].result, Ok(BLOCK));
                disk.flush().expect("a flush");
            };
            let threads = [scope.spawn(wait), scope.spawn(wait)];
            thread::sleep(Duration::from_micros(round * 300));
            assert!(threads.iter().all(|thread| !thread.is_finished()));
            drop(held);
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
        assert!(done.iter().all(|done| done.result.is_ok()));
        assert_eq!(done.len(), 100);
    }
}

pub(super) fn a_freeze_waits_for_entered_bios(subject: &Subject<'_>) {
    for disk in subject.each("") {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let work = || {
                let mut buf = Buf::new(BLOCK as usize);
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(disk.read_at(&mut buf, 0), Ok(BLOCK as usize));
                }
            };
            let threads = [scope.spawn(work), scope.spawn(work)];
            for _ in 0..20 {
                let frozen = disk.freeze().expect("no other hold");
                let issued = disk.stats().queue.issued;
                let mut queue = disk.queue();
                submit(&mut queue, Io::read(Buf::new(512), 0).nowait());
                assert_eq!(reap_all(&mut queue)[0].result, Err(BlockStatus::Again));
                thread::yield_now();
                assert_eq!(disk.stats().queue.issued, issued, "nothing goes while it is frozen");
                drop(frozen);
            }
            is_over.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }
}

pub(super) fn futures_end_on_a_disk_without_another_driver(subject: &Subject<'_>) {
    for disk in subject.each("") {
        thread::scope(|scope| {
            for number in 0..3u64 {
                let disk = &disk;
                scope.spawn(move || block_on(use_disk(disk, number << 16)));
            }
        });
    }
}

/// Writes, reads, flushes and waits for durability. No other task uses the range.
async fn use_disk(disk: &Disk, first: u64) {
    for round in 1..=20_u8 {
        let at = first + u64::from(round % 4) * BLOCK;
        let write = disk.start(Io::write(Buf::from(&[round; BLOCK as usize][..]), at)).await;
        let point = write.expect("a good I/O").durable_point;
        let read = disk.start(Io::read(Buf::new(BLOCK as usize), at)).await.expect("a good I/O");
        assert_eq!(read.result, Ok(BLOCK));
        assert!(!keeps_data(disk) || *read.buf.expect("its buffer") == [round; BLOCK as usize]);
        if round % 8 == 0 {
            disk.durable(point).await.expect("a flush");
            assert_eq!(disk.start(Io::flush()).await.expect("a good I/O").result, Ok(0));
        }
    }
}
