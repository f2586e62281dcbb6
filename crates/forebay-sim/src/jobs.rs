//! Scenarios made from fio's jobs.

use crate::coroutine::Task;
use crate::cpu_costs::CpuCosts;
use crate::device_spec::DeviceSpec;
use crate::job_owner::JobOwner;
use crate::plant::Plant;
use crate::scenario::Scenario;
use crate::scenario::owners::{GOAL_WINDOW_NS, NewOwner, OwnerSettings};
use crate::scheduler::{PREEMPT_OF, ThreadTimes};
use crate::summary::Summary;
use crate::task::job::{self, JobTask};
use crate::violation::Violation;
use crate::wake::Wake;
use forebay_core::{BlockStatus, Knob, LimitsError, Policy, QueueLimits, SchedulerPolicy};
use forebay_fio::generator::Ops;
use forebay_fio::generator::sizes::SizeRule;
use forebay_fio::job::{Job, RegionError};
use forebay_fio::units::Size;
use forebay_model::{FaultEffect, FaultRule, Random};
use std::cell::RefCell;
use std::fmt;

/// The size of the device if no job specifies one.
const CAPACITY_BYTES: u64 = 1 << 30;

/// The longest bio that fits into an address of the simulator.
pub(crate) const BS_MAX: u32 = 8 << 20;

/// The error of jobs that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobError {
    /// The block size is not valid for a disk.
    BlockSize {
        /// The job.
        job: String,
        /// Its block size.
        bs: u32,
    },
    /// An option that affects the workload, and is not simulated.
    Option {
        /// The job.
        job: String,
        /// The option.
        option: &'static str,
    },
    /// A job cannot be an owner of I/O with its limits or its weight.
    Owner {
        /// The job.
        job: String,
        /// The reason.
        why: String,
    },
    /// The region of a job is not valid.
    Region(RegionError),
    /// A fault rule of the disk is not simulated, or never has its effect.
    Fault {
        /// The rule.
        rule: String,
        /// The reason.
        why: String,
    },
    /// The largest request does not hold a logical block of the disk.
    LargestRequest {
        /// The largest request, KiB.
        kib: u32,
        /// The logical block, KiB.
        block_kib: u32,
    },
    /// The limits of the disk contradict each other.
    Limits(LimitsError),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::BlockSize { job, bs } => write!(
                f,
                "{job}: bs={bs}: the simulated disk takes multiples of 512 up to {BS_MAX}"
            ),
            JobError::Option { job, option } => {
                write!(f, "{job}: {option} is not simulated; leave it out")
            }
            JobError::Owner { job, why } => write!(f, "{job}: {why}"),
            JobError::Fault { rule, why } => write!(f, "{rule}: {why}"),
            JobError::Region(error) => error.fmt(f),
            JobError::LargestRequest { kib, block_kib } => write!(
                f,
                "max_sectors_kb={kib}: expected at least {block_kib} KiB, the logical block of \
                 this disk"
            ),
            JobError::Limits(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for JobError {}

/// A disk for jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobDisk {
    /// The device.
    pub device: DeviceSpec,
    /// The settings of the layer.
    pub policy: Policy,
    /// Whether the wake policy is [`Wake::StashV1`](crate::Wake::StashV1), which real disks do not
    /// support.
    is_stash_v1: bool,
    /// The largest request, in sectors of 512 bytes, up to the limit of the hardware. `None`: the
    /// device's.
    pub max_sectors: Option<u32>,
    /// Faults of the device, in addition to its own.
    pub faults: Vec<FaultRule>,
    /// The processor time of the layer, with a processor for each task. `None`: all tasks share
    /// one, on which each step takes a little time.
    pub cpu: Option<CpuCosts>,
    /// Whether the stages of requests are recorded, for [`Summary::traces`].
    pub is_traced: bool,
}

