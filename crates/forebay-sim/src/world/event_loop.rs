//! The event loop of a world: it fires events, and picks the task that runs next.
//!
//! A task that yields runs the loop itself, on its own stack, until the next task is picked. If
//! that is the same task, it continues, and no stack is switched. That is the usual case: most
//! tasks sleep at any time. The events and the draws are the same as if the task were suspended
//! each time.

use crate::check::stall;
use crate::check::{Broken, Verdict};
use crate::coroutine::Task;
use crate::trace::Kind;
use crate::world::World;
use std::cell::Cell;

/// The limit of steps without progress of any bio or command. Beyond it, the run counts as stalled
/// unless the device is still at work, or a limit holds requests back. (A task that freezes a disk
/// may poll for so long while a straggler completes.)
const STEPS_WITHOUT_PROGRESS_MAX: u64 = 100_000;

/// The state of the loop.
#[derive(Debug, Default)]
pub(super) struct Switch {
    /// The task that was picked, if a task has yielded to it.
    picked: Cell<Option<usize>>,
    /// The number of tasks for whose end the run waits.
    nr_left: Cell<usize>,
}

impl World {
    /// Runs all tasks to their ends.
    pub(crate) fn run(&self, tasks: Vec<Task>) -> Result<(), Broken> {
        let nr_left = &self.switch.nr_left;
        nr_left.set((0..tasks.len()).filter(|&id| self.is_awaited(id)).count());
        let mut tasks: Vec<Option<Task>> = tasks.into_iter().map(Some).collect();
        while !self.is_over() {
            let Some(id) = self.switch.picked.take().or_else(|| self.pick_task()) else {
                return Err(stall::why(self, "no event is left, and tasks wait"));
            };
            self.current.set(id);
            let task = tasks[id].as_mut().expect("a task that can run has not ended");
            if task.resume() {
                tasks[id].take().into_iter().for_each(Task::reuse_stack);
                self.scheduler.take_off(id);
                nr_left.set(nr_left.get() - usize::from(self.is_awaited(id)));
                self.note(Kind::Exit, id as u64, 0);
            }
            self.check_progress()?;
        }
        self.check_drained()?;
        self.end_worker(&mut tasks);
        Ok(())
    }

    /// Returns whether task `id`, which yields, goes on in any case: no other task can run, and no
    /// event is due. Then the loop would pick the task without a draw.
    #[inline(always)]
    pub(crate) fn goes_on_alone(&self, id: usize) -> bool {
        self.scheduler.is_alone()
            && !self.scheduler.is_away(id)
            && !self.is_over()
            && !self.must_stop()
    }

    /// Picks the task that runs next, in place of task `id`, which yields. Returns whether that is
    /// the same task. If not, the task must suspend itself: [`World::run`] continues.
    #[inline]
    pub(crate) fn picks_again(&self, id: usize) -> bool {
        if self.is_over() {
            return false;
        }
        if self.scheduler.is_away(id) {
            self.scheduler.take_off(id);
        }
        if self.must_stop() {
            return false;
        }
        let picked = self.pick_task();
        if picked == Some(id) {
            self.current.set(id);
            return true;
        }
        self.switch.picked.set(picked);
        false
    }

    /// Fires the events that are due, and picks a task. If no task can run, time jumps to the next
    /// event. Returns `None` if no event is left.
    fn pick_task(&self) -> Option<usize> {
        loop {
            while let Some(event) = self.scheduler.due_event() {
                self.fire(event);
            }
            if let Some(task) = self.scheduler.pick() {
                return Some(task);
            }
            self.fire(self.scheduler.next_event()?);
        }
    }

    /// Returns whether the run is over. Before that, the worker finishes its last turn.
    fn is_over(&self) -> bool {
        self.switch.nr_left.get() == 0 && !self.hctxs[0].run.is_running()
    }

    /// Returns whether the run waits for the end of a task.
    fn is_awaited(&self, id: usize) -> bool {
        let worker = self.run_queue.as_ref().map(|run_queue| run_queue.task);
        id >= self.scheduler.nr_interrupts() && worker != Some(id)
    }

    /// Returns whether [`World::check_progress`] has to decide about the rest of the run.
    fn must_stop(&self) -> bool {
        let checks = self.checks.borrow();
        let nr_steps = self.scheduler.steps() - checks.progress_at;
        checks.broken.is_some() || nr_steps > STEPS_WITHOUT_PROGRESS_MAX
    }

    /// Checks that no rule is broken so far, and that the run makes progress.
    fn check_progress(&self) -> Verdict {
        if !self.must_stop() {
            return Ok(());
        }
        let mut checks = self.checks();
        if let Some(broken) = checks.broken.take() {
            return Err(broken);
        }
        checks.progress_at = checks.trace.step;
        drop(checks);
        let is_at_work = self.scheduler.heap.borrow().is_device_at_work();
        // A leader turns every few milliseconds while it waits for a limit.
        let is_held_back = self.hctxs.iter().any(|hctx| hctx.is_held_back.get());
        match is_at_work || is_held_back {
            true => Ok(()),
            false => Err(stall::why(self, "tasks run, and no bio and no command moves on")),
        }
    }

    /// Ends the worker, if it waits for work. That is cheaper than to unwind its stack, and keeps
    /// the stack for another task.
    fn end_worker(&self, tasks: &mut [Option<Task>]) {
        let Some(run_queue) = &self.run_queue else { return };
        if !run_queue.close() {
            return;
        }
        let id = run_queue.task;
        self.scheduler.wake(id);
        if let Some(task) = &mut tasks[id]
            && task.resume()
        {
            tasks[id].take().into_iter().for_each(Task::reuse_stack);
        }
    }
}
