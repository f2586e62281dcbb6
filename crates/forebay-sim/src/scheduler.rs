//! The scheduler: virtual time, and the choice of the next task.
//!
//! A task is a coroutine. It runs until it calls [`Cpu::step`], which may let another task run
//! first, or until it sleeps. The seed determines which task runs next. Each step takes a little
//! virtual time, so that events happen while tasks run. When no task can run, time jumps to the
//! next event. In some scenarios a task also naps between two steps, for longer than other tasks
//! need for a whole operation, like a thread whose processor was taken away. That produces rare
//! races.
//!
//! A world for measurements has tasks with costs instead ([`ThreadTimes`], [`CpuCosts`]). Their
//! steps take no time. Each task has a processor of its own, which [`Cpu::spend`] occupies, and a
//! wake-up takes some time.
//!
//! [`Cpu::step`]: crate::coroutine::Cpu::step
//! [`Cpu::spend`]: crate::coroutine::Cpu::spend

use crate::cpu_costs::CpuCosts;
use crate::heap::{Event, EventHeap};
use forebay_model::Random;
use std::cell::{Cell, RefCell};

/// Probabilities of a switch to another task have this denominator.
pub(crate) const PREEMPT_OF: u32 = 1 << CHANCE_BITS;

/// The random bits for one chance of a step. A step takes two chances.
const CHANCE_BITS: u32 = 10;

/// The bits of a draw that are used: those of three steps.
const DRAWN_BITS: u32 = 3 * 2 * CHANCE_BITS;

/// The mean of a nap, ns.
const NAP_NS: u64 = 20_000;

/// How long it takes from the wake-up of a sleeping task to its next step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadTimes {
    /// Each wake-up draws a time from this range, ns.
    pub(crate) wake_min_ns: u64,
    pub(crate) wake_max_ns: u64,
    /// The number of late wake-ups per million, and the additional time of each, ns.
    pub(crate) late_per_million: u32,
    pub(crate) late_ns: u64,
    /// The number of tasks that stand for interrupts and timers. These are the first tasks. They
    /// are never late, and the run does not wait for them to end.
    pub(crate) nr_interrupts: usize,
}

impl ThreadTimes {
    /// Returns the times of tasks with these costs.
    pub(crate) fn of_costs(&CpuCosts { wake_ns, .. }: &CpuCosts) -> ThreadTimes {
        ThreadTimes { wake_min_ns: wake_ns, wake_max_ns: wake_ns, ..ThreadTimes::default() }
    }
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    now: Cell<u64>,
    steps: Cell<u64>,
    /// How long tasks have occupied their processors in all, beside their steps.
    spent_ns: Cell<u64>,
    random: RefCell<Random>,
    /// Random bits for the next steps, below a bit that is set.
    step_bits: Cell<u64>,
    pub(crate) heap: RefCell<EventHeap<Event>>,
    /// Runnable tasks, in no particular order.
    runnable: RefCell<Vec<usize>>,
    /// The place among them of the task that runs.
    place: Cell<usize>,
    tasks: Vec<TaskState>,
    /// How often a step lets another task run first.
    preempt: u32,
    /// How often a step includes a nap, like a thread whose processor was taken away.
    nap: u32,
    step_ns: u64,
    times: ThreadTimes,
}

#[derive(Debug, Default)]
struct TaskState {
    /// The task sleeps until it is woken.
    is_asleep: Cell<bool>,
    /// The task is not among the runnable ones: it sleeps, wakes up, or occupies its processor.
    is_away: Cell<bool>,
    /// The task was woken since it last slept.
    is_woken: Cell<bool>,
    /// The number of its newest timed sleep.
    sleep: Cell<u64>,
    nr_sleeps: Cell<u64>,
}

impl Scheduler {
    pub(crate) fn new(
        nr_tasks: usize,
        preempt: u32,
        nap: u32,
        step_ns: u64,
        times: ThreadTimes,
        random: Random,
    ) -> Scheduler {
        Scheduler {
            now: Cell::new(0),
            steps: Cell::new(0),
            spent_ns: Cell::new(0),
            random: RefCell::new(random),
            step_bits: Cell::new(1),
            heap: RefCell::default(),
            runnable: RefCell::new((0..nr_tasks).collect()),
            place: Cell::new(0),
            tasks: (0..nr_tasks).map(|_| TaskState::default()).collect(),
            preempt,
            nap,
            step_ns,
            times,
        }
    }

    /// Returns the number of tasks that the run does not wait for.
    pub(crate) fn nr_interrupts(&self) -> usize {
        self.times.nr_interrupts
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    #[inline]
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Returns the virtual time of all processors, ns.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.steps.get() * self.step_ns + self.spent_ns.get()
    }

    /// Returns whether time passes while a task polls.
    pub(crate) fn steps_take_time(&self) -> bool {
        self.step_ns > 0
    }

    /// Returns how often any task went to sleep.
    pub(crate) fn nr_sleeps(&self) -> u64 {
        self.tasks.iter().map(|task| task.nr_sleeps.get()).sum()
    }

    /// Returns how often this task went to sleep.
    pub(crate) fn nr_sleeps_of(&self, task: usize) -> u64 {
        self.tasks[task].nr_sleeps.get()
    }