impl JobDisk {
    /// Returns a disk on this device with its default settings.
    pub fn new(device: DeviceSpec) -> JobDisk {
        let (policy, faults) = (device.policy(), Vec::new());
        JobDisk {
            policy,
            is_stash_v1: false,
            device,
            max_sectors: None,
            faults,
            cpu: None,
            is_traced: false,
        }
    }

    /// Sets the wake policy.
    pub fn set_wake(&mut self, wake: Wake) {
        self.policy.emulation = self.policy.emulation.wake(wake.policy());
        self.is_stash_v1 = wake == Wake::StashV1;
    }

    /// Returns whether a setting of the layer has an effect on this disk.
    pub fn has_effect(&self, knob: &Knob) -> bool {
        knob.applies(&self.policy, &self.limits(1 << 20, 512))
    }

    /// Chooses the scheduler as the library does for a device without a scheduler below, unless one
    /// was set.
    pub fn choose_scheduler(&mut self) {
        let limits = self.limits(1 << 20, 512);
        self.policy = self.policy.with_default_scheduler(SchedulerPolicy::default_of(&limits));
    }

    /// Returns the wake policy.
    pub fn wake(&self) -> Wake {
        let of_disk = Wake::OfDisk(self.policy.emulation.wake_policy());
        if self.is_stash_v1 { Wake::StashV1 } else { of_disk }
    }

    /// Sets a processor cost of the layer. The others are those of [`CpuCosts::OF_NULL`], unless
    /// they were set. Returns `None` if no cost has this key.
    ///
    /// # Errors
    /// The value is no number, or out of range.
    pub fn set_cpu_cost(&mut self, key: &str, text: &str) -> Option<Result<(), String>> {
        let mut cpu = self.cpu.unwrap_or(CpuCosts::OF_NULL);
        let set = cpu.set(key, text)?;
        self.cpu = Some(cpu);
        Some(set)
    }

    /// Returns the largest request, in sectors of 512 bytes.
    pub fn largest_request(&self) -> u32 {
        self.limits(CAPACITY_BYTES, 512).max_sectors
    }

    /// Returns the limits of the disk, if it has this size and logical block size.
    pub(crate) fn limits(&self, capacity_bytes: u64, block: u32) -> QueueLimits {
        let limits = self.device.limits(capacity_bytes, block);
        let max_sectors = self.max_sectors.map(|max| max.min(limits.max_hw_sectors));
        limits.max_sectors(max_sectors.unwrap_or(limits.max_sectors))
    }

    /// Checks the limits of this disk.
    pub(crate) fn check_limits(&self, limits: &QueueLimits) -> Result<(), JobError> {
        let block_kib = limits.logical_block_size.div_ceil(1024);
        match self.max_sectors.map(|max| max / 2).filter(|&kib| kib < block_kib) {
            Some(kib) => Err(JobError::LargestRequest { kib, block_kib }),
            None => limits.validate().map_err(JobError::Limits),
        }
    }

    /// Checks that each fault rule is simulated and can have its effect on a disk of these limits.
    pub(crate) fn check_faults(&self, limits: &QueueLimits) -> Result<(), JobError> {
        for rule in &self.faults {
            let why = match not_injected(rule.effect()) {
                Some(why) => Some(format!("not simulated: {why}")),
                None if rule.effect() == FaultEffect::Hang && self.policy.io_timeout_ns == 0 => {
                    let why = "without a time limit, a run with a request that hangs does not end";
                    Some(format!("expected io_timeout_ms: {why}"))
                }
                None => rule.check(limits, false).err().map(|needed| format!("expected {needed}")),
            };
            if let Some(why) = why {
                return Err(JobError::Fault { rule: rule.text().to_owned(), why });
            }
        }
        Ok(())
    }
}

