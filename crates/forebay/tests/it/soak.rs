//! Threads that use the whole API at random: no I/O is lost, and every byte is right. The threads
//! of [`loops`] are event loops.
//!
//! Each test runs for 3 seconds, or for `FOREBAY_SOAK_SECONDS`. It prints its seed.
//! `FOREBAY_SOAK_SEED` repeats the same choices, but not the same interleaving.

mod loops;

use crate::common::{Numbers, Scratch, open};
use forebay::{BioQueue, BlockStatus, Buf, Completion, Disk, Io, Op};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const THREADS: u64 = 5;
/// Number of pages that only one thread uses.
const PAGES: u64 = 64;

/// Returns the content of a page: one number, repeated; 0 before the first write.
fn content(value: u64) -> Buf {
    let mut buf = Buf::new(4096);
    for word in buf.chunks_mut(8) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    buf
}

/// A thread and its model of its pages.
struct Worker<'a> {
    disk: &'a Disk,
    numbers: Numbers,
    first: u64,
    /// Value of each page. `None` while it is unknown: an I/O that may have written the page is in
    /// flight or was dropped.
    pages: Vec<Option<u64>>,
    nr_taken: u64,
    nr_ended: &'a AtomicU64,
}

impl Worker<'_> {
    fn pick(&mut self) -> u64 {
        self.numbers.below(PAGES)
    }

    fn at(&self, page: u64) -> u64 {
        (self.first + page) * 4096
    }

    fn check(&self, page: u64, buf: &Buf) {
        if let Some(value) = self.pages[page as usize] {
            assert!(**buf == *content(value), "page {page} of {}", self.disk.info().spec);
        }
    }

    fn blocking(&mut self) {
        let page = self.pick();
        self.nr_taken += 1;
        if self.numbers.below(2) == 0 {
            let value = self.numbers.next();
            let nr = self.disk.write_at(&content(value), self.at(page)).expect("a write");
            assert_eq!(nr, 4096);
            self.pages[page as usize] = Some(value);
        } else {
            let mut buf = Buf::new(4096);
            assert_eq!(self.disk.read_at(&mut buf, self.at(page)).expect("a read"), 4096);
            self.check(page, &buf);
        }
        self.nr_ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Submits a batch of writes and reads of different pages, then reaps or drops it.
    fn batch(&mut self, queue: &mut BioQueue) {
        let plug = (self.numbers.below(2) == 0).then(forebay::plug);
        let section = (self.numbers.below(2) == 0).then(forebay::defer);
        let (first, nr) = (self.pick(), 1 + self.numbers.below(24));
        let mut values = Vec::new();
        for page in (first..first + nr).map(|page| page % PAGES) {
            let (at, value) = (self.at(page), self.numbers.next());
            let is_write = self.numbers.below(2) == 0;
            let io = match is_write {
                true => Io::write(content(value), at),
                false => Io::read(Buf::new(4096), at),
            };
            let io = if self.numbers.below(8) == 0 { io.nowait() } else { io };
            let io = if self.numbers.below(16) == 0 { io.fua() } else { io };
            queue.submit(io.user_data(page)).expect("room");
            self.nr_taken += 1;
            values.push((page, is_write.then_some(value)));
        }
        drop((plug, section));
        let mut done: Vec<Completion> = Vec::new();
        while done.len() < values.len() {
            let min = self.numbers.below(4) as usize;
            queue.reap(min.min(values.len() - done.len()), values.len(), &mut done);
        }
        for completion in done {
            self.nr_ended.fetch_add(1, Ordering::Relaxed);
            let page = completion.user_data;
            let (_, written) = *values.iter().find(|value| value.0 == page).expect("submitted");
            match (completion.result, written) {
                (Ok(nr), Some(value)) => {
                    assert_eq!(nr, 4096);
                    self.pages[page as usize] = Some(value);
                }
                (Ok(nr), None) => {
                    assert_eq!(nr, 4096);
                    self.check(page, &completion.buf.expect("its buffer"));
                }
                // The I/O did not want to wait, so it did nothing.
                (Err(BlockStatus::Again), _) => {}
                (Err(status), _) => panic!("{status}"),
            }
        }
    }

    /// Leaves I/O in flight: dropping the queue waits for it.
    fn dropped(&mut self) {
        let mut queue = self.disk.queue();
        let plug = (self.numbers.below(2) == 0).then(forebay::plug);
        for _ in 0..1 + self.numbers.below(8) {
            let page = self.pick();
            queue.submit(Io::write(content(1), self.at(page))).expect("room");
            self.nr_taken += 1;
            self.nr_ended.fetch_add(1, Ordering::Relaxed);
            self.pages[page as usize] = Some(1);
        }
        drop(queue);
        drop(plug);
    }

    fn run(&mut self, stop: &AtomicBool) {
        let mut queue = self.disk.queue();
        while !stop.load(Ordering::Relaxed) {
            match self.numbers.below(8) {
                0..3 => self.blocking(),
                3..7 => self.batch(&mut queue),
                _ => self.dropped(),
            }
        }
    }
}

