//! Gates: a task freezes, quiesces or stops the whole disk. The steps of the core's
//! [`Gated`](forebay_core::wait::Gated), with checks.

use crate::check::{Verdict, broken, rules};
use crate::runtime::hctx::Hctx;
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use crate::world::{DiskSettings, World};
use forebay_core::wait::{self, Gated, Holds};
use forebay_core::{Gate, RunState, SchedulerChange, Scheduling};
use std::rc::Rc;

/// Sleep between two checks.
const POLL_NS: u64 = 2_000;

impl Thread<'_> {
    /// Closes a gate on every hardware context, waits until it is in force, keeps it closed for a
    /// while, and opens it. A freeze ends early if another hold strands a request. If
    /// `and_freezes`, the task also freezes the disk meanwhile.
    pub(crate) fn close_and_open(&mut self, gate: Gate, closed_ns: u64, and_freezes: bool) {
        let world = Rc::clone(&self.world);
        let nr_hctxs = world.hctxs.len();
        wait::close(&mut Gates(self), gate);
        let is_in_force = match gate {
            Gate::Frozen => wait::await_drained(&mut Gates(self)).is_ok(),
            // The library does not wait for turns when it stops a disk. The checks need to.
            Gate::Quiesced | Gate::Stopped => {
                wait::await_turns(&mut Gates(self));
                true
            }
        };
        if is_in_force {
            (0..nr_hctxs).for_each(|at| world.checks().gates.shut(at));
            if gate == Gate::Frozen {
                world.checks().owners.frozen(world.now());
            }
            if and_freezes {
                self.close_and_open(Gate::Frozen, closed_ns / 2, false);
            }
            self.cpu.sleep(closed_ns);
            (0..nr_hctxs).for_each(|at| world.checks().gates.unshut(at));
        }
        wait::open(&mut Gates(self), gate);
        let verdict = world.checks().runs.check_opened(self.id);
        world.fail(verdict);
    }
}

impl Thread<'_> {
    /// Changes the scheduler of the shared context, unless another hold strands a request (Q8). The
    /// counterpart in the library is `Disk::set_scheduler`.
    pub(crate) fn set_scheduler(&mut self, scheduling: Scheduling) {
        let world = Rc::clone(&self.world);
        let DiskSettings { policy, limits, .. } = &world.disk;
        let policy = policy.with_scheduling(scheduling);
        let change = SchedulerChange::new(&policy, limits, policy.queue_depth);
        let nr_requests = change.nr_requests();
        wait::close(&mut Gates(self), Gate::Frozen);
        let is_frozen = changes_busy(&world) || wait::await_drained(&mut Gates(self)).is_ok();
        if is_frozen {
            let hctx = Rc::clone(&world.hctxs[0]);
            let mut change = Some(change);
            wait::change(
                &mut self.at(&hctx),
                |at| at.thread.cpu.sleep(POLL_NS),
                |_, _| {
                    let verdict = check_drained(&hctx);
                    world.fail(verdict);
                    let change = change.take().expect("it is made once");
                    hctx.with_inner(|inner| {
                        drop(inner.core.set_scheduler(change, world.now()));
                        inner.nr_requests = nr_requests;
                    });
                    let mut checks = world.checks();
                    checks.gathers.limited(hctx.at, nr_requests);
                    let device_depth = checks.depths.set(&policy, limits);
                    checks.classes.set(&policy);
                    checks.note(Kind::Scheduler, hctx.at as u64, device_depth.into());
                },
            );
        }
        wait::open(&mut Gates(self), Gate::Frozen);
        let verdict = world.checks().runs.check_opened(self.id);
        world.fail(verdict);
    }
}

#[cfg(not(forebay_plant))]
fn changes_busy(_: &World) -> bool {
    false
}

/// Returns whether the task does not wait until the disk is drained.
#[cfg(forebay_plant)]
fn changes_busy(world: &World) -> bool {
    world.plants(crate::plant::Plant::Core(forebay_core::plant::CorePlant::ChangeBusy))
}

/// Checks that a context has no admitted request when its scheduler changes.
fn check_drained(hctx: &Hctx) -> Verdict {
    match hctx.with_inner(|inner| inner.core.is_drained()) {
        true => Ok(()),
        false => broken(rules::Q8, format!("context {}", hctx.at)),
    }
}

/// A freeze has found a request that another hold keeps from the device.
struct Stranded;

/// A task that closes and opens gates.
struct Gates<'t, 'a>(&'t mut Thread<'a>);

impl Gated for Gates<'_, '_> {
    type Error = Stranded;

    fn nr_hctxs(&self) -> usize {
        self.0.world.hctxs.len()
    }

    fn with_holds<T>(&self, change: impl FnOnce(&mut Holds) -> T) -> T {
        let Thread { world, cpu, .. } = &*self.0;
        // Other tasks run while this one changes the gates, context by context.
        while world.are_gates_locked.replace(true) {
            cpu.sleep(POLL_NS);
        }
        let mut holds = world.holds.get();
        let result = change(&mut holds);
        world.holds.set(holds);
        world.are_gates_locked.set(false);
        self.0.step();
        result
    }

    fn run_state(&self, at: usize) -> &RunState {
        &self.0.world.hctxs[at].run
    }

    fn changed(&self, at: usize, gate: Gate, is_closed: bool) {
        let Thread { world, id, .. } = &*self.0;
        if is_closed {
            world.note(Kind::Close, at as u64, gate as u64);
        } else {
            world.note(Kind::Open, at as u64, gate as u64);
            if world.hctxs[at].is_shared {
                world.checks().runs.opened(*id);
            }
        }
        self.0.step();
    }

    fn cancel_runs(&self, at: usize) {
        let hctx = &self.0.world.hctxs[at];
        hctx.timers.cancel_delayed_run();
        if let Some(run_queue) = &self.0.world.run_queue
            && hctx.is_shared
        {
            run_queue.cancel();
        }
        self.0.world.checks().runs.undelayed();
        self.0.step();
    }

    fn is_shared(&self, at: usize) -> bool {
        self.0.world.hctxs[at].is_shared
    }

    fn owns(&self, at: usize) -> bool {
        self.0.hctx().at == at
    }

    fn run_turn(&mut self, at: usize) {
        self.0.step();
        let hctx = Rc::clone(&self.0.world.hctxs[at]);
        wait::run_turn(&mut self.0.at(&hctx));
    }

    fn wake_owner(&mut self, _at: usize) {
        // An owner turns by itself: no task waits for its context's descriptor.
    }

    fn is_drained(&self, at: usize) -> bool {
        self.0.world.hctxs[at].is_drained.get()
    }

    fn is_stranded(&self, at: usize) -> bool {
        self.0.world.hctxs[at].is_stranded.get()
    }

    fn stranded(&self, behind: Gate) -> Stranded {
        self.0.world.note(Kind::Strand, behind as u64, 0);
        Stranded
    }

    fn pause(&mut self) {
        self.0.cpu.sleep(POLL_NS);
    }

    fn sleep(&mut self) -> Result<(), Stranded> {
        self.0.cpu.sleep(POLL_NS);
        Ok(())
    }
}
