//! Queue runs that are left to a worker task.
//!
//! The library's worker exists under `run_queue=always`, and each completion wakes it. Experiments
//! on Linux have workers too, which run after some completions only, and cost time.

use crate::runtime::thread::Thread;
use crate::world::World;
use std::cell::Cell;

/// When a completion leaves a run to the worker, and the times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerSettings {
    pub(crate) after: RunAfter,
    /// The time that a completion takes to queue a run that is not pending, ns.
    pub(crate) queue_ns: u64,
    /// The time that a completion takes if the run is pending already, ns.
    pub(crate) pending_ns: u64,
    /// The time from queueing to the run if the worker sleeps, without its wake-up, ns.
    pub(crate) begin_ns: u64,
    /// The time of a run for each request that waits in the layer, ns.
    pub(crate) look_ns: u64,
}

/// After which completions the worker runs the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum RunAfter {
    /// Each completion.
    #[default]
    Any,
    /// A completion that leaves more requests than this in flight, and issues fewer than complete.
    MoreInFlight(u32),
    /// A completion while requests wait in the layer.
    AnyWaiting,
}

/// The queue of the worker, with room for one run of the shared context.
#[derive(Debug)]
pub(crate) struct RunQueue {
    /// The worker task.
    pub(crate) task: usize,
    pub(crate) settings: WorkerSettings,
    /// A run is pending: from its queueing until the worker begins it.
    is_pending: Cell<bool>,
    /// The worker sleeps until a run is pending.
    is_idle: Cell<bool>,
    /// The worker is to end instead.
    is_closed: Cell<bool>,
    /// How often a run was queued, and how often it was pending already.
    nr_queued: Cell<u64>,
    nr_redundant: Cell<u64>,
}

impl RunQueue {
    pub(crate) fn new(task: usize, settings: WorkerSettings) -> RunQueue {
        RunQueue {
            task,
            settings,
            is_pending: Cell::new(false),
            is_idle: Cell::new(false),
            is_closed: Cell::new(false),
            nr_queued: Cell::new(0),
            nr_redundant: Cell::new(0),
        }
    }

    /// Queues a run, unless one is pending, and wakes the worker. Returns how long that takes, ns.
    pub(crate) fn queue(&self, world: &World) -> u64 {
        let WorkerSettings { queue_ns, pending_ns, .. } = self.settings;
        let was_pending = self.is_pending.replace(true);
        let count = if was_pending { &self.nr_redundant } else { &self.nr_queued };
        count.set(count.get() + 1);
        world.wake(self.task);
        if was_pending { pending_ns } else { queue_ns }
    }

    /// Drops the pending run: a gate was closed (R4).
    pub(crate) fn cancel(&self) {
        self.is_pending.set(false);
    }

    /// Returns how often a run was queued, and how often it was pending already.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.nr_queued.get(), self.nr_redundant.get())
    }

    /// Records that a turn has reaped `nr_reaped` completions and issued `nr_issued` requests, and
    /// leaves `nr_in_flight` at the device.
    pub(crate) fn turned(
        &self,
        world: &World,
        (nr_reaped, nr_issued): (u64, u64),
        nr_in_flight: u32,
    ) {
        let queues = match self.settings.after {
            RunAfter::Any => nr_reaped > 0,
            RunAfter::MoreInFlight(nr) => nr_reaped > nr_issued && nr_in_flight > nr,
            // Its completions take time: see `completer.rs`.
            RunAfter::AnyWaiting => false,
        };
        if queues {
            self.queue(world);
        }
    }

    /// Waits until a run is pending, and dequeues it. Returns false if the queue was closed.
    pub(crate) fn next(&self, thread: &Thread<'_>) -> bool {
        if !self.is_pending.get() {
            self.is_idle.set(true);
            while !self.is_pending.get() {
                thread.cpu.park();
                if self.is_closed.get() {
                    return false;
                }
            }
            self.is_idle.set(false);
            thread.cpu.spend(self.settings.begin_ns);
        }
        // R1: the work is dequeued before the turn.
        self.is_pending.set(false);
        true
    }

    /// Closes the queue, if the worker sleeps and no run is pending. Returns whether it did. The
    /// worker ends when it is woken.
    pub(crate) fn close(&self) -> bool {
        self.is_closed.set(self.is_idle.get() && !self.is_pending.get());
        self.is_closed.get()
    }
}
