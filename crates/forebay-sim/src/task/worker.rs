//! The worker of `run_queue=always`: a task that runs the shared context after each completion.
//!
//! In the library the worker is a thread (`runtime/emulation/run_worker.rs`). No task waits for it,
//! so gates may drop its runs (R4), and the world does not wait for it to end.

use crate::coroutine::Cpu;
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use forebay_core::wait::run_turn;
use std::rc::Rc;

/// Runs the shared context whenever work is queued, until the queue is closed or the task dropped.
pub(crate) fn run(cpu: Cpu<'_>) {
    let mut thread = Thread::of_disk(cpu);
    let world = Rc::clone(&thread.world);
    let Some(run_queue) = &world.run_queue else { return };
    let hctx = Rc::clone(&world.hctxs[0]);
    while run_queue.next(&thread) {
        world.note(Kind::Work, 0, 0);
        run_turn(&mut thread.at(&hctx));
        thread.cpu.spend(run_queue.settings.look_ns * world.count_waiting());
    }
}
