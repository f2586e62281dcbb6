//! `forebay sim`: the layer in virtual time.
//!
//! It runs a job file on a modelled device, or random scenarios, one for each seed. The output ends
//! with the command that repeats the run. A broken rule is a failure of the run.

mod nbd;
mod options;

use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use forebay_fio::job::Job;
use forebay_fio::jobfile;
use forebay_sim::{ModelSpec, Options, QUEUE_DEPTH_MAX, Summary, WakePolicy, run_jobs, run_seed};

use self::options::Settings;
use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::output::{self, ProgressLine};
use crate::usage;

/// Between two updates of the progress line.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

/// The end of `forebay sim --help`.
const NOTES: &str = "\
A job file describes the load. The device is the one of --model, and of the layer's settings a job
file can give wake and queue_depth. Any other option that would change the run is an error. To see
what a policy costs on a modelled device in real time, use
  forebay bench --filename=model:nvme --compare='?wake=batch' ...";

/// The arguments after `sim`.
#[derive(Debug, ClapArgs)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// A fio job file
    #[arg(value_name = "JOB.fio")]
    job: Option<PathBuf>,
    /// Run random scenarios instead of a job file
    #[arg(long, conflicts_with_all = ["job", "model"])]
    random: bool,
    /// Run random NBD sessions: clients that follow the protocol, clients that break it, a server
    #[arg(long, conflicts_with_all = ["job", "random", "model", "wake", "queue_depth"])]
    nbd: bool,
    /// The first seed [default: a random one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of seeds to run
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = usage::number::<1, { u64::MAX }>)]
    seeds: u64,
    /// The device: fixed[:latency_ns=80000,channels=8], or flaky[:fail=1000,...], which reorders
    /// and fails requests
    #[arg(long, default_value = "fixed")]
    model: String,
    /// Which waiter a freed tag wakes: fair, batch, stash, single, or stash-v1, which is known to
    /// hang [default: fair; chosen by the seed with --random]
    #[arg(long, value_name = "POLICY")]
    wake: Option<String>,
    /// Requests at the device at once [default: 256; chosen by the seed with --random]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = usage::number::<1, { QUEUE_DEPTH_MAX as u64 }>)]
    queue_depth: Option<u64>,
}

/// A simulation: a scenario for each seed.
#[derive(Debug)]
pub(crate) struct Plan {
    load: Load,
    first_seed: u64,
    nr_seeds: u64,
}

/// The scenarios.
#[derive(Debug)]
enum Load {
    /// NBD sessions.
    Nbd,
    /// Bios of a job file; random ones without a file.
    Bios { file: Option<JobFile>, options: Options },
}

/// The jobs of a file, and their device.
#[derive(Debug)]
struct JobFile {
    path: PathBuf,
    jobs: Vec<Job>,
    model: ModelSpec,
}

/// Runs the simulation that the arguments select.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let Plan { load, first_seed, nr_seeds } = plan(args)?;
    match load {
        Load::Nbd => nbd::run(first_seed, nr_seeds),
        Load::Bios { file, options } => run(args, file.as_ref(), &options, first_seed, nr_seeds),
    }
}

/// Returns the simulation that the arguments select.
pub(crate) fn plan(args: &Args) -> Result<Plan, Failure> {
    let first_seed = args.seed.unwrap_or_else(new_seed);
    if args.nbd {
        return Ok(Plan { load: Load::Nbd, first_seed, nr_seeds: args.seeds });
    }
    let model = args.model.parse();
    let model =
        model.map_err(|error| Failure::Usage(format!("--model={}: {error}", args.model)))?;
    if args.job.is_none() && !args.random {
        let what = "nothing to simulate: give a fio job file, --random or --nbd";
        return Err(Failure::Usage(String::from(what)));
    }
    let mut options = Options {
        wake: args.wake.as_deref().map(wake_policy).transpose()?,
        queue_depth: args.queue_depth.map(|depth| depth as u32),
        ..Options::default()
    };
    let file = match &args.job {
        Some(path) => {
            let jobs = read_jobs(path, &mut options)?;
            Some(JobFile { path: path.clone(), jobs, model })
        }
        None => None,
    };
    Ok(Plan { load: Load::Bios { file, options }, first_seed, nr_seeds: args.seeds })
}

