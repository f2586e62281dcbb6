//! Tasks as coroutines: each has a stack of its own, so plain functions can switch tasks.
//!
//! The simulator runs code that is also the product's. That code waits by calls, for example
//! [`forebay_core::wait::Sleeper::park`], not by `await`. On a stack of its own a task can stop in
//! the middle of such a call, and another task continues.

use crate::world::World;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use std::cell::RefCell;
use std::rc::Rc;

/// The size of a task's stack, in bytes. The kernel provides memory only for pages in use.
const STACK_SIZE: usize = 256 * 1024;

/// The time between two polls, where steps take no time.
const POLL_NS: u64 = 20;

thread_local! {
    /// Stacks of tasks that have ended, for new tasks: a seed takes about as long as mapping its
    /// stacks.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A task, which runs to its end. Dropping a task that has not ended unwinds its stack.
pub(crate) struct Task(Coroutine<(), (), (), DefaultStack>);

impl Task {
    /// Creates a task that will run `run`.
    ///
    /// # Panics
    /// Panics if the kernel provides no memory for the stack.
    pub(crate) fn new(world: Rc<World>, id: usize, run: impl FnOnce(Cpu<'_>) + 'static) -> Task {
        let spare = STACKS.with_borrow_mut(Vec::pop);
        let stack = spare.unwrap_or_else(|| DefaultStack::new(STACK_SIZE).expect("memory"));
        Task(Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            run(Cpu { world, id, yielder });
        }))
    }

    /// Runs the task until it yields or ends. Returns whether it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        self.0.resume(()).as_return().is_some()
    }

    /// Keeps the stack of a task that has ended for another one.
    pub(crate) fn reuse_stack(self) {
        let stack = self.0.into_stack();
        STACKS.with_borrow_mut(|stacks| stacks.push(stack));
    }
}

/// The virtual processor of a task: the task sleeps and lets other tasks run by it.
pub(crate) struct Cpu<'a> {
    pub(crate) world: Rc<World>,
    pub(crate) id: usize,
    yielder: &'a Yielder<(), ()>,
}

impl Cpu<'_> {
    /// Continues with the task that the scheduler picks next. If that is this one, no stack is
    /// switched.
    // Not a part of `step`, which needs fewer registers without it.
    #[inline(never)]
    fn switch(&self) {
        if !self.world.goes_on_alone(self.id) {
            self.switch_to_next();
        }
    }

    #[inline(never)]
    fn switch_to_next(&self) {
        if !self.world.picks_again(self.id) {
            self.yielder.suspend(());
        }
    }

    /// Marks the end of an action of the task: another task may run before the next one.
    #[inline]
    pub(crate) fn step(&self) {
        match self.world.scheduler.end_step() {
            (false, false) => {}
            (true, false) => self.switch(),
            (yields, true) => self.switch_and_nap(yields),
        }
    }

    /// Ends a step after which the task naps.
    #[inline(never)]
    fn switch_and_nap(&self, yields: bool) {
        if yields {
            self.switch();
        }
        self.sleep(self.world.scheduler.draw_nap());
    }

    /// Lets other tasks run, for a task that polls.
    pub(crate) fn yield_now(&self) {
        match self.world.scheduler.steps_take_time() {
            true => self.switch(),
            false => self.spend(POLL_NS),
        }
    }

    /// Occupies the task's processor for this time. A wake-up in the meantime does not shorten it.
    pub(crate) fn spend(&self, time_ns: u64) {
        if time_ns > 0 {
            self.world.scheduler.occupy(self.id, time_ns);
            self.switch();
        }
    }

    /// Sleeps until woken. Returns at once if the task was woken since the last sleep. Like a
    /// thread's park, it may return for an old reason, so the caller checks its condition again.
    pub(crate) fn park(&self) {
        while !self.world.scheduler.is_awake(self.id) {
            self.switch();
        }
    }

    /// Sleeps until woken, or until the timeout has passed.
    pub(crate) fn park_for(&self, timeout_ns: u64) {
        let sleep = self.world.scheduler.set_timer(self.id, timeout_ns);
        self.park();
        self.world.scheduler.end_timer(self.id, sleep);
    }

    /// Sleeps for this time, even if the task is woken earlier.
    pub(crate) fn sleep(&self, time_ns: u64) {
        let until = self.world.now() + time_ns;
        while self.world.now() < until {
            self.park_for(until - self.world.now());
        }
    }
}
