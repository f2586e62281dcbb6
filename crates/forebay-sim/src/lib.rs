//! The deterministic simulator of Forebay: the same core, in virtual time.
//!
//! One thread runs many *tasks*, which represent threads. They drive the core by the calls of the
//! real runtime, and another task may run between any two of these calls. The device is a model or
//! a machine of `forebay-model`, with faults. One seed determines everything, so a run can be
//! repeated: the same seed in the same build gives the same trace, and the same hash of it.
//!
//! - [`run_seed`]: a *swarm* scenario, which the seed determines;
//! - [`run_jobs`]: the jobs of fio, one task for each clone;
//! - [`run_recorded`]: a recorded load, one task for each of its threads;
//! - [`run_scenario`]: a scenario that the user describes;
//! - a run ends with a [`Summary`], or with the [`Violation`] of a rule. The rules are in `check/`;
//! - [`Plant`]: bugs that the checkers must find.
//!
//! [`nbd`] and [`blk`] run the server's rounds and sessions (`forebay-front`) over the core, with
//! simulated NBD clients, and with guests and their rings. Some of them send illegal requests,
//! vanish, or do not read. The checkers compare the replies with the rules, and detect leaked
//! resources.
//!
//! [`differential`] runs scripts whose outcomes are compared with those of the library's threads.
//!
//! [`sectors`] checks logs of reads and writes from any source: tests of drivers and servers use it
//! too.
//!
//! [`hold`] runs a program that submits bios one by one, under the adaptive hold.
//!
//! [`lab`] measures published experiments in this world.
//!
//! Not covered: interleavings within a step of the core (loom explores these), the real drivers,
//! the time that real processors take, and reopening a disk after a crash (except in [`nbd`] and
//! [`blk`]).
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(
    clippy::vec_box,
    reason = "boxes of bios are on their way; the memory of a list has no owner"
)]

pub mod blk;
pub mod calibrate;
mod changes;
mod check;
mod completer;
mod coroutine;
mod cpu_costs;
mod device;
mod device_spec;
pub mod differential;
mod driver;
mod engine;
mod few;
mod file;
mod heap;
pub mod histories;
pub mod hold;
mod image;
mod job_owner;
mod jobs;
pub mod lab;
mod late;
mod live_tags;
pub mod nbd;
mod own_call;
#[cfg(test)]
mod owner_goals;
#[cfg(test)]
mod owner_shares;
mod plant;
mod recorded;
mod runtime;
mod scenario;
mod scenario_spec;
mod scheduler;
pub mod sectors;
mod server;
mod sparse;
mod stages;
mod summary;
mod task;
mod trace;
mod violation;
mod wake;
mod world;

pub use check::rules::RULES;
pub use cpu_costs::CpuCosts;
pub use device_spec::{DeviceSpec, MachineSpec};
pub use forebay_core::{
    BadPriority, BadSetting, Gate, LateRequest, LateStage, Op, Policy, Priority, QUEUE_DEPTH_MAX,
    Scheduling, WakePolicy, parse_size,
};
pub use forebay_model::{FaultRule, machines, parse_time_ns};
pub use job_owner::{BadJobOwner, JobOwner};
pub use jobs::{JobDisk, JobError, run_jobs};
pub use late::Late;
pub use plant::Plant;
pub use recorded::{LoadError, RECORDED_THREADS_MAX, RecordedLoad, RecordedThread, run_recorded};
pub use scenario_spec::{EventSpec, FileSpec, Interleaving, ScenarioSpec, TaskSpec, run_scenario};
pub use server::{ServerPlant, ServerSummary};
pub use stages::{TraceOfSource, TraceSource};
pub use summary::{CrashPoint, Reached, Summary, Tally};
pub use task::figures::CloneFigures;
pub use violation::Violation;

