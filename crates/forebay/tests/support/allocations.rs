//! Passes of I/O in which nothing may allocate: an allocator that counts, in all threads of the
//! program.
//!
//! A test program that uses this has one test, so that no other test allocates meanwhile.
// An allocator is unsafe code.
#![allow(unsafe_code)]

use forebay::{BioQueue, Buf, Completion, Disk, Io};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct Counting;

/// Whether allocations are counted now.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
static NR_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Counts an allocation of any thread but the program's first, which belongs to the test harness:
/// it prints a line, and allocates for that, when a test runs for more than a minute.
fn count() {
    // SAFETY: both calls only return a number.
    let is_first = || unsafe { libc::gettid() == libc::getpid() };
    if IS_ARMED.load(Ordering::Relaxed) && !is_first() {
        NR_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: all is handed to the system's allocator; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// I/Os that each thread keeps in flight in a counted pass.
const DEPTH: usize = 64;
/// I/Os that each thread keeps in flight in a warm-up.
const DEPTH_OF_WARM_UP: usize = 2 * DEPTH;
const NR_WARM_UPS: usize = 2;
/// Passes after the warm-ups, in which nothing may allocate.
const NR_PASSES: usize = 3;
const NR_ROUNDS: u64 = 120;
const BATCH: u64 = 16;

/// A thread with a queue.
struct User<'a> {
    disk: &'a Disk,
    queue: BioQueue,
    bufs: Vec<Buf>,
    done: Vec<Completion>,
}

impl User<'_> {
    fn new(disk: &Disk) -> User<'_> {
        let bufs = (0..DEPTH_OF_WARM_UP).map(|_| Buf::new(4096)).collect();
        User { disk, queue: disk.queue(), bufs, done: Vec::with_capacity(DEPTH_OF_WARM_UP) }
    }

    /// Submits a plugged batch, with the buffers that are free.
    fn submit_batch(&mut self, round: u64) {
        let plug = forebay::plug();
        for nth in 0..BATCH {
            let inner = forebay::plug();
            let Some(buf) = self.bufs.pop() else { break };
            let page = (round * BATCH + nth * (1 + round % 2)) % 256;
            let io = match round % 3 {
                0 => Io::write(buf, page * 4096),
                _ => Io::read(buf, page * 4096),
            };
            self.queue.submit(io).expect("a good I/O");
            drop(inner);
        }
        drop(plug);
    }

    fn reap(&mut self, min: usize) {
        self.queue.reap(min, DEPTH_OF_WARM_UP, &mut self.done);
        self.bufs.extend(self.done.drain(..).filter_map(|completion| completion.buf));
    }

    /// Keeps I/Os in flight, and makes blocking calls in between.
    fn pass(&mut self) {
        let mut page = self.bufs.pop().expect("all are free");
        for round in 0..NR_ROUNDS {
            self.submit_batch(round);
            self.reap(if self.bufs.len() < BATCH as usize { BATCH as usize } else { 0 });
            if round % 50 == 0 {
                self.disk.flush().expect("a flush");
            }
            if round % 10 == 0 {
                self.disk.read_at(&mut page, round * 4096).expect("a read");
            }
        }
        self.reap(self.queue.len());
        self.bufs.push(page);
    }

    /// Runs the warm-ups and the passes, in step with the other threads.
    fn run(mut self, barrier: &Barrier) {
        for _ in 0..NR_WARM_UPS {
            barrier.wait();
            (0..DEPTH_OF_WARM_UP as u64 / BATCH).for_each(|round| self.submit_batch(round));
            barrier.wait();
            self.reap(DEPTH_OF_WARM_UP);
            self.pass();
            barrier.wait();
        }
        self.bufs.truncate(DEPTH);
        for _ in 0..NR_PASSES {
            barrier.wait();
            self.pass();
            barrier.wait();
        }
        // Its end may allocate: it begins when no allocation is counted any more.
        barrier.wait();
    }
}

/// Checks that no pass allocates: neither the threads that use the disks, nor those of the disks.
///
/// A list grows to the most entries that it ever had. So a warm-up fills the lists further than the
/// passes do: it submits all its I/Os to a disk that is quiesced until the last has come.
pub(crate) fn check(what: &str, disks: &[Disk], nr_threads: usize) {
    let barrier = Barrier::new(nr_threads + 1);
    let nr_allocations = std::thread::scope(|scope| {
        let users = disks.iter().cycle().take(nr_threads);
        let users: Vec<_> =
            users.map(|disk| scope.spawn(|| User::new(disk).run(&barrier))).collect();
        for _ in 0..NR_WARM_UPS {
            let quiesced: Vec<_> = disks.iter().map(Disk::quiesce).collect();
            barrier.wait();
            barrier.wait();
            drop(quiesced);
            barrier.wait();
        }
        let nr_allocations = [(); NR_PASSES].map(|()| {
            NR_ALLOCATIONS.store(0, Ordering::Relaxed);
            IS_ARMED.store(true, Ordering::Relaxed);
            barrier.wait();
            barrier.wait();
            IS_ARMED.store(false, Ordering::Relaxed);
            NR_ALLOCATIONS.load(Ordering::Relaxed)
        });
        barrier.wait();
        // The scope itself does not wait for what threads do at their very end.
        users.into_iter().for_each(|user| user.join().expect("no panic"));
        nr_allocations
    });
    let nr_ios = NR_ROUNDS * BATCH * nr_threads as u64;
    assert_eq!(
        nr_allocations, [0; NR_PASSES],
        "{what}, {nr_threads} threads: allocations in passes of {nr_ios} I/Os"
    );
}
