//! Models of the rounds: loom runs threads that write and sync in every interleaving.

use super::rounds::{Kind, Outcome, Rounds};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

/// A file of some threads, each with one write.
struct Device {
    rounds: Rounds<u32, u32>,
    written: [AtomicBool; 4],
    durable: [AtomicBool; 4],
    /// The shared syncs that run, and those that have begun.
    nr_running: AtomicU32,
    nr_begun: AtomicU32,
    /// The number of the sync that fails, from 1 on.
    fails: u32,
}

impl Device {
    fn new(fails: u32) -> Arc<Device> {
        Arc::new(Device {
            rounds: Rounds::new(),
            written: Default::default(),
            durable: Default::default(),
            nr_running: AtomicU32::new(0),
            nr_begun: AtomicU32::new(0),
            fails,
        })
    }

    /// Makes a sync. If it succeeds, the writes that have ended before it are durable, as far as
    /// their threads need.
    fn sync(&self, kind: Kind) -> Outcome {
        let nth = self.nr_begun.fetch_add(1, Ordering::Relaxed) + 1;
        assert_eq!(self.nr_running.fetch_add(1, Ordering::Relaxed), 0, "one sync at a time");
        let is_enough = |nth| kind >= kind_of(nth);
        let before =
            [0, 1, 2, 3].map(|nth| is_enough(nth) && self.written[nth].load(Ordering::Relaxed));
        thread::yield_now();
        if nth != self.fails {
            for (durable, _) in self.durable.iter().zip(before).filter(|(_, is)| *is) {
                durable.store(true, Ordering::Relaxed);
            }
        }
        self.nr_running.fetch_sub(1, Ordering::Relaxed);
        if nth == self.fails { Err(libc::EIO) } else { Ok(()) }
    }

    /// Writes and syncs, as the thread with this number. Returns whether the sync was shared.
    fn write_and_sync(&self, thread: usize) -> bool {
        self.written[thread].store(true, Ordering::Relaxed);
        let sync = |kind, kept: &mut Option<u32>| {
            assert!(kept.is_none_or(|file| file == 7));
            self.sync(kind)
        };
        let keep = |spare: Option<u32>| Some(spare.unwrap_or(7));
        let synced = self.rounds.sync(7, kind_of(thread), keep, sync);
        let Some((outcome, is_shared)) = synced else { return false };
        assert!(outcome.is_err() || self.durable[thread].load(Ordering::Relaxed), "it is durable");
        is_shared
    }
}

/// Returns what a thread needs of a sync.
fn kind_of(thread: usize) -> Kind {
    if thread == 1 { Kind::All } else { Kind::Data }
}

/// Runs a model with threads that sync once each, beside the main thread.
/// Three or more of them share a sync in some of the interleavings.
fn run(nr_threads: usize, fails: u32) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if nr_threads < 4 { 3 } else { 1 });
    let nr_shared = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let shared = std::sync::Arc::clone(&nr_shared);
    builder.check(move || {
        let device = Device::new(fails);
        let sync = |nth: usize| {
            let device = Arc::clone(&device);
            thread::spawn(move || device.write_and_sync(nth))
        };
        let others: Vec<_> = (1..nr_threads).map(sync).collect();
        let is_shared = [device.write_and_sync(0)].into_iter();
        let is_shared = is_shared.chain(others.into_iter().map(|it| it.join().expect("a thread")));
        let nr = is_shared.filter(|is| *is).count() as u32;
        shared.fetch_add(nr, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(device.nr_running.load(Ordering::Relaxed), 0);
        let nr_begun = device.nr_begun.load(Ordering::Relaxed);
        assert_eq!(nr_begun + nr, nr_threads as u32);
    });
    let nr_shared = nr_shared.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(nr_shared > 0, nr_threads > 2, "{nr_shared} shared syncs");
}

#[test]
fn sync_of_each_thread_begins_after_its_write_and_ends() {
    run(2, 0);
    run(3, 0);
    run(4, 0);
}

#[test]
fn failure_is_that_of_all_threads_of_the_round() {
    run(3, 1);
    run(3, 2);
}
