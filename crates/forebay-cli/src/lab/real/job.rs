//! A job's thread in real time: it keeps so many reads in flight until it is told to end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use forebay::{Buf, Completion, Disk, Histogram, Io};
use forebay_fio::random::Xoshiro256;

/// The places that are read are always the same.
const SEED: u64 = 1;

/// What a job is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// How many reads it keeps in flight.
    pub(super) depth: u32,
    /// How long each is, bytes.
    pub(super) block_bytes: u64,
    /// In how many parts it submits one, each a request.
    pub(super) parts: u32,
    /// How many places there are to read from.
    pub(super) nr_places: u64,
}

/// What all jobs and who watches them share.
#[derive(Debug)]
pub(super) struct Board {
    started: Instant,
    /// Reads that end now are counted.
    pub(super) is_measuring: AtomicBool,
    /// Enough.
    pub(super) is_over: AtomicBool,
    jobs: Vec<Seat>,
}

/// What a job shows of itself. Everything here stands for itself: nothing is published with it.
#[derive(Debug, Default)]
struct Seat {
    /// Reads that have ended.
    nr_ios: AtomicU64,
    /// Since when it waits for a tag, ns from the start; 0: it does not.
    waits_since_ns: AtomicU64,
}

impl Board {
    pub(super) fn new(nr_jobs: u32) -> Self {
        Self {
            started: Instant::now(),
            is_measuring: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            jobs: (0..nr_jobs).map(|_| Seat::default()).collect(),
        }
    }

    /// How many reads of each job have ended.
    pub(super) fn ios(&self) -> Vec<u64> {
        self.jobs.iter().map(|seat| seat.nr_ios.load(Ordering::Relaxed)).collect()
    }

    /// How long those that wait for a tag now have waited, ns.
    pub(super) fn waits(&self) -> Vec<u64> {
        let now = self.now_ns();
        let since = self.jobs.iter().map(|seat| seat.waits_since_ns.load(Ordering::Relaxed));
        since.filter(|&since| since > 0).map(|since| now.saturating_sub(since)).collect()
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64 + 1
    }
}

/// A read in flight.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    nr_left: u32,
    waited_ns: u64,
}

/// Works until it is over. Says how long its reads waited for tags.
pub(super) fn run(disk: &Disk, work: Work, board: &Board, id: u32) -> Histogram {
    let seat = &board.jobs[id as usize];
    let mut queue = disk.queue();
    let mut random = Xoshiro256::new(SEED, id.into());
    let mut reads = vec![Read::default(); work.depth as usize];
    let mut idle: Vec<u32> = (0..work.depth).collect();
    let mut bufs: Vec<Buf> = Vec::new();
    let mut waits = Histogram::default();
    let mut done: Vec<Completion> = Vec::new();
    let part_bytes = work.block_bytes / u64::from(work.parts);
    while !board.is_over.load(Ordering::Relaxed) {
        while let Some(at) = idle.pop() {
            let start = random.below(work.nr_places) * work.block_bytes;
            reads[at as usize] = Read { nr_left: work.parts, waited_ns: 0 };
            seat.waits_since_ns.store(board.now_ns(), Ordering::Relaxed);
            for part in 0..work.parts {
                let buf = bufs.pop().unwrap_or_else(|| Buf::new(part_bytes as usize));
                let io = Io::read(buf, start + u64::from(part) * part_bytes);
                let submitted = queue.submit(io.user_data(at.into()));
                assert!(submitted.is_ok(), "there is a box for each part: {submitted:?}");
                // One request after another, as a thread of Linux gets its tags: others come in
                // between. Where reads wait and not threads, it goes on at once.
                queue.wait_for_tags();
            }
            seat.waits_since_ns.store(0, Ordering::Relaxed);
            if board.is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        queue.reap(1, reads.len() * work.parts as usize, &mut done);
        let is_measuring = board.is_measuring.load(Ordering::Relaxed);
        for completion in done.drain(..) {
            let read = &mut reads[completion.user_data as usize];
            read.nr_left -= 1;
            read.waited_ns += completion.tag_wait_ns.unwrap_or(0);
            bufs.extend(completion.buf);
            if read.nr_left == 0 {
                idle.push(completion.user_data as u32);
                seat.nr_ios.fetch_add(1, Ordering::Relaxed);
                if is_measuring {
                    waits.record(read.waited_ns);
                }
            }
        }
    }
    waits
}
