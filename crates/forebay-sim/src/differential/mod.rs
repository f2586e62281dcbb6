//! The simulator's side of the differential test: the outcomes of a script in virtual time.
//!
//! The device completes commands in any order, and a failed write may have changed any part of its
//! range. So does the device of the library's side. Each seed draws how long commands take and how
//! tasks are interleaved.

pub mod script;
pub mod search;

use crate::coroutine::Task;
use crate::cpu_costs::CpuCosts;
use crate::engine::Engine;
use crate::scenario::{OVERTAKEN_MAX_WITH_FAULTS, Scenario};
use crate::scheduler::{PREEMPT_OF, ThreadTimes};
use crate::task::scripted::{self, Log};
use crate::violation::Violation;
use crate::world::World;
use forebay_core::{Emulation, Policy};
use forebay_model::{Command, Model, Random, Service};
use script::{Failures, NR_SECTORS, Outcome, Script};
use std::cell::RefCell;
use std::rc::Rc;

/// A device that fails as a script says.
#[derive(Debug)]
struct ScriptModel {
    failures: Failures,
    mean_ns: u64,
}

impl Model for ScriptModel {
    fn serve(&mut self, command: &Command, now: u64, random: &mut Random) -> Service {
        let result = self.failures.result(command.op, command.start, command.len);
        // Some commands take much longer than others, which end meanwhile.
        let mean_ns = random.pick(&[self.mean_ns, self.mean_ns, 16 * self.mean_ns]);
        Service { done_at_ns: now + random.exponential(mean_ns), result }
    }
}

/// Runs a script. The seed determines the interleaving.
///
/// # Errors
/// The broken rule.
pub fn run_script(script: &Script, seed: u64) -> Result<Outcome, Box<Violation>> {
    let world = World::new(seed, scenario(script, seed), None);
    let log = Rc::new(RefCell::new(Log::new(script.threads.len())));
    let tasks = script.threads.iter().enumerate().map(|(id, steps)| {
        let (steps, log, start) =
            (steps.clone(), Rc::clone(&log), Random::new(seed, id as u64 + 16));
        Task::new(Rc::clone(&world), id, move |cpu| scripted::run(cpu, &steps, &log, start))
    });
    crate::run_tasks(&world, tasks.collect())?;
    let is_lost = world.device_state.durability().lost().is_some();
    let device = world.device.borrow();
    let values = (0..NR_SECTORS).map(|sector| device.value(sector));
    Ok(log.borrow().outcome(values, is_lost))
}

fn scenario(script: &Script, seed: u64) -> Scenario {
    let random = &mut Random::new(seed, 7);
    let failures = Failures::new(&script.disk);
    let mean_ns = random.pick(&[0, 100, 1_000, 10_000]);
    let emulation = Emulation::default().wake(script.disk.wake);
    let policy = Policy::default().queue_depth(script.disk.queue_depth).emulation(emulation);
    Scenario {
        limits: script.disk.limits(),
        policy,
        is_stash_v1: false,
        makes_own_calls: false,
        begins_in_wait: false,
        is_traced: false,
        engine: Engine::Model(Box::new(ScriptModel { failures, mean_ns })),
        nr_tasks: script.threads.len(),
        preempt: random.pick(&[PREEMPT_OF / 50, PREEMPT_OF / 8, PREEMPT_OF / 2, PREEMPT_OF]),
        nap: random.pick(&[0, 0, 20, 100]),
        step_ns: random.pick(&[1, 50, 500]),
        times: ThreadTimes::default(),
        cpu: CpuCosts::default(),
        command_ns: 0,
        worker: None,
        budget: None,
        bound: OVERTAKEN_MAX_WITH_FAULTS,
        file: None,
        faults: Vec::new(),
        owners: None,
    }
}
