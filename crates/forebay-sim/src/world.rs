//! The world of one run: disk, device, tasks, clock and checkers.

mod event_loop;

use crate::check::drained;
use crate::check::rules;
use crate::check::waits::Waits;
use crate::check::{Broken, Checks, Verdict, broken};
use crate::completer::Completer;
use crate::cpu_costs::CpuCosts;
use crate::device::{Device, Planted};
use crate::file::SwarmFile;
use crate::heap::Event;
use crate::late::LateLog;
use crate::plant::Plant;
use crate::runtime::budget::Budget;
use crate::runtime::hctx::{Hctx, Inner};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::owners::DiskOwners;
use crate::runtime::run_queue::{RunAfter, RunQueue, WorkerSettings};
use crate::scenario::Scenario;
use crate::scheduler::Scheduler;
use crate::stages::Stages;
use crate::summary::{Summary, Tally};
use crate::trace::{DEVICE, Kind, Trace};
use crate::violation::Violation;
use forebay_core::wait::Holds;
use forebay_core::{DeviceState, PlugCounters, Policy, QueueLimits, QueueStats};
use forebay_model::{FaultRules, Random};
use std::cell::{Cell, RefCell, RefMut};
use std::fmt::Write;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;

use event_loop::Switch;

/// How often a planted bug of the runtime shows: once in so many chances.
const PLANT_OF: u32 = 4;

/// The same, for a planted bug of the device.
const DEVICE_PLANT_OF: u32 = 12;

/// The settings that the layer got for the disk.
#[derive(Debug)]
pub(crate) struct DiskSettings {
    pub(crate) limits: QueueLimits,
    pub(crate) policy: Policy,
    /// Threads wait for tags by the first version of stash-and-wake.
    pub(crate) is_stash_v1: bool,
}

/// The simulated world of a run.
#[derive(Debug)]
pub(crate) struct World {
    seed: u64,
    pub(crate) scheduler: Scheduler,
    pub(crate) disk: DiskSettings,
    pub(crate) device: RefCell<Device>,
    pub(crate) checks: RefCell<Checks>,
    pub(crate) device_state: Arc<DeviceState>,
    pub(crate) hctxs: Vec<Rc<Hctx>>,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) budget: Option<Budget>,
    pub(crate) owners: Option<DiskOwners>,
    pub(crate) holds: Cell<Holds>,
    /// A lock that a task holds while it closes or opens a gate.
    pub(crate) are_gates_locked: Cell<bool>,
    /// The runs that are left to a worker, which is the last task.
    pub(crate) run_queue: Option<RunQueue>,
    /// The processor that handles interrupts, if it takes time.
    completer: Option<Completer>,
    /// The processor time of the layer's actions.
    pub(crate) cpu: CpuCosts,
    /// Tasks make the I/O of some of their requests themselves.
    pub(crate) makes_own_calls: bool,
    /// See [`Scenario`].
    pub(crate) begins_in_wait: bool,
    /// The trace, if the run is traced.
    pub(crate) stages: Option<Stages>,
    pub(crate) tally: RefCell<Box<Tally>>,
    pub(crate) late: LateLog,
    plug_counters: RefCell<Vec<Arc<PlugCounters>>>,
    /// The task that is running.
    current: Cell<usize>,
    switch: Switch,
    plant: Option<Plant>,
    plant_random: RefCell<Random>,
}