/// Runs a scenario for each seed, and prints the results.
fn run(
    args: &Args,
    file: Option<&JobFile>,
    options: &Options,
    first: u64,
    nr_seeds: u64,
) -> Result<(), Failure> {
    let mut total = Total::new(nr_seeds);
    for nth in 0..nr_seeds {
        let seed = first.wrapping_add(nth);
        let summary = match file {
            None => run_seed(seed, options),
            Some(JobFile { path, jobs, model }) => run_jobs(jobs, seed, model, options)
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?,
        };
        let summary = summary.map_err(|violation| {
            total.clear_line();
            Failure::Run(format!("{violation}\nreplay with: {}", replay(args, seed)))
        })?;
        if let Some(JobFile { model, .. }) = file {
            output::stdout(&report(&summary, model, &replay(args, seed)))?;
        }
        total.add(&summary);
    }
    total.clear_line();
    match file {
        Some(_) => Ok(()),
        None => output::stdout(&total.report(first, &replay(args, first))),
    }
}

/// Returns the policy of a name. Only the simulator has the one that hangs.
fn wake_policy(name: &str) -> Result<WakePolicy, Failure> {
    let mut policies = WakePolicy::ALL.into_iter().chain([WakePolicy::StashV1]);
    policies.find(|policy| policy.name() == name).ok_or_else(|| {
        let what = "expected fair, batch, stash, single or stash-v1";
        Failure::Usage(format!("--wake={name}: {what}"))
    })
}

/// Reads a job file. Its settings of the layer are added to `options`.
fn read_jobs(path: &Path, options: &mut Options) -> Result<Vec<Job>, Failure> {
    let command = jobfile::parse(path, &mut Machine).map_err(|errors| machine::failure(&errors))?;
    machine::tell_warnings(&command.warnings);
    machine::tell_job_warnings(&command.jobs);
    let Settings { wake, queue_depth } = options::check(&command)?;
    options.wake = one_of("--wake", options.wake, "wake", wake)?;
    options.queue_depth = one_of("--queue-depth", options.queue_depth, "queue_depth", queue_depth)?;
    Ok(command.jobs)
}

/// Returns a setting that the command line or the job file gives. They may not contradict each
/// other.
fn one_of<T: PartialEq>(
    option: &str,
    given: Option<T>,
    name: &str,
    in_file: Option<T>,
) -> Result<Option<T>, Failure> {
    match (given, in_file) {
        (Some(given), Some(in_file)) if given != in_file => Err(Failure::Usage(format!(
            "{option} differs from {name} in the job file; leave out one of them"
        ))),
        (given, in_file) => Ok(given.or(in_file)),
    }
}

/// Returns a random seed. The standard library's hashers are keyed by the system.
fn new_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// Returns the command that repeats the run.
fn replay(args: &Args, seed: u64) -> String {
    let mut text = match &args.job {
        None => String::from("forebay sim --random"),
        Some(path) if args.model == "fixed" => format!("forebay sim {}", path.display()),
        Some(path) => format!("forebay sim {} --model {}", path.display(), args.model),
    };
    // Writing into a String does not fail.
    if let Some(wake) = &args.wake {
        let _ = write!(text, " --wake {wake}");
    }
    if let Some(queue_depth) = args.queue_depth {
        let _ = write!(text, " --queue-depth {queue_depth}");
    }
    let _ = write!(text, " --seed {seed}");
    text
}

/// Returns the report of one run of a job file.
fn report(summary: &Summary, model: &ModelSpec, replay: &str) -> String {
    let Summary { stats, tally, now_ns, nr_bios, .. } = summary;
    let seconds = *now_ns as f64 / 1e9;
    let merges: u64 = forebay::MergeKind::ALL.iter().map(|&kind| stats.merges(kind)).sum();
    let us = |ns: u64| ns as f64 / 1e3;
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = writeln!(text, "seed {}: no rule is broken", summary.seed);
    let _ = writeln!(
        text,
        "  virtual time : {seconds:.6} s, {} steps\n  \
           bios         : {nr_bios}, {} failed",
        summary.nr_steps, tally.nr_failed,
    );
    text += &match model {
        ModelSpec::Fixed { .. } => speed(summary),
        ModelSpec::Flaky { .. } => {
            "  speed        : none: the times of this model are random, not \
                                    those of a device\n"
                .to_owned()
        }
    };
    let _ = writeln!(
        text,
        "  requests     : issued={}, commits={}, merges={merges}, splits={}, requeues={}, \
           retries={}\n  \
           tag waits    : {}, {:.1} us in total\n  \
           queue runs   : {}, {} of them skipped because another task was running the queue\n  \
           turns        : {}, {} of them empty\n  \
           flushes      : requested={}, issued={}, joined={}, elided={}\n  \
           checked      : {} blocks read, {} crash points, {} writes durable\n  \
           trace hash   : {:016x}\n  \
           replay with  : {replay}",
        stats.issued,
        stats.commits,
        stats.splits,
        stats.requeues,
        stats.retries,
        stats.tag_waits,
        us(stats.tag_wait_ns),
        stats.runs_made + summary.skipped_runs,
        summary.skipped_runs,
        stats.turns,
        stats.empty_turns,
        stats.flushes_asked,
        stats.flushes_issued,
        stats.flushes_joined,
        stats.flushes_elided,
        summary.nr_blocks_read,
        summary.nr_crash_points,
        summary.nr_promises,
        summary.hash,
    );
    text
}

