//! I/O passes in which nothing may allocate, checked by an allocator that counts in all threads of
//! the program.

#[path = "counting.rs"]
mod counting;

use forebay::{BioQueue, Buf, Completion, Disk, Io};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Barrier;

/// I/Os that each thread keeps in flight in a counted pass.
const DEPTH: usize = 64;
/// I/Os that each thread keeps in flight in a warm-up.
const DEPTH_OF_WARM_UP: usize = 2 * DEPTH;
/// Threads and contexts exchange their lists, and each list has to grow once.
const NR_WARM_UPS: usize = 6;
/// Passes after the warm-ups, in which nothing may allocate.
const NR_PASSES: usize = 3;
const NR_ROUNDS: u64 = 120;
const BATCH: u64 = 16;

/// A thread's queue and buffers.
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

    /// Submits a plugged batch with the free buffers.
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
                let (header, body) = page.split_at_mut(1024);
                self.disk
                    .write_vectored_at(&[IoSlice::new(header), IoSlice::new(body)], round * 4096)
                    .expect("a write");
                let mut parts = [IoSliceMut::new(header), IoSliceMut::new(body)];
                self.disk.read_vectored_at(&mut parts, round * 4096).expect("a read");
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
        // The end of the thread may allocate, so it begins only after counting has stopped.
        barrier.wait();
    }
}

/// Checks that no pass allocates, neither in the threads that use the disks nor in the disks' own.
///
/// A list grows to its largest size so far. So a warm-up fills the lists further than the passes
/// do: it submits all its I/Os to a disk that is quiesced until the last one is submitted.
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
            counting::start();
            barrier.wait();
            barrier.wait();
            counting::stop()
        });
        barrier.wait();
        // The end of a scope does not wait for the threads' thread-local destructors.
        users.into_iter().for_each(|user| user.join().expect("no panic"));
        nr_allocations
    });
    let nr_ios = NR_ROUNDS * BATCH * nr_threads as u64;
    assert_eq!(
        nr_allocations, [0; NR_PASSES],
        "{what}, {nr_threads} threads: allocations in passes of {nr_ios} I/Os"
    );
}