/// Runs jobs concurrently on a disk.
///
/// # Errors
/// Returns `Err` if the jobs cannot be run. The inner `Err` is the rule that was broken.
///
/// # Panics
/// Panics if the policy gives out more tags than exist ([`Policy::check`]).
pub fn run_jobs(
    jobs: &[Job],
    seed: u64,
    disk: &JobDisk,
    plant: Option<Plant>,
) -> Result<Result<Summary, Box<Violation>>, JobError> {
    for job in jobs {
        let is_no_block = |bs: &u32| !bs.is_multiple_of(512) || *bs > BS_MAX;
        if let Some(bs) = units(job).find(is_no_block) {
            return Err(JobError::BlockSize { job: job.name.clone(), bs });
        }
        if let Some(option) = not_simulated(job) {
            return Err(JobError::Option { job: job.name.clone(), option });
        }
    }
    let owners = owners(jobs, &disk.policy)?;
    let is_large = jobs.iter().flat_map(units).all(|bs| bs.is_multiple_of(4096));
    let block = if is_large { 4096 } else { 512 };
    let capacity_bytes = disk.device.capacity_bytes().unwrap_or_else(|| capacity(jobs));
    let tasks = plan(jobs, seed, block, capacity_bytes)?;
    let mut scenario = scenario(tasks.len(), seed, disk, capacity_bytes, block);
    scenario.owners = owners;
    scenario.is_traced = disk.is_traced;
    disk.check_limits(&scenario.limits)?;
    disk.check_faults(&scenario.limits)?;
    let tasks: Vec<_> = tasks.into_iter().map(|task| RefCell::new(Some(task))).collect();
    Ok(crate::run(seed, scenario, plant, |world, id| {
        let task = tasks[id].borrow_mut().take().expect("a task is made once");
        Task::new(world, id, |cpu| job::run(cpu, task))
    }))
}

/// Returns why the simulated device does not have an effect of a fault rule.
fn not_injected(effect: FaultEffect) -> Option<&'static str> {
    match effect {
        FaultEffect::Fail(BlockStatus::Again) => {
            Some("only the layer itself returns this status; use another one")
        }
        FaultEffect::Lie => Some("the checkers would report the lie as a bug of the layer"),
        FaultEffect::IgnoreFua => {
            Some("the checkers would report the lost durable write as a bug of the layer")
        }
        FaultEffect::WriteBack(_) | FaultEffect::ForeignSync => {
            Some("it needs a file: use write_back_errors or foreign_syncs in [file] of a scenario")
        }
        FaultEffect::Fail(_)
        | FaultEffect::Short(_)
        | FaultEffect::Busy
        | FaultEffect::Delay(_)
        | FaultEffect::Hang => None,
    }
}

/// Returns the units of which all sizes and offsets of a job are multiples.
fn units(job: &Job) -> impl Iterator<Item = u32> + '_ {
    let variety = job.variety.as_deref();
    let aligns = variety.into_iter().flat_map(|variety| variety.align.into_iter().flatten());
    let any = variety.filter(|variety| variety.unaligned).map(|_| 1);
    job.sizes_used().flat_map(SizeRule::units).chain(aligns).chain(any)
}

