//! The worker of `run_queue=always`: a task that runs the shared context after each completion.
//!
//! In the library the worker is a thread (`runtime/run_queue.rs`). No task waits for it, so gates
//! may drop its runs (R4), and the world does not wait for it to end.

use crate::coroutine::Cpu;
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use forebay_core::wait::run_turn;
use std::rc::Rc;

/// Runs the shared context whenever work is queued, until the task is dropped.
pub(crate) fn run(cpu: Cpu<'_>) {
    let mut thread = Thread::of_disk(cpu);
    let hctx = Rc::clone(&thread.world.hctxs[0]);
    loop {
        // R1: the work is dequeued before the turn.
        while !hctx.has_work.replace(false) {
            thread.cpu.park();
        }
        thread.world.note(Kind::Work, 0, 0);
        run_turn(&mut thread.at(&hctx));
    }
}
