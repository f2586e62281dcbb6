//! Thread that turns for the work items of [`run_queue`](super::run_queue).

use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::emulation::run_queue::RunWork;
use crate::runtime::hctx::{Hctx, SHARED};
use crate::runtime::spare::reserve_spare;
use crate::sys::primitive::thread;
use std::io;
use std::sync::Arc;

/// The worker thread.
#[derive(Debug)]
pub(crate) struct Worker {
    thread: thread::JoinHandle<()>,
    work: Arc<RunWork>,
}

/// Starts the worker of a disk that no other thread uses yet.
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
    /// Ends the worker, because the disk is closed: it makes no turn afterwards. The caller may be
    /// the worker itself, between two turns, if a waker that it ran dropped the last handle.
    pub(crate) fn end(self) {
        self.work.end();
        if self.thread.thread().id() != thread::current().id() {
            // If it has panicked, the process has aborted.
            let _ = self.thread.join();
        }
    }
}