    /// Counts an action of a task. Returns whether the task yields before the next one, and whether
    /// it naps then.
    #[inline]
    pub(crate) fn end_step(&self) -> (bool, bool) {
        self.steps.set(self.steps.get() + 1);
        let now = self.now.get() + self.step_ns;
        self.now.set(now);
        let is_event_due = self.heap.borrow().is_due(now);
        if self.preempt == 0 && self.nap == 0 {
            // The tables of the lab have random wake-ups, which follow these draws.
            if !is_event_due {
                self.random.borrow_mut().draw();
            }
            return (is_event_due, true);
        }
        let bits = match self.step_bits.get() {
            1 => self.draw_step_bits(),
            left => left,
        };
        self.step_bits.set(bits >> (2 * CHANCE_BITS));
        let chance = |bits: u64| (bits % u64::from(PREEMPT_OF)) as u32;
        let (yields, naps) = (chance(bits) < self.preempt, chance(bits >> CHANCE_BITS) < self.nap);
        (is_event_due | yields, naps)
    }

    /// Draws the random bits for the next three steps.
    #[inline(always)]
    fn draw_step_bits(&self) -> u64 {
        self.random.borrow_mut().draw() >> (u64::BITS - DRAWN_BITS) | 1 << DRAWN_BITS
    }

    /// Draws the time of a nap, ns: 0 in a world without naps.
    pub(crate) fn draw_nap(&self) -> u64 {
        let mut random = self.random.borrow_mut();
        match self.nap {
            0 => random.below(0),
            _ => random.exponential(NAP_NS),
        }
    }

    /// Returns whether the task was woken since its last sleep. If not, it sleeps from now on.
    pub(crate) fn is_awake(&self, task: usize) -> bool {
        let state = &self.tasks[task];
        let is_woken = state.is_woken.replace(false);
        if !is_woken {
            state.is_asleep.set(true);
            state.is_away.set(true);
            state.nr_sleeps.set(state.nr_sleeps.get() + 1);
        }
        is_woken
    }

    /// Wakes the task after this time. Returns the number of the sleep that the timer ends.
    pub(crate) fn set_timer(&self, task: usize, timeout_ns: u64) -> u64 {
        let state = &self.tasks[task];
        let sleep = state.sleep.get() + 1;
        state.sleep.set(sleep);
        self.heap.borrow_mut().add(self.now() + timeout_ns, Event::Timer { task, sleep });
        sleep
    }

    /// Makes the timer of this sleep ineffective.
    pub(crate) fn end_timer(&self, task: usize, sleep: u64) {
        self.tasks[task].sleep.set(sleep + 1);
    }

    pub(crate) fn wake(&self, task: usize) {
        let state = &self.tasks[task];
        state.is_woken.set(true);
        if state.is_asleep.replace(false) {
            match self.draw_wake_up(task) {
                0 => self.come_back(task),
                wake_up_ns => self.come_back_after(task, wake_up_ns),
            }
        }
    }

    /// Draws the duration of a task's wake-up, ns.
    fn draw_wake_up(&self, task: usize) -> u64 {
        let ThreadTimes { wake_min_ns, wake_max_ns, late_per_million, late_ns, nr_interrupts } =
            self.times;
        if task < nr_interrupts || wake_max_ns == 0 && late_per_million == 0 {
            return 0;
        }
        let mut random = self.random.borrow_mut();
        let is_late = random.chance(late_per_million, 1_000_000);
        random.between(wake_min_ns, wake_max_ns) + if is_late { late_ns } else { 0 }
    }

    /// Occupies the processor of the task, which runs now, for this time.
    pub(crate) fn occupy(&self, task: usize, time_ns: u64) {
        self.spent_ns.set(self.spent_ns.get() + time_ns);
        self.tasks[task].is_away.set(true);
        self.come_back_after(task, time_ns);
    }

    fn come_back_after(&self, task: usize, time_ns: u64) {
        self.heap.borrow_mut().add(self.now() + time_ns, Event::Ready { task });
    }

    /// Makes a task runnable again.
    pub(crate) fn come_back(&self, task: usize) {
        self.tasks[task].is_away.set(false);
        self.runnable.borrow_mut().push(task);
    }

    /// Returns whether the task cannot run now.
    pub(crate) fn is_away(&self, task: usize) -> bool {
        self.tasks[task].is_away.get()
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

    /// Returns whether only the present task can run, and no event is due.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        !self.heap.borrow().is_due(self.now()) && self.runnable.borrow().len() == 1
    }

    /// Draws the runnable task that runs next.
    pub(crate) fn pick(&self) -> Option<usize> {
        let runnable = self.runnable.borrow();
        let place = match runnable.len() {
            0 => return None,
            1 => 0,
            nr => self.random.borrow_mut().below(nr as u64) as usize,
        };
        self.place.set(place);
        Some(runnable[place])
    }

    /// Removes the task that runs from the runnable ones, because it sleeps or has ended.
    pub(crate) fn take_off(&self, task: usize) {
        let mut runnable = self.runnable.borrow_mut();
        let place = self.place.get();
        assert_eq!(runnable[place], task);
        runnable.swap_remove(place);
    }

    /// Returns the next event if it is due.
    #[inline]
    pub(crate) fn due_event(&self) -> Option<Event> {
        let mut heap = self.heap.borrow_mut();
        if heap.is_due(self.now()) { heap.pop() } else { None }
    }

    /// Returns the next event. If it is not due, time jumps to it.
    pub(crate) fn next_event(&self) -> Option<Event> {
        let mut heap = self.heap.borrow_mut();
        let at = heap.next_at()?;
        self.now.set(self.now().max(at));
        heap.pop()
    }
}
