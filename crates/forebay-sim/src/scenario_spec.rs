//! Scenarios that the user describes, with the tasks of a random scenario.

use crate::coroutine::Task;
use crate::file::FileSettings;
use crate::jobs::{BS_MAX, JobDisk};
use crate::scenario::{OVERTAKEN_MAX_WITH_FAULTS, Scenario};
use crate::scheduler::{PREEMPT_OF, ThreadTimes};
use crate::summary::Summary;
use crate::task::events;
use crate::task::random::{self, Load};
use crate::violation::Violation;
use crate::wake::Wake;
use crate::{DeviceSpec, FIRST_TASK_STREAM};
use forebay_core::{Gate, Op, Priority, QueueLimits, SchedulerPolicy, Scheduling};
use forebay_model::Random;

/// The size of the device if neither the device nor the scenario specifies one.
const CAPACITY_BYTES: u64 = 16 << 20;

/// The maximum number of tasks.
const TASKS_MAX: usize = 256;

/// A scenario: a disk, tasks that use it, and events at given times.
#[derive(Clone, Debug)]
pub struct ScenarioSpec {
    /// The disk, with its fault rules.
    pub disk: JobDisk,
    /// The size of a device that has none of its own, in bytes.
    pub size_bytes: Option<u64>,
    /// The logical block size: 512 or 4096.
    pub block_size: u32,
    /// How the device behaves if it is a file.
    pub file: Option<FileSpec>,
    /// How tasks are interleaved.
    pub interleaving: Interleaving,
    /// The tasks.
    pub tasks: Vec<TaskSpec>,
    /// The events, by their times in ns.
    pub events: Vec<(u64, EventSpec)>,
}

/// A device that is a file in a page cache. Rates are per 1000 events of the device.
#[derive(Clone, Copy, Debug)]
pub struct FileSpec {
    /// Durable writes go through the page cache.
    pub has_page_cache: bool,
    /// How often the write-back of a block fails.
    pub write_back_errors: u32,
    /// How often another program syncs the file.
    pub foreign_syncs: u32,
}

/// How tasks are interleaved.
#[derive(Clone, Copy, Debug)]
pub struct Interleaving {
    /// How often, of 1024 steps, another task may run next.
    pub switches: u32,
    /// How often, of 1024 steps, a task sleeps as if its processor was taken away.
    pub naps: u32,
    /// The time that a step takes, ns.
    pub step_ns: u64,
}

impl Default for Interleaving {
    fn default() -> Interleaving {
        Interleaving { switches: PREEMPT_OF / 8, naps: 0, step_ns: 50 }
    }
}

/// A task, or several equal ones. Rates are percentages.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// The number of tasks.
    pub count: u32,
    /// The number of bios of each.
    pub nr_bios: u32,
    /// The operations, each with its weight.
    pub ops: Vec<(Op, u32)>,
    /// The number of bios per second of each task; `None`: as fast as the disk allows.
    pub bios_per_s: Option<u32>,
    /// The bytes from the start of the disk that the tasks use; `None`: the whole disk.
    pub area_bytes: Option<u64>,
    /// The longest bio, in blocks.
    pub max_blocks: u64,
    /// The largest number of bios that are submitted together.
    pub max_burst: u64,
    /// Bios that continue the last one.
    pub sequential: u32,
    /// Writes with FUA.
    pub fua: u32,
    /// Writes with PREFLUSH.
    pub preflush: u32,
    /// Flushes up to a durable point.
    pub up_to: u32,
    /// Bios that must not merge.
    pub nomerge: u32,
    /// Bios that must not wait.
    pub nowait: u32,
    /// Bios that may use reserved tags.
    pub reserved: u32,
    /// Bios of the background class.
    pub background: u32,
    /// The priority of the first bios.
    pub priority: Priority,
    /// How often another priority is chosen for the next bios.
    pub priorities: u32,
    /// Bios whose memory has several segments.
    pub segments: u32,
    /// Plugs that are left open.
    pub open_plugs: u32,
    /// Actions that close a gate for a moment.
    pub gates: u32,
    /// Actions that change the number of tags.
    pub resizes: u32,
    /// Actions in which a task with a hardware context of its own returns it.
    pub reopens: u32,
}