/// Freezes, quiesces or stops a disk at random intervals.
fn hold(disk: &Disk, mut numbers: Numbers, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(numbers.below(20)));
        let held = match numbers.below(3) {
            0 => disk.freeze().expect("no other hold"),
            1 => disk.quiesce(),
            _ => disk.stop(),
        };
        std::thread::sleep(Duration::from_micros(numbers.below(2000)));
        drop(held);
    }
}

/// Soaks one disk for `len`, with threads that come and go.
fn soak(spec: &str, seed: u64, len: Duration) {
    let disk = open(spec);
    let (nr_ended, mut nr_taken) = (AtomicU64::new(0), 0);
    let end = Instant::now() + len;
    let mut pages = vec![vec![None; PAGES as usize]; THREADS as usize];
    let mut generation = 0;
    while Instant::now() < end {
        generation += 1;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (disk, stop, nr_ended) = (&disk, &stop, &nr_ended);
            let workers: Vec<_> = (0..THREADS)
                .zip(pages.drain(..))
                .map(|(n, pages)| {
                    let numbers = Numbers(seed ^ generation << 16 ^ n << 8);
                    let first = n * PAGES;
                    scope.spawn(move || {
                        let nr_taken = 0;
                        let mut worker = Worker { disk, numbers, first, pages, nr_taken, nr_ended };
                        worker.run(stop);
                        (worker.pages, worker.nr_taken)
                    })
                })
                .collect();
            scope.spawn(|| hold(disk, Numbers(seed ^ generation), stop));
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
            for worker in workers {
                let (left, taken) = worker.join().expect("no panic");
                pages.push(left);
                nr_taken += taken;
            }
        });
    }
    let stats = disk.stats().queue;
    let bios: u64 = Op::ALL.iter().map(|&op| stats.op(op).bios).sum();
    assert_eq!((bios, nr_ended.into_inner()), (nr_taken, nr_taken), "{spec}");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn soak_seconds() -> u64 {
    number("FOREBAY_SOAK_SECONDS").unwrap_or(3)
}

/// Returns the seed, and prints it.
#[allow(clippy::print_stdout, reason = "libtest prints it if the test fails")]
fn soak_seed() -> u64 {
    let seed = number("FOREBAY_SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("FOREBAY_SOAK_SEED={seed}");
    seed
}

#[test]
fn threads_that_do_anything_lose_nothing() {
    let (seconds, seed) = (soak_seconds(), soak_seed());
    let scratch = Scratch::new(THREADS * PAGES * 4096);
    let specs = [
        "ram:2M?nr_hw_queues=1&queue_depth=3".to_owned(),
        "ram:2M?nr_hw_queues=3&kick=loop-end".to_owned(),
        "ram:2M?nr_hw_queues=1&queue_depth=3&run_queue=always".to_owned(),
        "fault:ram:2M?rule=any:busy:nth=11&nr_hw_queues=2&run_queue=always".to_owned(),
        "ram:2M?req_ns=3000&nr_hw_queues=2&service=on".to_owned(),
        "fault:ram:2M?rule=any:short=1k:nth=5&rule=any:busy:nth=11&nr_hw_queues=3".to_owned(),
        scratch.spec("direct=on&nr_hw_queues=2&queue_depth=8"),
        scratch.spec("direct=on&nr_hw_queues=2&queue_depth=8&run_queue=always&service=on"),
        format!("aio:{}", scratch.spec("direct=on&nr_hw_queues=2&queue_depth=8")),
        format!("psync:{}", scratch.spec("nr_threads=2&nr_hw_queues=2&queue_depth=8")),
    ];
    let len = Duration::from_millis(seconds * 1000 / specs.len() as u64);
    for (spec, nth) in specs.iter().zip(1..) {
        soak(spec, seed.wrapping_mul(nth), len);
        std::fs::write(&scratch.path, vec![0; (THREADS * PAGES * 4096) as usize]).expect("room");
    }
}
