//! Stress test with 1024 threads and few tags. The threads read, refuse to wait, drop their I/O,
//! and exit, while others freeze the disk and change the number of tags. Every bio ends, and at the
//! end every tag is free. Each policy runs once, or as often as `FOREBAY_SOAK_SECONDS` allows.

use crate::common::{Numbers, open, submit};
use forebay::{BlockStatus, Buf, Disk, Io, Op};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

const THREADS: u64 = 1024;
const DEPTH: u32 = 16;
const BLOCK: usize = 16 << 10;
const NR_BLOCKS: u64 = 1024;

/// One of the threads.
struct Visitor<'a> {
    disk: &'a Disk,
    numbers: Numbers,
    /// Number of bios that all threads have begun.
    nr_begun: &'a AtomicU64,
}

impl Visitor<'_> {
    fn io(&mut self) -> Io {
        self.nr_begun.fetch_add(1, Ordering::Relaxed);
        // The I/O takes four tags, or one.
        let len = if self.numbers.below(2) == 0 { BLOCK } else { 4096 };
        let io = Io::read(Buf::new(len), self.numbers.below(NR_BLOCKS) * BLOCK as u64);
        match self.numbers.below(8) {
            0 => io.background(),
            1 => io.reserved(),
            _ => io,
        }
    }

    fn reads(&mut self) {
        self.nr_begun.fetch_add(1, Ordering::Relaxed);
        let (mut buf, at) = (Buf::new(BLOCK), self.numbers.below(NR_BLOCKS) * BLOCK as u64);
        assert_eq!(self.disk.read_at(&mut buf, at), Ok(BLOCK));
    }

    /// Some of the I/O may not wait.
    fn queues(&mut self) {
        let mut queue = self.disk.queue();
        for _ in 0..1 + self.numbers.below(6) {
            let io = self.io();
            submit(&mut queue, if self.numbers.below(3) == 0 { io.nowait() } else { io });
        }
        let mut done = Vec::new();
        while !queue.is_empty() {
            queue.reap(1, usize::MAX, &mut done);
        }
        let is_fine = |result| matches!(result, Ok(_) | Err(BlockStatus::Again));
        assert!(done.iter().all(|done| is_fine(done.result)));
    }

    /// Starts I/O and does not wait for it. Dropping a queue waits, dropping a future does not.
    fn gives_up(&mut self) {
        let mut queue = self.disk.queue();
        let io = self.io();
        submit(&mut queue, io);
        if self.numbers.below(2) == 0 {
            let mut future = std::pin::pin!(self.disk.start(self.io()));
            let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

fn crowds(wake: &str) {
    let text = std::env::var("FOREBAY_SOAK_SECONDS").ok();
    let seconds = text.map_or(0, |text| text.parse().expect("a number"));
    let end = Instant::now() + Duration::from_secs(seconds);
    for nth in 0.. {
        crowd(wake, u64::from(std::process::id()) + nth);
        if Instant::now() >= end {
            return;
        }
    }
}

fn crowd(wake: &str, seed: u64) {
    let disk = open(&format!(
        "ram:16M?wake={wake}&queue_depth={DEPTH}&nr_hw_queues=1&max_sectors_kb=4&req_ns=500\
         &reserved_tags=1&async_depth=8"
    ));
    let (nr_begun, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (disk, nr_begun, is_over) = (&disk, &nr_begun, &is_over);
        let visit = move |thread: u64| {
            let mut visitor = Visitor { disk, numbers: Numbers(seed ^ thread << 32), nr_begun };
            for _ in 0..6 {
                match visitor.numbers.below(4) {
                    0 | 1 => visitor.reads(),
                    2 => visitor.queues(),
                    _ => visitor.gives_up(),
                }
            }
        };
        let spawn = |thread| {
            let builder = std::thread::Builder::new().stack_size(128 << 10);
            builder.spawn_scoped(scope, move || visit(thread)).expect("room for a thread")
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        scope.spawn(move || {
            let mut numbers = Numbers(seed);
            while !is_over.load(Ordering::Relaxed) {
                disk.set_nr_requests(2 + numbers.below(15) as u32).expect("within the depth");
                std::thread::sleep(Duration::from_micros(numbers.below(1000)));
                if numbers.below(8) == 0 {
                    drop(disk.freeze().expect("no other hold"));
                }
            }
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        is_over.store(true, Ordering::Relaxed);
    });
    drop(disk.freeze().expect("no other hold"));
    let stats = disk.stats().queue;
    let nr_ended: u64 = Op::ALL.iter().map(|&op| stats.op(op).bios).sum();
    assert_eq!(nr_ended, nr_begun.into_inner(), "wake={wake}, seed {seed}");
    check_all_tags(&disk, wake);
}

/// Checks that `DEPTH` reads get a tag without waiting, and that one more does not.
fn check_all_tags(disk: &Disk, wake: &str) {
    disk.set_nr_requests(DEPTH).expect("the depth");
    let mut queue = disk.queue();
    let plug = forebay::plug();
    for at in 0..=u64::from(DEPTH) {
        submit(&mut queue, Io::read(Buf::new(4096), at * 8192).reserved().nowait());
    }
    drop(plug);
    let mut done = Vec::new();
    queue.reap(DEPTH as usize + 1, usize::MAX, &mut done);
    let nr_found = done.iter().filter(|done| done.result == Ok(4096)).count();
    assert_eq!(nr_found, DEPTH as usize, "wake={wake}: tags in the end");
}

#[test]
fn a_crowd_at_few_tags_ends_and_loses_none_under_fair() {
    crowds("fair");
}

#[test]
fn a_crowd_at_few_tags_ends_and_loses_none_under_batch() {
    crowds("batch");
}

#[test]
fn a_crowd_at_few_tags_ends_and_loses_none_under_stash() {
    crowds("stash");
}

#[test]
fn a_crowd_at_few_tags_ends_and_loses_none_under_single() {
    crowds("single");
}