impl World {
    pub(crate) fn new(seed: u64, scenario: Scenario, plant: Option<Plant>) -> Rc<World> {
        let Scenario { limits, policy, engine, nr_tasks, preempt, nap, step_ns, .. } = scenario;
        let Scenario { budget, bound, file, faults, times, is_stash_v1, .. } = scenario;
        let is_always = policy.emulation.queues_runs();
        let worker = scenario.worker.or(is_always.then(WorkerSettings::default));
        let run_queue = worker.map(|worker| RunQueue::new(nr_tasks, worker));
        let nr_tasks = nr_tasks + usize::from(run_queue.is_some());
        let completer = (scenario.command_ns > 0).then(|| Completer::new(scenario.command_ns));
        let Scenario { makes_own_calls, begins_in_wait, is_traced, .. } = scenario;
        let stream = |nth| Random::new(seed, nth);
        let nr_hctxs = policy.nr_hw_queues as usize;
        let layer_limits = plant.map_or(limits, |plant| plant.limits(limits));
        let waits = Waits::new(nr_tasks, budget.map_or(1, |budget| budget.depth));
        let mut checks = Checks::new(Trace::new(seed), limits, &policy, bound, waits);
        let owners = scenario.owners.map(|owners| DiskOwners::new(owners, &mut checks));
        let world = World {
            seed,
            scheduler: Scheduler::new(nr_tasks, preempt, nap, step_ns, times, stream(1)),
            disk: DiskSettings { limits: layer_limits, policy, is_stash_v1 },
            device: RefCell::new(Device::new(
                engine,
                stream(2),
                limits.flush_queueable,
                file.map(|file| SwarmFile::new(file, nr_hctxs)),
                FaultRules::new(faults, stream(5)),
                Planted { plant, of: DEVICE_PLANT_OF, random: stream(3) },
            )),
            checks: RefCell::new(checks),
            device_state: Arc::new(DeviceState::new(policy.nr_hw_queues)),
            hctxs: (0..nr_hctxs).map(|at| Rc::new(Hctx::new(at))).collect(),
            mailboxes: (0..nr_tasks).map(|_| Mailbox::default()).collect(),
            budget: budget.map(|budget| Budget::new(&budget)),
            owners,
            holds: Cell::default(),
            are_gates_locked: Cell::new(false),
            run_queue,
            completer,
            cpu: scenario.cpu,
            makes_own_calls,
            begins_in_wait,
            stages: is_traced.then(Stages::default),
            tally: RefCell::default(),
            late: LateLog::default(),
            plug_counters: RefCell::default(),
            current: Cell::new(DEVICE),
            switch: Switch::default(),
            plant,
            plant_random: RefCell::new(stream(4)),
        };
        world.hctxs[0].open(&world);
        Rc::new(world)
    }

    /// Returns a random stream of the run.
    pub(crate) fn stream(&self, nth: u64) -> Random {
        Random::new(self.seed, nth)
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.scheduler.now()
    }

