//! Device that makes blocking system calls on a file, and the driver of one of its queues.

use super::call::{Call, Target};
use super::pool::Pool;
use super::queue::{Done, PsyncWaiter, Queue};
use crate::driver::own_call::{self, OwnCalls};
use crate::driver::vectors::Vectors;
use crate::driver::{Device, DriverQueue, Mode, holes};
use crate::error::SpecError;
use crate::extent::Extents;
use crate::info::Feature;
use crate::keys::Keys;
use forebay_core::{BlockStatus, Completions, Driver, Issue, IssuedRequest, QueueLimits, Reap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The default of `nr_threads`: the usual queue depth of a disk with one queue.
const NR_THREADS: usize = 32;

/// The maximum of `nr_threads`: each thread needs a stack, and io_uring suits disks that need more.
const NR_THREADS_MAX: u64 = 1024;

/// Takes the key `nr_threads`.
pub(in crate::driver) fn nr_threads(keys: &mut Keys) -> Result<usize, SpecError> {
    let nr = keys.take_number("nr_threads", "a number from 1 to 1024", 1..=NR_THREADS_MAX)?;
    Ok(nr.map_or(NR_THREADS, |nr| nr as usize))
}

pub(in crate::driver) struct PsyncDevice {
    target: Arc<Target>,
    limits: QueueLimits,
    pool: Arc<Pool>,
    nr_threads: usize,
}

impl PsyncDevice {
    /// Creates a device with at most `nr_threads` threads, which start when they are needed.
    pub(in crate::driver) fn new(target: Target, limits: QueueLimits, nr_threads: usize) -> Self {
        let pool = Arc::new(Pool::new(nr_threads));
        PsyncDevice { target: Arc::new(target), limits, pool, nr_threads }
    }

    /// Returns the number of threads started so far.
    #[cfg(test)]
    pub(super) fn nr_threads_made(&self) -> usize {
        self.pool.nr_threads()
    }

    pub(in crate::driver) fn feature(&self) -> Feature {
        let nr = self.nr_threads;
        Feature::present("psync", format!("blocking calls, in at most {nr} threads (nr_threads)"))
    }
}

impl Device for PsyncDevice {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        holes::of_file(&self.target.file, offset, extents)
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        let queue = Arc::new(Queue::new(Target::for_queue(&self.target, mode)?, depth, None));
        let max_segments = self.limits.max_segments;
        // There is no other way to make a forbidden call: the pool makes the same calls.
        let own = (mode == Mode::Shared).then(|| Arc::new(OwnCalls::new(depth, false)));
        let driver = PsyncDriver {
            queue: Arc::clone(&queue),
            pool: Arc::clone(&self.pool),
            mode,
            vectors: (0..depth).map(|_| Some(Vectors::new(max_segments))).collect(),
            done: Vec::with_capacity(depth as usize),
            nr_in_flight: 0,
            own: own.clone(),
            nr_own: 0,
            nr_own_syscalls: 0,
        };
        let waiter = PsyncWaiter { queue, own };
        Ok(DriverQueue { driver: Box::new(driver), waiter: Arc::new(waiter) })
    }
}

struct PsyncDriver {
    queue: Arc<Queue>,
    pool: Arc<Pool>,
    mode: Mode,
    /// The vectors of each tag that is not in flight.
    vectors: Box<[Option<Vectors>]>,
    /// Empty between reaps.
    done: Vec<Done>,
    nr_in_flight: usize,
    /// Results of the requests that threads make themselves, which `nr_in_flight` does not count.
    own: Option<Arc<OwnCalls>>,
    nr_own: usize,
    nr_own_syscalls: u64,
}

impl Driver for PsyncDriver {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        if self.own.as_ref().is_some_and(|own| own.leave(rq)) {
            self.nr_own += 1;
            return Issue::Begun;
        }
        let vectors = self.vectors[rq.tag.index()].take().expect("a tag is issued once (K1)");
        self.queue.push(Call::new(rq, vectors));
        self.nr_in_flight += 1;
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        self.pool.begin(&self.queue);
    }

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        let PsyncDriver { own, nr_own, nr_own_syscalls, .. } = self;
        if let Some(own) = own
            && *nr_own > 0
        {
            own.take(nr_own_syscalls, |tag, made| {
                *nr_own -= 1;
                done.push(tag, made.result().expect("no own call of this queue is forbidden"));
            });
        }
        if self.nr_in_flight == 0 && how == Reap::NoSyscall {
            return;
        }
        self.queue.reap(&mut self.done);
        self.nr_in_flight -= self.done.len();
        for one in self.done.drain(..) {
            self.vectors[one.tag.index()] = Some(one.vectors);
            done.push(one.tag, one.result);
        }
    }

    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        let list = || self.pool.list(&self.queue);
        self.queue.wait_as_owner(nr_completions as usize, list, timeout);
    }

    fn withdraw(&mut self) {
        if let Some(call) = own_call::end_offer() {
            let vectors = self.vectors[call.tag.index()].take().expect("a tag is issued once (K1)");
            (self.nr_own, self.nr_in_flight) = (self.nr_own - 1, self.nr_in_flight + 1);
            self.queue.push(Call::of_own(&call, vectors));
            self.commit_rqs();
        }
    }

    fn kick(&mut self) {
        if self.mode == Mode::Shared {
            self.queue.kick();
        }
    }

    fn nr_syscalls(&self) -> u64 {
        self.queue.nr_syscalls() + self.nr_own_syscalls
    }
}

impl Drop for PsyncDriver {
    /// The layer drains a driver before it drops it. After a panic, requests may still be in
    /// flight: this waits for them, because the memory of their calls may go away next.
    fn drop(&mut self) {
        assert!(
            self.nr_in_flight + self.nr_own == 0 || std::thread::panicking(),
            "a driver is drained before it is dropped"
        );
        if self.nr_in_flight > 0 {
            self.pool.begin(&self.queue);
            self.queue.wait_until_idle();
        }
    }
}