/// Returns an option of the job that the simulator does not support.
fn not_simulated(job: &Job) -> Option<&'static str> {
    let is_paced = job.pace.pacer(0, 0).is_some();
    let given = [
        ("rate, rate_iops or thinktime", is_paced),
        ("ramp_time", !job.ramp_time.is_zero()),
        ("startdelay", !job.start_delay.is_zero()),
        ("loops", job.loops > 1),
        ("fdatasync", job.fdatasync > 0),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

/// Returns the owners of the disk: each clone of a job that has limits or a weight, in the order of
/// [`plan`].
fn owners(jobs: &[Job], policy: &Policy) -> Result<Option<OwnerSettings>, JobError> {
    let mut first = Vec::new();
    for job in jobs {
        let error = |why: String| JobError::Owner { job: job.name.clone(), why };
        let owner = JobOwner::of(job).map_err(|bad| error(bad.to_string()))?;
        let Some(JobOwner { limits, weight }) = owner else { continue };
        let option = job.owner.first().map_or("weight", |(option, _)| option);
        if policy.emulation.threads_wait_for_tags() {
            let wake = policy.emulation.wake_policy().name();
            let why = format!("wake={wake}: expected fair beside {option}; leave one of them out");
            return Err(error(why));
        }
        if weight.is_some() && policy.nr_hw_queues > 1 {
            let nr = policy.nr_hw_queues;
            let why = format!(
                "nr_hw_queues={nr}: expected 1 beside a weight, which orders the I/O of one \
                 context"
            );
            return Err(error(why));
        }
        first.extend((0..job.numjobs).map(|_| NewOwner { parent: None, weight, limits }));
    }
    let has_weights = first.iter().any(|owner| owner.weight.is_some());
    let (by, cost) = (policy.weight_by, policy.cost);
    let is_any = !first.is_empty();
    let goal_window_ns = GOAL_WINDOW_NS;
    let settings =
        OwnerSettings { by, cost, has_weights, first, changes: 0, none: 0, goal_window_ns };
    Ok(is_any.then_some(settings))
}

/// Creates a task for each clone of each job.
fn plan(
    jobs: &[Job],
    seed: u64,
    block: u32,
    capacity_bytes: u64,
) -> Result<Vec<JobTask>, JobError> {
    let (mut tasks, mut nr_owners) = (Vec::new(), 0);
    for (at, job) in jobs.iter().enumerate() {
        let region = job.region(capacity_bytes).map_err(JobError::Region)?;
        for clone in 0..job.numjobs {
            let generator = Ops::new(&job.workload(region, clone.into(), seed));
            let (job, place) = (Box::new(job.clone()), (at, clone));
            nr_owners += u32::from(!job.owner.is_empty());
            let owner = if job.owner.is_empty() { 0 } else { nr_owners };
            let priorities = job.priorities.drawer(job.seed(seed), clone.into());
            let block = block.into();
            tasks.push(JobTask { job, place, generator, block, owner, priorities });
        }
    }
    Ok(tasks)
}

/// Returns the capacity that the jobs need.
fn capacity(jobs: &[Job]) -> u64 {
    let end = |job: &Job| match (job.offset, job.size) {
        (Size::Bytes(offset), Some(Size::Bytes(size))) => offset.saturating_add(size),
        _ => CAPACITY_BYTES,
    };
    let end = jobs.iter().map(end).max().unwrap_or(CAPACITY_BYTES);
    // A larger end is beyond any device, and the check of the region reports it.
    let end = end.min(u64::MAX - 4096);
    if end == 0 { CAPACITY_BYTES } else { end.next_multiple_of(4096) }
}

/// Returns a scenario without owners for this many tasks on a disk of this size.
pub(crate) fn scenario(
    nr_tasks: usize,
    seed: u64,
    disk: &JobDisk,
    capacity_bytes: u64,
    block: u32,
) -> Scenario {
    let mut random = Random::new(seed, 0);
    let (cpu, step_ns) = match disk.cpu {
        None => (CpuCosts::default(), random.between(20, 100)),
        // Time must pass for a job that ends at a time.
        Some(cpu) => (cpu, u64::from(cpu.submit_ns == 0)),
    };
    Scenario {
        limits: disk.limits(capacity_bytes, block),
        policy: disk.policy,
        is_stash_v1: disk.is_stash_v1,
        makes_own_calls: false,
        begins_in_wait: false,
        is_traced: false,
        engine: disk.device.build(block),
        nr_tasks,
        preempt: PREEMPT_OF / 8,
        nap: 0,
        step_ns,
        times: ThreadTimes::of_costs(&cpu),
        cpu,
        command_ns: 0,
        worker: None,
        budget: None,
        bound: u64::MAX,
        file: None,
        faults: disk.faults.clone(),
        owners: None,
    }
}
