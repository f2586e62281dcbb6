//! A job's thread in real time, which keeps a number of reads in flight until it has to end.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use forebay::{BioQueue, Buf, Completion, Disk, Histogram, Io};
use forebay_fio::random::Xoshiro256;

use crate::bench::usage;

/// Every run reads the same offsets.
const SEED: u64 = 1;

/// Average number of parts that a thread submits before another thread woken with it begins. This
/// is the result in virtual time, where each thread has a processor and a tag takes 0.8 us.
const PARTS_PER_TURN: u64 = 4;

/// The work of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Number of reads in flight.
    pub(super) depth: u32,
    /// Length of each read in bytes.
    pub(super) block_bytes: u64,
    /// Number of parts per read, each submitted as one request.
    pub(super) parts: u32,
    /// Number of offsets to read from.
    pub(super) nr_places: u64,
}

/// State shared by all jobs and the thread that watches them.
#[derive(Debug)]
pub(super) struct Board {
    started: Instant,
    /// Whether completed reads are counted.
    pub(super) is_measuring: AtomicBool,
    /// Whether the jobs must end.
    pub(super) is_over: AtomicBool,
    jobs: Vec<Seat>,
}

/// Progress of a job. The counters are independent, and publish no other data.
#[derive(Debug, Default)]
struct Seat {
    /// Number of completed reads.
    nr_ios: AtomicU64,
    /// Since when the job waits for a tag, ns from the start; 0 if it does not.
    waits_since_ns: AtomicU64,
    /// The ID of its thread; 0 before the thread has started.
    thread: AtomicI32,
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

    /// Returns the number of completed reads of each job.
    pub(super) fn ios(&self) -> Vec<u64> {
        self.jobs.iter().map(|seat| seat.nr_ios.load(Ordering::Relaxed)).collect()
    }

    /// Returns how long the jobs that now wait for a tag have waited, ns.
    pub(super) fn waits(&self) -> Vec<u64> {
        let now = self.now_ns();
        let since = self.jobs.iter().map(|seat| seat.waits_since_ns.load(Ordering::Relaxed));
        since.filter(|&since| since > 0).map(|since| now.saturating_sub(since)).collect()
    }

    /// Returns the voluntary context switches of all job threads since their start, as counted by
    /// the kernel: one for each sleep, for any reason.
    pub(super) fn voluntary_switches(&self) -> u64 {
        let threads = self.jobs.iter().map(|seat| seat.thread.load(Ordering::Relaxed));
        threads.filter(|&id| id != 0).map(usage::voluntary_switches).sum()
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

/// State of a job's thread.
struct Job<'a> {
    work: Work,
    seat: &'a Seat,
    board: &'a Board,
    queue: BioQueue,
    reads: Vec<Read>,
    /// Reads that are not in flight.
    idle: Vec<u32>,
    /// Reads that have completed. They are submitted again only after all idle ones.
    ended: Vec<u32>,
    bufs: Vec<Buf>,
    done: Vec<Completion>,
    waits: Histogram,
    random: Xoshiro256,
}

/// Runs until the job is over. Returns how long its reads waited for tags.
pub(super) fn run(disk: &Disk, work: Work, board: &Board, id: u32) -> Histogram {
    let seat = &board.jobs[id as usize];
    seat.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    let mut job = Job {
        work,
        seat,
        board,
        queue: disk.queue(),
        reads: vec![Read::default(); work.depth as usize],
        idle: (0..work.depth).collect(),
        ended: Vec::new(),
        bufs: Vec::new(),
        done: Vec::new(),
        waits: Histogram::default(),
        random: Xoshiro256::new(SEED, id.into()),
    };
    while !board.is_over.load(Ordering::Relaxed) {
        match job.idle.pop() {
            Some(at) => {
                let start = job.random.below(work.nr_places) * work.block_bytes;
                job.submit(at, start);
                // This reap only updates the count.
                job.reap(0);
            }
            None => {
                if job.ended.is_empty() {
                    job.reap(1);
                }
                std::mem::swap(&mut job.idle, &mut job.ended);
            }
        }
    }
    job.waits
}

impl Job<'_> {
    /// Submits a read, one part after another, as a thread in Linux gets its tags: other threads
    /// submit in between. There may be fewer processors than threads, so the thread yields now and
    /// then. Otherwise the thread that is woken first would take all tags, read after read. If
    /// reads rather than threads wait for tags, there is one part.
    fn submit(&mut self, at: u32, start: u64) {
        let Job { work, seat, board, queue, .. } = self;
        let part_bytes = work.block_bytes / u64::from(work.parts);
        self.reads[at as usize] = Read { nr_left: work.parts, waited_ns: 0 };
        seat.waits_since_ns.store(board.now_ns(), Ordering::Relaxed);
        for part in 0..work.parts {
            let buf = self.bufs.pop().unwrap_or_else(|| Buf::new(part_bytes as usize));
            let io = Io::read(buf, start + u64::from(part) * part_bytes);
            let submitted = queue.submit(io.user_data(at.into()));
            assert!(submitted.is_ok(), "there is a box for each part: {submitted:?}");
            queue.wait_for_tags();
            if work.parts > 1 && self.random.below(PARTS_PER_TURN) == 0 {
                thread::yield_now();
            }
        }
        seat.waits_since_ns.store(0, Ordering::Relaxed);
    }

    /// Reaps the completed parts, at least `min`.
    fn reap(&mut self, min: usize) {
        let max = self.reads.len() * self.work.parts as usize;
        self.queue.reap(min, max, &mut self.done);
        let is_measuring = self.board.is_measuring.load(Ordering::Relaxed);
        for completion in self.done.drain(..) {
            let read = &mut self.reads[completion.user_data as usize];
            read.nr_left -= 1;
            read.waited_ns += completion.tag_wait_ns.unwrap_or(0);
            self.bufs.extend(completion.buf);
            if read.nr_left == 0 {
                self.ended.push(completion.user_data as u32);
                self.seat.nr_ios.fetch_add(1, Ordering::Relaxed);
                if is_measuring {
                    self.waits.record(read.waited_ns);
                }
            }
        }
    }
}