/// Returns the lines of IOPS and latencies, for a model whose times mean something.
fn speed(summary: &Summary) -> String {
    let Summary { tally, now_ns, nr_bios, .. } = summary;
    let seconds = *now_ns as f64 / 1e9;
    let iops = if *now_ns == 0 { 0.0 } else { *nr_bios as f64 / seconds };
    let us = |ns: u64| ns as f64 / 1e3;
    format!(
        "  speed        : {iops:.0} IOPS, {:.1} MB/s\n  \
           latency (us) : avg={:.1}, p50={:.1}, p99={:.1}, max={:.1}\n",
        tally.bytes as f64 / 1e6 / seconds.max(1e-9),
        us(tally.latency.mean()),
        us(tally.latency.percentile(500_000)),
        us(tally.latency.percentile(990_000)),
        us(tally.latency.max()),
    )
}

/// The sums over all seeds, and the progress line.
struct Total {
    nr_seeds: u64,
    nr_done: u64,
    nr_bios: u64,
    nr_steps: u64,
    nr_blocks_read: u64,
    nr_crash_points: u64,
    nr_promises: u64,
    hash: u64,
    started: Instant,
    /// When the progress line was last updated; none is shown before the first period is over.
    shown: Option<Instant>,
    line: ProgressLine,
    is_terminal: bool,
}

impl Total {
    fn new(nr_seeds: u64) -> Total {
        Total {
            nr_seeds,
            nr_done: 0,
            nr_bios: 0,
            nr_steps: 0,
            nr_blocks_read: 0,
            nr_crash_points: 0,
            nr_promises: 0,
            hash: 0,
            started: Instant::now(),
            shown: None,
            line: ProgressLine::default(),
            is_terminal: stderr().is_terminal(),
        }
    }

    fn add(&mut self, summary: &Summary) {
        self.nr_done += 1;
        self.nr_bios += summary.nr_bios;
        self.nr_steps += summary.nr_steps;
        self.nr_blocks_read += summary.nr_blocks_read;
        self.nr_crash_points += summary.nr_crash_points;
        self.nr_promises += summary.nr_promises;
        self.hash = self.hash.rotate_left(1) ^ summary.hash;
        let last = self.shown.unwrap_or(self.started);
        if self.is_terminal && last.elapsed() >= PROGRESS_PERIOD {
            self.shown = Some(Instant::now());
            let percent = self.nr_done * 100 / self.nr_seeds;
            let (nr, bios) = (self.nr_done, self.nr_bios);
            self.line.show(&format!("{nr} seeds ({percent} %), {bios} bios checked"));
        }
    }

    fn clear_line(&mut self) {
        self.line.clear();
    }

    fn report(&self, first: u64, replay: &str) -> String {
        let (which, seeds) = match self.nr_seeds {
            1 => (format!("seed {first}"), String::new()),
            nr => (format!("{nr} seeds from {first}"), format!(" --seeds {nr}")),
        };
        format!(
            "{which}: no rule is broken\n  \
               checked      : {} bios in {} steps, {} blocks read\n  \
               power cuts   : {} crash points, {} writes durable\n  \
               trace hash   : {:016x}\n  \
               replay with  : {replay}{seeds}\n",
            self.nr_bios,
            self.nr_steps,
            self.nr_blocks_read,
            self.nr_crash_points,
            self.nr_promises,
            self.hash,
        )
    }
}
