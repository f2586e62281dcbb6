//! Models of the worker of `run_queue=always`: its list, and a disk with a worker that is read,
//! held and closed. (The disk starts and ends its worker as a real one does.)

use super::RunWork;
use crate::runtime::emulation::Emulator;
use crate::runtime::gates::Hold;
use crate::runtime::shared::Shared;
use crate::runtime::toy::{AT_ONCE, By, Caller, How, Toy};
use crate::sys::primitive::{AtomicU64, check, check_within, thread};
use forebay_core::Gate;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The only completion wakes a worker that sleeps or is about to.
#[test]
fn a_worker_that_sleeps_is_woken() {
    check(|| {
        let work = Arc::new(RunWork::default());
        let worker = {
            let work = Arc::clone(&work);
            thread::spawn(move || assert!(work.take(), "the worker was not ended"))
        };
        work.arm();
        worker.join().unwrap();
        assert_eq!((work.stats().arms, work.stats().worker_runs), (1, 1));
    });
}

/// R1, R6: after each completion the worker checks for completions, or the work is queued. The
/// counts add up even though a stop removes the work.
#[test]
fn completions_are_handled_or_queued_and_counts_add_up() {
    check_within(3, || {
        let shared = Arc::new((RunWork::default(), AtomicU64::new(0)));
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut seen = 0;
                while shared.0.take() {
                    seen = shared.1.load(Relaxed);
                }
                seen
            })
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.0.cancel())
        };
        let (work, nr_completed) = &*shared;
        for nr in 1..=2 {
            nr_completed.store(nr, Relaxed);
            work.arm();
        }
        other.join().unwrap();
        work.end();
        let seen = worker.join().unwrap();
        let (stats, queued) = (work.stats(), work.list.lock().unwrap().is_queued);
        assert!(seen == 2 || queued || stats.cancels == 1, "a completion was forgotten");
        let left = u64::from(queued);
        assert_eq!(stats.arms, 2);
        assert_eq!(stats.arms, stats.rearms + stats.worker_runs + stats.cancels + left);
    });
}

/// Threads read from a disk with a worker. The last thread closes the disk.
fn read_and_close(how: How, nr_threads: usize) {
    let how = How { queues_runs: true, ..how };
    let toy = Toy::new(how);
    let shared = Toy::open(&toy);
    let others: Vec<_> = (1..nr_threads)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || Caller::new(&shared).read(&shared))
        })
        .chain((how.by == By::Thread).then(|| {
            let toy = Arc::clone(&toy);
            thread::spawn(move || toy.work(nr_threads))
        }))
        .collect();
    Caller::new(&shared).read(&shared);
    others.into_iter().for_each(|thread| thread.join().unwrap());
    let work = shared.emulator().and_then(Emulator::run_work).expect("it was asked for");
    assert_eq!(work.stats().arms, nr_threads as u64, "one for each completion");
    // The drop joins the worker: a worker that does not end is a deadlock.
    drop(shared);
}

#[test]
fn one_thread_beside_a_worker() {
    check_within(3, || read_and_close(AT_ONCE, 1));
    check_within(3, || read_and_close(How { by: By::Silence, ..AT_ONCE }, 1));
}

#[test]
fn one_thread_at_a_busy_device_beside_a_worker() {
    check_within(2, || read_and_close(How { nr_busy: 2, ..AT_ONCE }, 1));
}

#[test]
fn one_thread_whose_wait_begins_its_bio_beside_a_worker() {
    check_within(2, || read_and_close(How { begins: true, ..AT_ONCE }, 1));
}

#[test]
fn one_thread_and_a_device_beside_a_worker() {
    check_within(2, || read_and_close(How { by: By::Thread, ..AT_ONCE }, 1));
}

#[test]
fn two_threads_beside_a_worker() {
    check_within(1, || read_and_close(AT_ONCE, 2));
}

/// R4: a disk is quiesced while its worker may run, which cancels the worker's run. Neither the
/// quiescing thread nor the reader hangs.
#[test]
fn a_disk_is_quiesced_beside_its_worker() {
    check_within(1, || {
        let shared = Toy::disk(How { queues_runs: true, ..AT_ONCE });
        let quiesce = |shared: &Arc<Shared>| {
            let hold = Hold::new(shared, Gate::Quiesced);
            hold.await_turns();
            drop(hold);
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || quiesce(&shared))
        };
        Caller::new(&shared).read(&shared);
        other.join().unwrap();
        drop(shared);
    });
}

/// Models that are too large for loom.
#[cfg(not(blk_loom))]
#[test]
fn many_threads_beside_a_worker() {
    const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
    check(|| read_and_close(AT_ONCE, THREADS));
    check(|| read_and_close(How { queue_depth: 2, nr_busy: 3, ..AT_ONCE }, THREADS));
    check(|| read_and_close(How { by: By::Thread, ..AT_ONCE }, THREADS));
}