use crate::changes::Changes;
use crate::check::Broken;
use crate::check::rules;
use crate::coroutine::Task;
use crate::scenario::Scenario;
pub use crate::wake::Wake;
use crate::world::World;
use forebay_model::Random;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Overrides for a random scenario.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The approximate number of bios that a swarm scenario submits.
    pub nr_bios: u32,
    /// A bug for the checkers to find.
    pub plant: Option<Plant>,
    /// The wake policy, in place of the scenario's.
    pub wake: Option<Wake>,
    /// The largest number of requests at the driver, in place of the scenario's: 1 to
    /// [`QUEUE_DEPTH_MAX`].
    pub queue_depth: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options { nr_bios: 400, plant: None, wake: None, queue_depth: None }
    }
}

/// Runs the scenario of a seed.
///
/// # Errors
/// The broken rule, and how to reproduce it.
pub fn run_seed(seed: u64, options: &Options) -> Result<Summary, Box<Violation>> {
    let mut random = Random::new(seed, 0);
    let (mut scenario, mut load) = scenario::swarm(&mut random, options);
    load.priorities = Random::new(seed, PRIORITIES_STREAM).pick(&[0, 10, 50]);
    scenario.owners = scenario::owners::draw(&mut Random::new(seed, OWNERS_STREAM), &scenario);
    let changes = Changes::draw(seed, &scenario.policy);
    run(seed, scenario, options.plant, |world, id| {
        let random = Random::new(seed, FIRST_TASK_STREAM + id as u64);
        let load = load.clone();
        let changes = changes.as_ref().map(|changes| changes.of_task(id));
        if changes.is_some() {
            world.checks().scheduler_may_change();
        }
        Task::new(world, id, |cpu| task::random::run(cpu, load, random, changes))
    })
}

/// The number of the random stream of the first task. Streams below have other uses.
const FIRST_TASK_STREAM: u64 = 16;

/// The number of the random stream of a scenario's owners, and that of the first task's choices
/// among them.
const OWNERS_STREAM: u64 = 7;
const FIRST_OWNER_STREAM: u64 = 1 << 32;

/// The number of the random stream that says how often priorities change, and that of the first
/// task's choices among them.
const PRIORITIES_STREAM: u64 = FIRST_PRIORITY_STREAM - 1;
const FIRST_PRIORITY_STREAM: u64 = 1 << 33;

/// Runs a scenario, with the tasks that `task` creates.
fn run(
    seed: u64,
    scenario: Scenario,
    plant: Option<Plant>,
    task: impl Fn(Rc<World>, usize) -> Task,
) -> Result<Summary, Box<Violation>> {
    let nr_tasks = scenario.nr_tasks;
    let world = World::new(seed, scenario, plant);
    let mut tasks: Vec<_> = (0..nr_tasks).map(|id| task(Rc::clone(&world), id)).collect();
    let worker = world.run_queue.as_ref().map(|run_queue| run_queue.task);
    tasks.extend(worker.map(|id| Task::new(Rc::clone(&world), id, task::worker::run)));
    run_tasks(&world, tasks)?;
    Ok(world.summary())
}

/// Runs tasks to their ends.
fn run_tasks(world: &Rc<World>, tasks: Vec<Task>) -> Result<(), Box<Violation>> {
    #[cfg(forebay_plant)]
    {
        let world = Rc::clone(world);
        forebay_core::plant::choose(Some(Box::new(move |bug| world.plants(Plant::Core(bug)))));
    }
    // The core's assertions are checkers too.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run(tasks)));
    #[cfg(forebay_plant)]
    forebay_core::plant::choose(None);
    // A rule that was broken earlier is the cause of the panic.
    let outcome = outcome
        .unwrap_or_else(|panic| Err(world.take_broken().unwrap_or_else(|| assertion(&*panic))));
    outcome.map_err(|broken| Box::new(world.violation(broken)))
}

fn assertion(panic: &(dyn Any + Send)) -> Broken {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Broken::new(rules::ASSERTION, text.unwrap_or_default())
}
