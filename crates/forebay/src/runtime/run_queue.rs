//! Runs that completions ask for and a worker makes (`run_queue=always`).
//!
//! Emulates the state *before* "blk-mq: avoid repeatedly scheduling the same work to run hardware
//! queue" (linux-block, 2019), to measure what deduplication gains. There each completion calls
//! `blk_mq_run_hw_queues` with `async`, hence `mod_delayed_work` with no delay: it takes a lock,
//! removes the work from the list if it is there, adds it again, and wakes the kworker if that
//! sleeps. With many requests in flight the work is nearly always queued already, and the effort is
//! wasted.
//!
//! Here each completion that is reaped does so ([`Rearming`]), and the worker is a thread of the
//! disk. It takes the work off the list, asks for the token as everybody does, and turns. Nothing
//! waits for it: whoever publishes work asks for a turn as under `run_queue=dedupe`, so results are
//! the same without it, and any of its runs may be dropped. Hence:
//!
//! - a gate that stops or quiesces takes the work off the list (R4), and needs no word with the
//!   worker: a turn under way is found by the token, like any other (R5);
//! - closing ends it, whatever is on the list;
//! - a child of a fork has no such thread, and none of its functions is called there.
//!
//! There is one work, that of the shared context: the token of an owned one is its owner's alone.

use crate::driver::DriverQueue;
use crate::info::RunQueueStats;
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::hctx::Hctx;
use crate::runtime::primitive::{Condvar, Mutex, Ordering, lock, thread};
use crate::runtime::shared::SHARED;
use crate::runtime::thread::reserve_spare;
use forebay_core::{Completions, Driver, Issue, IssuedRequest, Look};
use std::io;
use std::sync::Arc;
// For counts, from which nothing is concluded: models need not look at them.
use std::sync::atomic::AtomicU64;

/// The work of a context, and the list that it is on.
#[derive(Debug, Default)]
pub(crate) struct RunWork {
    list: Mutex<List>,
    /// Wakes the worker.
    queued: Condvar,
    // Written under the lock of the list, and read at any time, in a child of a fork as well.
    nr_arms: AtomicU64,
    nr_rearms: AtomicU64,
    nr_cancels: AtomicU64,
    nr_worker_runs: AtomicU64,
}

/// Of at most one work, since there is one.
#[derive(Debug, Default)]
struct List {
    is_queued: bool,
    /// The worker sleeps, and nobody has woken it since.
    is_asleep: bool,
    is_over: bool,
}

impl RunWork {
    /// Queues the work, though it may be queued. Counterpart in Linux: `mod_delayed_work`.
    fn arm(&self) {
        let mut list = lock(&self.list);
        let was_queued = std::mem::take(&mut list.is_queued);
        count(&self.nr_arms, 1);
        count(&self.nr_rearms, was_queued.into());
        list.is_queued = true;
        let wakes = std::mem::take(&mut list.is_asleep);
        drop(list);
        if wakes {
            self.queued.notify_one();
        }
    }

    /// The context was stopped or quiesced (R4). Who opens it asks for a turn.
    pub(crate) fn cancel(&self) {
        let mut list = lock(&self.list);
        let was_queued = std::mem::take(&mut list.is_queued);
        count(&self.nr_cancels, was_queued.into());
    }

    /// Takes the work off the list, for the worker, which sleeps until it is there. False: the disk
    /// is closed.
    fn take(&self) -> bool {
        let mut list = lock(&self.list);
        loop {
            if list.is_over {
                return false;
            }
            // It is off the list before the context is looked at (R1): who completes something
            // after that queues it again.
            if std::mem::take(&mut list.is_queued) {
                count(&self.nr_worker_runs, 1);
                return true;
            }
            list.is_asleep = true;
            list = self.queued.wait(list).unwrap_or_else(std::sync::PoisonError::into_inner);
            list.is_asleep = false;
        }
    }

    fn end(&self) {
        lock(&self.list).is_over = true;
        self.queued.notify_one();
    }

    pub(crate) fn stats(&self) -> RunQueueStats {
        RunQueueStats {
            arms: self.nr_arms.load(Ordering::Relaxed),
            rearms: self.nr_rearms.load(Ordering::Relaxed),
            cancels: self.nr_cancels.load(Ordering::Relaxed),
            worker_runs: self.nr_worker_runs.load(Ordering::Relaxed),
        }
    }
}

/// One writer at a time, by the lock: no locked instruction.
fn count(counter: &AtomicU64, nr: u64) {
    counter.store(counter.load(Ordering::Relaxed) + nr, Ordering::Relaxed);
}

/// A driver each of whose completions queues the work. (A wrapper, so that a turn under the other
/// setting pays nothing, not even a look at the setting.)
struct Rearming {
    inner: Box<dyn Driver>,
    work: Arc<RunWork>,
}

/// The queue of a shared context whose completions queue the work.
pub(crate) fn rearming(queue: DriverQueue, work: &Arc<RunWork>) -> DriverQueue {
    let driver = Rearming { inner: queue.driver, work: Arc::clone(work) };
    DriverQueue { driver: Box::new(driver), waiter: queue.waiter }
}

impl Driver for Rearming {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Issue {
        self.inner.queue_rq(rq, last)
    }

    fn commit_rqs(&mut self) {
        self.inner.commit_rqs();
    }

    fn leave_to_wait(&mut self) {
        self.inner.leave_to_wait();
    }

    fn reap(&mut self, done: &mut Completions, look: Look) {
        let nr_before = done.len();
        self.inner.reap(done, look);
        (nr_before..done.len()).for_each(|_| self.work.arm());
    }

    fn wait(&mut self, nr_completions: u32) {
        self.inner.wait(nr_completions);
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn has_ready(&self) -> bool {
        self.inner.has_ready()
    }

    fn nr_syscalls(&self) -> u64 {
        self.inner.nr_syscalls()
    }
}

/// The thread that makes the runs.
#[derive(Debug)]
pub(crate) struct Worker {
    thread: thread::JoinHandle<()>,
    work: Arc<RunWork>,
}

/// Starts the worker of a disk that nobody else knows of yet.
pub(crate) fn start(hctxs: &Arc<[Hctx]>, work: &Arc<RunWork>) -> io::Result<Worker> {
    let (hctxs, of_thread) = (Arc::clone(hctxs), Arc::clone(work));
    let serve = move || {
        reserve_spare();
        while of_thread.take() {
            hctxs[SHARED].run_turn();
        }
    };
    let builder = thread::Builder::new().name(String::from("forebay-kworker"));
    let thread = builder.stack_size(256 * 1024).spawn(|| AbortOnUnwind::guard(serve))?;
    Ok(Worker { thread, work: Arc::clone(work) })
}

impl Worker {
    /// The disk is closed: the thread ends, and makes no turn after this. (But where it is the
    /// caller, because it woke somebody who dropped the last handle: it is between two turns then.)
    pub(crate) fn end(self) {
        self.work.end();
        if self.thread.thread().id() != thread::current().id() {
            // If it has panicked, the process has aborted.
            let _ = self.thread.join();
        }
    }
}

#[cfg(test)]
#[path = "run_queue_models.rs"]
mod models;