/// An event at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSpec {
    /// A gate is closed for this time, ns.
    Close(Gate, u64),
    /// The number of tags in use is limited.
    Resize(u32),
    /// The scheduler changes, or its settings.
    Scheduler(Scheduling),
    /// The writes are counted that a power failure could undo. The scenario goes on. Whether the
    /// layer keeps its promises at a power failure is checked at every event anyway.
    CrashPoint,
}

/// Runs a scenario.
///
/// # Errors
/// Returns `Err` if the scenario contradicts itself. The inner `Err` is the rule that was broken.
pub fn run_scenario(
    spec: &ScenarioSpec,
    seed: u64,
) -> Result<Result<Summary, Box<Violation>>, String> {
    let limits = spec.limits()?;
    let loads = spec.loads(&limits)?;
    let scenario = spec.scenario(limits, loads.len() + 1);
    let mut events = spec.events.clone();
    events.sort_by_key(|(at_ns, _)| *at_ns);
    Ok(crate::run(seed, scenario, None, |world, id| match loads.get(id) {
        Some(load) => {
            let random = Random::new(seed, FIRST_TASK_STREAM + id as u64);
            let load = load.clone();
            Task::new(world, id, |cpu| random::run(cpu, load, random, None))
        }
        None => {
            let events = events.clone();
            if events.iter().any(|(_, event)| matches!(event, EventSpec::Scheduler(_))) {
                world.checks().scheduler_may_change();
            }
            Task::new(world, id, |cpu| events::run(cpu, events))
        }
    }))
}

impl ScenarioSpec {
    /// Returns the limits of the disk.
    fn limits(&self) -> Result<QueueLimits, String> {
        let own = self.disk.device.capacity_bytes();
        if own.is_some() && self.size_bytes.is_some() {
            return Err("size: the device has a size of its own; give it as a constant of the \
                        device, such as device = \"nvme:size=64m\""
                .to_owned());
        }
        let capacity = own.or(self.size_bytes).unwrap_or(CAPACITY_BYTES);
        let block = u64::from(self.block_size);
        if capacity == 0 || !capacity.is_multiple_of(block) {
            return Err(format!("size: {capacity} is not a positive multiple of {block}, a block"));
        }
        let mut limits = self.disk.limits(capacity, self.block_size);
        if let Some(file) = &self.file {
            if !limits.volatile_cache {
                return Err("file: expected a device with a volatile cache, such as fixed".into());
            }
            (limits.fua_is_sync, limits.fua_queueable) = (true, !file.has_page_cache);
        }
        self.disk.check_limits(&limits).map_err(|error| error.to_string())?;
        self.disk.check_faults(&limits).map_err(|error| format!("faults: {error}"))?;
        let depth = self.disk.policy.queue_depth;
        for (_, event) in &self.events {
            if let EventSpec::Resize(nr) = event
                && !(1..=depth).contains(nr)
            {
                return Err(format!(
                    "resize = {nr}: expected a number from 1 to queue_depth, which is {depth}"
                ));
            }
            if let EventSpec::Scheduler(scheduling) = event {
                self.check_scheduler(*scheduling)?;
            }
        }
        Ok(limits)
    }

    /// Checks that the scheduler of the disk can change to this one.
    fn check_scheduler(&self, scheduling: Scheduling) -> Result<(), String> {
        let (policy, name) = (&self.disk.policy, scheduling.scheduler.name());
        let (depth, device_depth) = (policy.queue_depth, scheduling.device_depth.unwrap_or(1));
        if device_depth > depth {
            return Err(format!(
                "set: device_depth={device_depth}: expected a number from 1 to queue_depth, which \
                 is {depth}"
            ));
        }
        match policy.nr_hw_queues {
            _ if scheduling.scheduler == SchedulerPolicy::Auto => Err("set: scheduler=auto: \
                 expected none, mq-deadline, kyber or bfq"
                .to_owned()),
            1 => Ok(()),
            nr => Err(format!(
                "set: scheduler={name}: the disk has nr_hw_queues={nr}; expected 1, because a \
                 scheduler orders one context"
            )),
        }
    }

