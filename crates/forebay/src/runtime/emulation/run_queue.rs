//! Worker that runs the queue after each completion (`run_queue=always`).
//!
//! Emulates the state *before* "blk-mq: avoid repeatedly scheduling the same work to run hardware
//! queue" (linux-block, 2019), to measure what deduplication gains. There each completion calls
//! `blk_mq_run_hw_queues` with `async`, hence `mod_delayed_work` with no delay. That call takes a
//! lock, removes the work from the list if it is queued, adds it again, and wakes the kworker if it
//! sleeps. With many requests in flight the work is nearly always queued already, and the effort is
//! wasted.
//!
//! Here each reaped completion does the same ([`Rearming`]), and the worker is a thread of the
//! disk. It takes the work off the list, requests the token like any other thread, and turns. No
//! thread waits for the worker: a thread that publishes work requests a turn, as under
//! `run_queue=dedupe`. So results are the same without the worker, and any of its runs may be
//! dropped. Hence:
//!
//! - A gate that stops or quiesces takes the work off the list (R4). It need not synchronize with
//!   the worker: a turn under way holds the token, like any other (R5).
//! - Closing the disk ends the worker, whatever is on the list.
//! - A child of a fork has no such thread, and calls none of its functions.
//!
//! There is one work item, that of the shared context: only its owner takes the token of an owned
//! context.

use crate::driver::DriverQueue;
use crate::sys::primitive::{Condvar, Mutex, Ordering, lock};
use forebay_core::{Completions, Driver, Issue, IssuedRequest, Reap, Tag};
use std::sync::Arc;
// For counters that carry no synchronization: models need not see them.
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The work item of a context, and the list that it is on.
#[derive(Debug, Default)]
pub(crate) struct RunWork {
    list: Mutex<List>,
    /// Wakes the worker.
    queued: Condvar,
    // Written under the lock of the list. Read at any time, even in a child of a fork.
    nr_arms: AtomicU64,
    nr_rearms: AtomicU64,
    nr_cancels: AtomicU64,
    nr_worker_runs: AtomicU64,
}

/// How often the work item was queued and taken. The names are those of the counters in
/// [`EmulationStats`](forebay_core::EmulationStats), without `run_`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunStats {
    pub(crate) arms: u64,
    pub(crate) rearms: u64,
    pub(crate) cancels: u64,
    pub(crate) worker_runs: u64,
}

/// The list, of at most one work item.
#[derive(Debug, Default)]
struct List {
    is_queued: bool,
    /// The worker sleeps and has not been woken since.
    is_asleep: bool,
    is_over: bool,
}

impl RunWork {
    /// Queues the work, even if it is queued already. Counterpart in Linux: `mod_delayed_work`.
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

    /// Dequeues the work: the context was stopped or quiesced (R4). The thread that reopens it
    /// requests a turn.
    pub(crate) fn cancel(&self) {
        let mut list = lock(&self.list);
        let was_queued = std::mem::take(&mut list.is_queued);
        count(&self.nr_cancels, was_queued.into());
    }

    /// Takes the work off the list, for the worker, which sleeps until the work is queued. Returns
    /// false if the disk is closed.
    pub(crate) fn take(&self) -> bool {
        let mut list = lock(&self.list);
        loop {
            if list.is_over {
                return false;
            }
            // The work is dequeued before the turn (R1): a later completion queues it again.
            if std::mem::take(&mut list.is_queued) {
                count(&self.nr_worker_runs, 1);
                return true;
            }
            list.is_asleep = true;
            list = self.queued.wait(list).unwrap_or_else(std::sync::PoisonError::into_inner);
            list.is_asleep = false;
        }
    }

    /// Ends the worker: [`RunWork::take`] returns false.
    pub(crate) fn end(&self) {
        lock(&self.list).is_over = true;
        self.queued.notify_one();
    }

    pub(crate) fn stats(&self) -> RunStats {
        RunStats {
            arms: self.nr_arms.load(Ordering::Relaxed),
            rearms: self.nr_rearms.load(Ordering::Relaxed),
            cancels: self.nr_cancels.load(Ordering::Relaxed),
            worker_runs: self.nr_worker_runs.load(Ordering::Relaxed),
        }
    }
}

/// Adds to a counter. The lock allows one writer at a time, so no atomic read-modify-write is
/// needed.
fn count(counter: &AtomicU64, nr: u64) {
    counter.store(counter.load(Ordering::Relaxed) + nr, Ordering::Relaxed);
}

/// A driver that queues the work for each completion. (A wrapper, so that turns under the other
/// setting do not even check the setting.)
struct Rearming {
    inner: Box<dyn Driver>,
    work: Arc<RunWork>,
}

/// Wraps the driver of a shared context so that its completions queue the work.
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

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        let nr_before = done.len();
        self.inner.reap(done, how);
        (nr_before..done.len()).for_each(|_| self.work.arm());
    }

    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        self.inner.wait(nr_completions, timeout);
    }

    fn cancel(&mut self, tag: Tag) -> bool {
        self.inner.cancel(tag)
    }

    fn withdraw(&mut self) {
        self.inner.withdraw();
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

#[cfg(test)]
mod models;
