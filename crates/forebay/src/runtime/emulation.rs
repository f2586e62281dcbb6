//! Emulation of costs that Linux and QEMU once had and this layer does not have
//! ([`Emulation`]), selectable to measure what their absence gains.
//!
//! A disk has this state only if its policy selects one of them. Turns do not check for it:
//!
//! - `run_queue=always` wraps the driver of the shared context ([`run_queue`]), and a worker thread
//!   turns ([`run_worker`]);
//! - `kick=per-device` acts where a policy other than the default is handled anyway. A thread takes
//!   a lock of the disk in each turn within a section, and when the section ends.

mod run_queue;
mod run_worker;

use crate::driver::DriverQueue;
use crate::runtime::hctx::Hctx;
use crate::sys::primitive::{Mutex, lock};
use forebay_core::{Emulation, EmulationStats};
use run_queue::{RunStats, RunWork};
use run_worker::Worker;
use std::io;
use std::sync::Arc;

/// The state of a disk that emulates such costs.
pub(crate) struct Emulator {
    /// Present under `run_queue=always`.
    run_work: Option<Arc<RunWork>>,
    /// The thread that makes these runs, once it was started.
    worker: Option<Worker>,
    /// Number of threads in a section of this disk. The value is never read: only the cost of
    /// maintaining it matters.
    nr_sections: Mutex<u32>,
}

impl Emulator {
    /// Creates the state. Returns `None` if it is not needed.
    pub(crate) fn of(emulation: Emulation) -> Option<Box<Emulator>> {
        let works = emulation.queues_runs();
        let is_needed = works || emulation.locks_device();
        let run_work = works.then(Arc::<RunWork>::default);
        is_needed
            .then(|| Box::new(Emulator { run_work, worker: None, nr_sections: Mutex::default() }))
    }

    /// Wraps the driver of the shared context so that its completions queue runs.
    pub(crate) fn wrap(&self, queue: DriverQueue) -> DriverQueue {
        match &self.run_work {
            Some(work) => run_queue::rearming(queue, work),
            None => queue,
        }
    }

    /// Starts the worker of a disk that no other thread uses yet.
    ///
    /// # Errors
    /// The OS error if the thread cannot be started.
    pub(crate) fn start(&mut self, hctxs: &Arc<[Hctx]>) -> io::Result<()> {
        if let Some(work) = &self.run_work {
            self.worker = Some(run_worker::start(hctxs, work)?);
        }
        Ok(())
    }

    /// Ends the worker, because the disk is closed.
    pub(crate) fn end(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.end();
        }
    }

    /// Dequeues the runs of a context that was stopped or quiesced (R4).
    pub(crate) fn cancel_runs(&self) {
        if let Some(work) = &self.run_work {
            work.cancel();
        }
    }

    /// Adds the counts of the runs of `run_queue=always`.
    pub(crate) fn add_to(&self, stats: &mut EmulationStats) {
        let Some(work) = &self.run_work else { return };
        let RunStats { arms, rearms, cancels, worker_runs } = work.stats();
        stats.add("run_arms", arms);
        stats.add("run_rearms", rearms);
        stats.add("run_cancels", cancels);
        stats.add("worker_runs", worker_runs);
    }

    /// Returns the work item of the runs.
    #[cfg(test)]
    pub(crate) fn run_work(&self) -> Option<&Arc<RunWork>> {
        self.run_work.as_ref()
    }

    /// Records a turn of a thread within a section; `is_first` for the first turn of the section.
    pub(crate) fn note_section(&self, is_first: bool) {
        *lock(&self.nr_sections) += u32::from(is_first);
    }

    /// Records the end of a thread's section.
    pub(crate) fn end_section(&self) {
        *lock(&self.nr_sections) -= 1;
    }
}
