//! Scenarios from fio's jobs.

use crate::Options;
use crate::model_spec::ModelSpec;
use crate::scenario::Scenario;
use crate::scheduler::PREEMPT_OF;
use crate::summary::Summary;
use crate::task::job::{self, JobTask};
use crate::violation::Violation;
use forebay_core::{Policy, QueueLimits};
use forebay_fio::generator::Ops;
use forebay_fio::generator::sizes::SizeRule;
use forebay_fio::job::{Job, RegionError};
use forebay_fio::units::Size;
use forebay_model::Random;
use std::cell::RefCell;
use std::fmt;

/// The size of the device if no job says how large it is to be.
const CAPACITY_BYTES: u64 = 1 << 30;

/// The longest bio that an address of the simulator has room for.
const BS_MAX: u32 = 8 << 20;

/// Why jobs cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobError {
    /// The block size is not one of a disk.
    BlockSize {
        /// The job.
        job: String,
        /// Its block size.
        bs: u32,
    },
    /// An option that would change what is done, and is not simulated.
    Option {
        /// The job.
        job: String,
        /// The option.
        option: &'static str,
    },
    /// The region of a job.
    Region(RegionError),
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
            JobError::Region(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for JobError {}

/// Runs jobs, all at once, on a device of this model. Of the options all but `nr_bios` count.
///
/// # Errors
/// `Err` if the jobs cannot be run; within, the rule that was broken.
pub fn run_jobs(
    jobs: &[Job],
    seed: u64,
    model: &ModelSpec,
    options: &Options,
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
    let is_large = jobs.iter().flat_map(units).all(|bs| bs.is_multiple_of(4096));
    let block = if is_large { 4096 } else { 512 };
    let tasks = plan(jobs, seed, block)?;
    let mut scenario = scenario(jobs, &tasks, seed, model, block);
    scenario.choose(options);
    let tasks: Vec<_> = tasks.into_iter().map(|task| RefCell::new(Some(task))).collect();
    Ok(crate::run(seed, scenario, options.plant, |world, id| {
        let task = tasks[id].borrow_mut().take().expect("a task is made once");
        Box::pin(job::run(world, id, task))
    }))
}

/// What all sizes and offsets of a job are multiples of.
fn units(job: &Job) -> impl Iterator<Item = u32> + '_ {
    let variety = job.variety.as_deref();
    let aligns = variety.into_iter().flat_map(|variety| variety.align.into_iter().flatten());
    let any = variety.filter(|variety| variety.unaligned).map(|_| 1);
    job.sizes_used().flat_map(SizeRule::units).chain(aligns).chain(any)
}

/// An option that the job has and the simulator does not.
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

/// A task for each clone of each job.
fn plan(jobs: &[Job], seed: u64, block: u32) -> Result<Vec<JobTask>, JobError> {
    let capacity = capacity(jobs);
    let mut tasks = Vec::new();
    for job in jobs {
        let region = job.region(capacity).map_err(JobError::Region)?;
        for clone in 0..job.numjobs {
            let generator = Ops::new(&job.workload(region, clone.into(), seed));
            tasks.push(JobTask { job: job.clone(), generator, block: block.into() });
        }
    }
    Ok(tasks)
}

/// As large as the jobs say.
fn capacity(jobs: &[Job]) -> u64 {
    let end = |job: &Job| match (job.offset, job.size) {
        (Size::Bytes(offset), Some(Size::Bytes(size))) => offset.saturating_add(size),
        _ => CAPACITY_BYTES,
    };
    let end = jobs.iter().map(end).max().unwrap_or(CAPACITY_BYTES);
    if end == 0 { CAPACITY_BYTES } else { end.next_multiple_of(4096) }
}

fn scenario(jobs: &[Job], tasks: &[JobTask], seed: u64, model: &ModelSpec, block: u32) -> Scenario {
    let limits = QueueLimits {
        capacity_bytes: Some(capacity(jobs)),
        logical_block_size: block,
        physical_block_size: block,
        discard_granularity: block,
        max_discard_sectors: 1 << 16,
        max_discard_segments: 256,
        max_write_zeroes_sectors: 1 << 16,
        volatile_cache: true,
        fua: true,
        ..QueueLimits::default()
    };
    let mut random = Random::new(seed, 0);
    Scenario {
        limits,
        policy: Policy::default(),
        model: model.build(block),
        nr_tasks: tasks.len(),
        preempt: PREEMPT_OF / 8,
        nap: 0,
        step_ns: random.between(20, 100),
        budget: None,
        bound: u64::MAX,
        file: None,
    }
}
