//! A run of a load: its scenario, and its tasks.

use super::board::Board;
use super::job::Job;
use super::load::{TagLoad, Worker};
use crate::coroutine::{Cpu, Task};
use crate::lab::measured::Measured;
use crate::lab::scenario::{INTERRUPTS, METER, scenario, times};
use crate::runtime::run_queue::{RunAfter, WorkerSettings};
use crate::scenario::Scenario;
use crate::task::interrupts;
use forebay_core::{Emulation, Policy};
use std::cell::Cell;
use std::rc::Rc;

/// A processor and a worker in addition to the jobs' threads.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::lab) struct Extras {
    /// The time that a processor takes to complete a command, one at a time, ns; 0: none.
    pub(in crate::lab) command_ns: u64,
    /// The worker, in place of that of the load.
    pub(in crate::lab) worker: Option<WorkerSettings>,
}

/// Runs a load, with all checkers.
///
/// # Panics
/// If the load has no jobs, tags or time, if the device has no such constant, if a block is not a
/// whole number of requests, if a mixed load has threads that wait for tags, and if a rule is
/// broken.
pub fn measure_tags(load: &TagLoad) -> Measured {
    run(load, Extras::default()).0
}

/// Runs a load to its end. Also returns how often the worker was queued, and how often it was
/// pending already, warm-up included.
pub(in crate::lab) fn run(load: &TagLoad, extras: Extras) -> (Measured, (u64, u64)) {
    let board = Rc::new(Board::new(load));
    let nr_queued = Rc::new(Cell::default());
    let outcome = crate::run(load.seed, scenario_of(&board, extras), None, |world, id| {
        let board = Rc::clone(&board);
        match id {
            INTERRUPTS => Task::new(world, id, interrupts::run),
            METER => {
                let nr_queued = Rc::clone(&nr_queued);
                Task::new(world, id, move |cpu| nr_queued.set(meter(&board, &cpu)))
            }
            _ => Task::new(world, id, move |cpu| Job::run(board, cpu)),
        }
    });
    outcome.unwrap_or_else(|violation| panic!("{violation}"));
    (board.measured(), nr_queued.get())
}

fn scenario_of(board: &Board, extras: Extras) -> Scenario {
    let load = &board.load;
    let &TagLoad { device, nr_tags: queue_depth, wake, tag_need, .. } = load;
    let emulation = Emulation::default().wake(wake);
    let policy = Policy::default().queue_depth(queue_depth).tag_need(tag_need).emulation(emulation);
    let worker = match load.worker {
        Worker::Behind { device_depth } if load.is_thread_waiting() => {
            let after = RunAfter::MoreInFlight(device_depth);
            Some(WorkerSettings { after, ..WorkerSettings::default() })
        }
        _ => None,
    };
    let times = times(&load.costs, (0, 0));
    let block = board.block as u32;
    let machine = device.machine_with(load.constants);
    let scenario = scenario(device, machine, policy, times, load.nr_jobs, block);
    let worker = extras.worker.or(worker);
    Scenario { command_ns: extras.command_ns, worker, ..scenario }
}

/// Counts the runs of the worker during the measurement. Returns how often it was queued, and how
/// often it was pending already, until the end.
fn meter(board: &Board, cpu: &Cpu<'_>) -> (u64, u64) {
    let run_queue = cpu.world.run_queue.as_ref();
    let nr_runs =
        || run_queue.map_or(0, |run_queue| cpu.world.scheduler.nr_sleeps_of(run_queue.task));
    cpu.spend(board.load.warm_up_ns);
    let nr_before = nr_runs();
    cpu.spend(board.load.run_ns);
    board.set_worker_runs(nr_runs() - nr_before);
    run_queue.map_or((0, 0), |queue| queue.counts())
}