    /// Returns what each task does.
    fn loads(&self, limits: &QueueLimits) -> Result<Vec<Load>, String> {
        let mut loads = Vec::new();
        for (at, task) in self.tasks.iter().enumerate() {
            let load = task.load(limits, self.disk.policy.queue_depth);
            let load = load.map_err(|why| format!("task {}: {why}", at + 1))?;
            loads.extend((0..task.count).map(|_| load.clone()));
        }
        match loads.len() {
            1..=TASKS_MAX => Ok(loads),
            nr => Err(format!("{nr} tasks: expected 1 to {TASKS_MAX}")),
        }
    }

    fn scenario(&self, limits: QueueLimits, nr_tasks: usize) -> Scenario {
        let ScenarioSpec { disk, interleaving, .. } = self;
        let cpu = disk.cpu.unwrap_or_default();
        let is_flaky = matches!(disk.device, DeviceSpec::Flaky { .. });
        let has_faults = is_flaky || !disk.faults.is_empty();
        Scenario {
            limits,
            policy: disk.policy,
            is_stash_v1: disk.wake() == Wake::StashV1,
            makes_own_calls: false,
            begins_in_wait: false,
            is_traced: false,
            engine: disk.device.build(self.block_size),
            nr_tasks,
            preempt: interleaving.switches,
            nap: interleaving.naps,
            step_ns: interleaving.step_ns,
            times: ThreadTimes::of_costs(&cpu),
            cpu,
            command_ns: 0,
            worker: None,
            budget: None,
            bound: if has_faults { OVERTAKEN_MAX_WITH_FAULTS } else { 0 },
            file: self.file.map(|file| FileSettings {
                has_page_cache: file.has_page_cache,
                write_back_error: file.write_back_errors,
                sync_elsewhere: file.foreign_syncs,
            }),
            faults: disk.faults.clone(),
            owners: None,
        }
    }
}

impl TaskSpec {
    fn load(&self, limits: &QueueLimits, queue_depth: u32) -> Result<Load, String> {
        let block = u64::from(limits.logical_block_size);
        let capacity = limits.capacity_bytes.unwrap_or(0);
        let area = self.area_bytes.unwrap_or(capacity);
        if area > capacity || !area.is_multiple_of(block) {
            return Err(format!(
                "area: expected a multiple of {block} up to the size of the disk, {capacity}"
            ));
        }
        let (nr_blocks, most) = (area / block, u64::from(BS_MAX) / block);
        if !(1..=nr_blocks.min(most)).contains(&self.max_blocks) {
            let most = nr_blocks.min(most);
            return Err(format!("max_blocks: expected a number from 1 to {most}"));
        }
        let weights = self.ops.iter().flat_map(|&(op, weight)| (0..weight).map(move |_| op));
        let ops: Vec<Op> = weights.collect();
        if ops.is_empty() {
            return Err("ops: expected at least one operation with a weight above 0".to_owned());
        }
        Ok(Load {
            nr_bios: self.nr_bios,
            block,
            nr_blocks,
            ops,
            fua: self.fua,
            preflush: self.preflush,
            up_to: self.up_to,
            nomerge: self.nomerge,
            nowait: self.nowait,
            reserved: self.reserved,
            background: self.background,
            resizes: self.resizes,
            queue_depth,
            sequential: self.sequential,
            joined: 0,
            joined_max: self.max_blocks,
            gates: self.gates,
            reopens: self.reopens,
            forget: self.open_plugs,
            cut: self.segments,
            may_cut_anywhere: limits.virt_boundary_mask == 0 && limits.max_segments > 2,
            nr_max: self.max_blocks,
            burst_max: self.max_burst,
            priority: self.priority,
            priorities: self.priorities,
            gap_ns: self.bios_per_s.map(|rate| 1_000_000_000 / u64::from(rate.max(1))),
        })
    }
}