    /// Returns the checkers, updated with the present time, step and task.
    #[inline]
    pub(crate) fn checks(&self) -> RefMut<'_, Checks> {
        let mut checks = self.checks.borrow_mut();
        let trace = &mut checks.trace;
        (trace.now, trace.step) = (self.scheduler.now(), self.scheduler.steps());
        trace.task = self.current.get();
        checks
    }

    #[inline]
    pub(crate) fn note(&self, kind: Kind, a: u64, b: u64) {
        self.checks().note(kind, a, b);
    }

    /// Records the result of a check.
    #[inline]
    pub(crate) fn fail(&self, verdict: Verdict) {
        if verdict.is_err() {
            self.checks().expect(verdict);
        }
    }

    /// Returns whether this planted bug shows now.
    #[inline]
    pub(crate) fn plants(&self, plant: Plant) -> bool {
        self.plant == Some(plant) && self.shows(plant)
    }

    /// Draws whether the planted bug shows now.
    #[cold]
    fn shows(&self, plant: Plant) -> bool {
        // These bugs do harm only at rare times.
        let is_rare = match plant {
            Plant::UncheckedOpen | Plant::ForgetWaiting => true,
            #[cfg(forebay_plant)]
            Plant::Core(plant) => plant.is_rare(),
            _ => false,
        };
        let of = if is_rare { 1 } else { PLANT_OF };
        self.plant_random.borrow_mut().chance(1, of)
    }

    pub(crate) fn wake(&self, task: usize) {
        self.note(Kind::Wake, task as u64, 0);
        self.scheduler.wake(task);
    }

    /// Wakes the task that waits in the driver of a context, if its wait is over.
    pub(crate) fn wake_waiter(&self, hctx: &Hctx) {
        let pop = || hctx.inner.borrow_mut().as_mut()?.driver.own.pop_woken();
        while self.makes_own_calls
            && let Some(task) = pop()
        {
            self.scheduler.wake(task);
        }
        if let Some((task, nr)) = hctx.waiter.get()
            && hctx.with_inner(|inner| inner.driver.is_wait_over(nr))
        {
            self.scheduler.wake(task);
        }
    }

    pub(crate) fn new_plug_counters(&self) -> Arc<PlugCounters> {
        let counters = Arc::default();
        self.plug_counters.borrow_mut().push(Arc::clone(&counters));
        counters
    }

    /// Reads what the device and the checkers have of a block that is about to be used. Bios visit
    /// blocks in random order, and the processor waits for these cache misses together.
    #[inline]
    pub(crate) fn touch(&self, block: u64) {
        let checks = self.checks.borrow();
        let nr_values = checks.register.nr_values(block) + checks.durable.nr_values(block);
        black_box(self.device.borrow().value(block).wrapping_add(nr_values as u64));
    }

    /// Same as [`Device::check_place`].
    pub(crate) fn check_place(&self) {
        let durability = self.device_state.durability();
        self.device.borrow_mut().check_place(durability, &mut self.checks());
    }

    /// Reaps the machine's completions, begins commands that wait for room, and schedules its next
    /// event.
    fn fire_machine(&self, at_ns: u64) {
        if !self.device.borrow_mut().event_fired(at_ns) {
            return;
        }
        loop {
            let Some((hctx, tag, result)) = self.device.borrow_mut().take_done(self.now()) else {
                break;
            };
            let set = |inner: &mut Inner| inner.driver.set_result(tag, result);
            match self.hctxs[hctx].inner.borrow_mut().as_mut().map_or(0, set) {
                0 => {}
                delay_ns => {
                    let at_ns = self.now().saturating_add(delay_ns);
                    self.scheduler.heap.borrow_mut().add(at_ns, Event::Done { hctx, tag });
                    continue;
                }
            }
            self.done(hctx, tag);
        }
        for hctx in &self.hctxs {
            let has_waiting =
                hctx.inner.borrow().as_ref().is_some_and(|inner| inner.driver.has_waiting());
            if has_waiting && !self.plants(Plant::ForgetWaiting) {
                hctx.with_port(self, |_, port| port.begin_waiting());
            }
        }
        let heap = &mut self.scheduler.heap.borrow_mut();
        self.device.borrow_mut().schedule_next(heap, self.now());
    }

    /// Performs an event that is due.
    fn fire(&self, event: Event) {
        self.current.set(DEVICE);
        match event {
            Event::Ready { task } => self.scheduler.come_back(task),
            Event::Timer { task, sleep } => self.scheduler.timer(task, sleep),
            Event::Done { hctx, tag } => self.done(hctx, tag),
            Event::Completed { hctx, tag } => {
                self.complete(hctx, tag);
                self.completer.iter().for_each(Completer::end);
                self.begin_completion();
            }
            Event::Machine { at_ns } => self.fire_machine(at_ns),
        }
    }

    /// Completes a command that the device has done, or leaves that to the processor that handles
    /// interrupts.
    fn done(&self, hctx: usize, tag: usize) {
        match &self.completer {
            None => self.complete(hctx, tag),
            Some(completer) => {
                completer.add(hctx, tag);
                self.begin_completion();
            }
        }
    }

    fn complete(&self, hctx: usize, tag: usize) {
        let hctx = &self.hctxs[hctx];
        if let Some(inner) = &mut *hctx.inner.borrow_mut() {
            inner.driver.done(tag, &mut self.device.borrow_mut(), &mut self.checks());
        }
        self.wake_waiter(hctx);
    }

    /// Begins the next completion, if the processor that handles interrupts is idle. It queues a
    /// run of the context if requests wait.
    fn begin_completion(&self) {
        let Some(completer) = &self.completer else { return };
        let Some((hctx, tag)) = completer.begin_next() else { return };
        let queue = |run_queue: &&RunQueue| {
            matches!(run_queue.settings.after, RunAfter::AnyWaiting) && self.count_waiting() > 0
        };
        let run_queue = self.run_queue.as_ref().filter(queue);
        let took_ns = completer.command_ns + run_queue.map_or(0, |queue| queue.queue(self));
        let event = Event::Completed { hctx, tag };
        self.scheduler.heap.borrow_mut().add(self.now() + took_ns, event);
    }

    /// Returns how many completions were reaped, and how many requests were issued.
    pub(crate) fn count_commands(&self) -> (u64, u64) {
        let counts = &self.checks.borrow().trace.counts;
        (counts[Kind::Complete as usize], counts[Kind::Issue as usize])
    }

    /// Returns how many bios are in the layer, without the requests at the device.
    pub(crate) fn count_waiting(&self) -> u64 {
        let counts = &self.checks.borrow().trace.counts;
        let of = |kind: Kind| counts[kind as usize];
        let nr_bios = of(Kind::Queue) - of(Kind::Refuse) - of(Kind::End);
        nr_bios.saturating_sub(of(Kind::Issue) - of(Kind::Complete))
    }

    /// Returns the broken rule, if one was recorded.
    pub(crate) fn take_broken(&self) -> Option<Broken> {
        self.checks.try_borrow_mut().ok()?.broken.take()
    }

    fn check_drained(&self) -> Verdict {
        for (at, hctx) in self.hctxs.iter().enumerate() {
            drained::hctx(at, hctx)?;
            let (nr_turns, nr_empty, nr_made) = hctx.counters.nr_runs();
            let counted = [nr_turns, nr_empty, nr_made, hctx.run.nr_skipped()];
            self.checks().runs.check_counts(at, counted)?;
        }
        if let Some(budget) = &self.budget {
            drained::budget(&budget.tags, budget.waits.borrow().len())?;
        }
        match self.checks.borrow().bios.nr_live() {
            0 => Ok(()),
            nr => broken(rules::DRAINED, format!("{nr} bios are left")),
        }
    }

    /// Returns the report of a broken rule.
    pub(crate) fn violation(&self, broken: Broken) -> Violation {
        let (rule, what) = broken.into_parts();
        let (step, now_ns) = (self.scheduler.steps(), self.now());
        // After a panic any cell may still be borrowed.
        let last = self.checks.try_borrow().map(|checks| checks.trace.last());
        let last = last.unwrap_or_default();
        Violation { seed: self.seed, step, now_ns, rule, what, state: self.state(), last }
    }

    /// Describes the state of tasks and contexts.
    fn state(&self) -> String {
        let mut text = String::new();
        for (at, mailbox) in self.mailboxes.iter().enumerate() {
            let (doing, goal) = (mailbox.cell.state(), mailbox.goal.get());
            let asleep = if self.scheduler.is_asleep(at) { "asleep" } else { "runnable or ended" };
            let nr = mailbox.cell.nr_delivered();
            // Writing into a String does not fail.
            let _ = writeln!(text, "task {at}: {asleep}, {doing:?}, goal {goal:?}, {nr} delivered");
        }
        for hctx in &self.hctxs {
            let (at, run, waiter) = (hctx.at, &hctx.run, hctx.waiter.get());
            let inbox = hctx.inbox.try_borrow().map_or(0, |inbox| inbox.requests.len());
            let _ = writeln!(text, "context {at}: {run:?}, inbox {inbox}, waits {waiter:?}");
        }
        if let Some(budget) = &self.budget {
            let nr_free = budget.tags.nr_free();
            let _ = writeln!(text, "budget: {nr_free} free, {:?}", budget.waits);
        }
        text
    }

    /// Returns the fault rules, and how many commands each of them changed.
    fn faults(&self) -> Vec<(String, u64)> {
        let device = self.device.borrow();
        let rules = device.faults.list().iter();
        rules.map(|rule| (rule.text().to_owned(), rule.nr_hits())).collect()
    }

    /// Returns the summary of a run that broke no rule.
    pub(crate) fn summary(&self) -> Summary {
        let mut stats = Box::<QueueStats>::default();
        self.plug_counters.borrow().iter().for_each(|counters| stats.add_plugs(counters));
        let mut skipped_runs = 0;
        for hctx in &self.hctxs {
            stats.add_runs(&hctx.counters);
            skipped_runs += hctx.run.nr_skipped();
        }
        let checks = self.checks();
        Summary {
            seed: self.seed,
            hash: checks.trace.hash(),
            nr_steps: self.scheduler.steps(),
            busy_ns: self.scheduler.busy_ns(),
            nr_sleeps: self.scheduler.nr_sleeps(),
            now_ns: self.now(),
            nr_bios: checks.bios.nr_ended,
            nr_blocks_read: checks.bios.nr_blocks_read,
            nr_crash_points: checks.durable.nr_crash_points,
            nr_promises: checks.durable.nr_promises,
            counts: checks.trace.counts,
            tally: *self.tally.take(),
            faults: self.faults(),
            late: self.late.get(),
            traces: self.stages.as_ref().map(Stages::take).unwrap_or_default(),
            is_device_gone: self.device_state.is_failed(),
            stats,
            skipped_runs,
        }
    }
}
