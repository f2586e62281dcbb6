//! The scheduler: virtual time, and the choice of the next task.
//!
//! A task is a future. It runs until it calls [`Scheduler::step`], which may let another task run
//! first, or until it sleeps. The seed determines which task runs next. Each step takes a little
//! virtual time, so that events happen while tasks run. When no task can run, time jumps to the
//! next event. In some scenarios a task also naps between two steps, for longer than other tasks
//! need for a whole operation, like a thread whose processor was taken away. That produces rare
//! races.

use crate::heap::{Event, EventHeap};
use forebay_model::Random;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::Poll;

/// Probabilities of a switch to another task have this denominator.
pub(crate) const PREEMPT_OF: u32 = 1024;

/// The mean of a nap, ns.
const NAP_NS: u64 = 20_000;

#[derive(Debug)]
pub(crate) struct Scheduler {
    now: Cell<u64>,
    steps: Cell<u64>,
    nr_sleeps: Cell<u64>,
    random: RefCell<Random>,
    pub(crate) heap: RefCell<EventHeap>,
    /// Runnable tasks, in no particular order.
    runnable: RefCell<Vec<usize>>,
    tasks: Vec<TaskState>,
    /// The task that was drawn last.
    running: Cell<usize>,
    /// How often a step lets another task run first.
    preempt: u32,
    /// How often a step includes a nap, like a thread whose processor was taken away.
    nap: u32,
    step_ns: u64,
}

#[derive(Debug, Default)]
struct TaskState {
    /// The task sleeps, and is not among the runnable ones.
    is_asleep: Cell<bool>,
    /// The task was woken since it last slept.
    is_woken: Cell<bool>,
    /// The number of its newest timed sleep.
    sleep: Cell<u64>,
}

impl Scheduler {
    pub(crate) fn new(
        nr_tasks: usize,
        preempt: u32,
        nap: u32,
        step_ns: u64,
        random: Random,
    ) -> Scheduler {
        Scheduler {
            now: Cell::new(0),
            steps: Cell::new(0),
            nr_sleeps: Cell::new(0),
            random: RefCell::new(random),
            heap: RefCell::default(),
            runnable: RefCell::new((0..nr_tasks).collect()),
            tasks: (0..nr_tasks).map(|_| TaskState::default()).collect(),
            running: Cell::new(0),
            preempt,
            nap,
            step_ns,
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    #[inline]
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Returns how often a task went to sleep.
    pub(crate) fn nr_sleeps(&self) -> u64 {
        self.nr_sleeps.get()
    }

    /// Marks the end of an action of a task: another task may run before the next one.
    #[inline]
    pub(crate) async fn step(&self) {
        self.steps.set(self.steps.get() + 1);
        self.now.set(self.now.get() + self.step_ns);
        let is_event_due = self.heap.borrow().next_at().is_some_and(|at| at <= self.now.get());
        if is_event_due || self.random.borrow_mut().chance(self.preempt, PREEMPT_OF) {
            self.yield_now().await;
        }
        if self.random.borrow_mut().chance(self.nap, PREEMPT_OF) {
            let time_ns = self.random.borrow_mut().exponential(NAP_NS);
            self.sleep(self.running.get(), time_ns).await;
        }
    }

    /// Lets another task run first, if one is drawn.
    pub(crate) async fn yield_now(&self) {
        let mut gone = false;
        poll_fn(|_| match std::mem::replace(&mut gone, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Sleeps until woken. Returns at once if the task was woken since the last sleep. Like a
    /// thread's park, it may return for an old reason, so the caller checks its condition again.
    pub(crate) async fn park(&self, task: usize) {
        poll_fn(|_| {
            let state = &self.tasks[task];
            if state.is_woken.replace(false) {
                return Poll::Ready(());
            }
            state.is_asleep.set(true);
            self.nr_sleeps.set(self.nr_sleeps.get() + 1);
            Poll::Pending
        })
        .await;
    }

    /// Sleeps until woken, or until the timeout has passed.
    pub(crate) async fn park_for(&self, task: usize, timeout_ns: u64) {
        let state = &self.tasks[task];
        let sleep = state.sleep.get() + 1;
        state.sleep.set(sleep);
        self.heap.borrow_mut().add(self.now() + timeout_ns, Event::Timer { task, sleep });
        self.park(task).await;
        state.sleep.set(sleep + 1);
    }

    /// Sleeps for this time, even if the task is woken earlier.
    pub(crate) async fn sleep(&self, task: usize, time_ns: u64) {
        let until = self.now() + time_ns;
        while self.now() < until {
            self.park_for(task, until - self.now()).await;
        }
    }

    pub(crate) fn wake(&self, task: usize) {
        let state = &self.tasks[task];
        state.is_woken.set(true);
        if state.is_asleep.replace(false) {
            self.runnable.borrow_mut().push(task);
        }
    }

    /// Handles a timer: wakes the task if this sleep is its newest.
    pub(crate) fn timer(&self, task: usize, sleep: u64) {
        if self.tasks[task].sleep.get() == sleep {
            self.wake(task);
        }
    }

    pub(crate) fn is_asleep(&self, task: usize) -> bool {
        self.tasks[task].is_asleep.get()
    }

    /// Draws a runnable task: its place among the runnable ones, and its number.
    pub(crate) fn pick(&self) -> Option<(usize, usize)> {
        let runnable = self.runnable.borrow();
        let place = match runnable.len() {
            0 => return None,
            1 => 0,
            nr => self.random.borrow_mut().below(nr as u64) as usize,
        };
        self.running.set(runnable[place]);
        Some((place, runnable[place]))
    }

    /// Removes the task at this place from the runnable ones, because it sleeps or has ended.
    pub(crate) fn take_off(&self, place: usize, task: usize) {
        let mut runnable = self.runnable.borrow_mut();
        assert_eq!(runnable[place], task);
        runnable.swap_remove(place);
    }

    /// Returns the next event if it is due. If no task can run, time jumps to the event.
    #[inline]
    pub(crate) fn next_event(&self, is_idle: bool) -> Option<Event> {
        let mut heap = self.heap.borrow_mut();
        let at = heap.next_at()?;
        if at > self.now() {
            if !is_idle {
                return None;
            }
            self.now.set(at);
        }
        heap.pop()
    }
}
