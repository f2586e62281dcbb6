//! `forebay sim`: the layer in virtual time.
//!
//! It runs a job file on a modelled device, or random scenarios, one for each seed. The output ends
//! with the command that repeats the run. A broken rule is a failure of the run.

mod device;
mod nbd;
mod options;
mod settings;
mod variants;

use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use forebay_fio::arguments::quoted;
use forebay_fio::job::Job;
use forebay_fio::jobfile;
use forebay_sim::{JobDisk, Options, QUEUE_DEPTH_MAX, Summary, Violation, run_jobs, run_seed};

use self::settings::Settings;
use self::variants::{Run, Variant};
use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::output::{self, ProgressLine};
use crate::usage;

/// Between two updates of the progress line.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

/// The end of `forebay sim --help`.
const NOTES: &str = "\
A job file describes the load. It may also set keys of the disk (queue_depth=8) and name a modelled
device (filename=model:nvme?wake=batch). --device, --set, --wake and --queue-depth override these.
An option or key that would have no effect is an error. To see what another setting would change:
  forebay sim JOB.fio --device nvme --compare wake=batch --compare plug=none
  forebay sim JOB.fio --sweep queue_depth=1,8,64,512
  forebay sim JOB.fio --sweep device=hdd,sata,ssd-sas,nvme
Processors cost almost nothing in virtual time. `forebay lab` models their cost for a few loads. To
run a modelled device in real time:
  forebay bench --filename=model:nvme --compare='?wake=batch' ...";

/// The arguments after `sim`.
#[derive(Debug, ClapArgs)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// A fio job file
    #[arg(value_name = "JOB.fio")]
    job: Option<PathBuf>,
    /// Run random scenarios instead of a job file
    #[arg(long, conflicts_with_all = ["job", "device", "set", "compare", "sweep"])]
    random: bool,
    /// Run random NBD sessions: clients that follow the protocol, clients that break it, a server
    #[arg(long, conflicts_with_all = ["job", "random", "wake", "queue_depth"])]
    #[arg(conflicts_with_all = ["device", "set", "compare", "sweep"])]
    nbd: bool,
    /// The first seed [default: a random one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of seeds to run
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = usage::number::<1, { u64::MAX }>)]
    seeds: u64,
    /// The device: hdd, sata, ssd-sas, nvme, virtio-ram, fixed (one latency) or flaky (random
    /// latencies, failed requests). Constants follow a colon: nvme:latency_ns=9000,size=2g. Or a
    /// file of forebay calibrate: a path with a / or the ending .model
    /// [default: that of the job file, else fixed]
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]|FILE")]
    device: Option<String>,
    /// Set a key of the disk; may be repeated. Overrides the job file
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Also run with this setting, and print a table of all runs; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with_all = ["sweep", "seeds"])]
    compare: Vec<String>,
    /// Run once for each of these values, and print a table of the runs
    #[arg(long, value_name = "KEY=A,B,C", conflicts_with = "seeds")]
    sweep: Option<String>,
    /// Which waiter a freed tag wakes: fair, batch, stash, single, or stash-v1, which is known to
    /// hang [default: fair; chosen by the seed with --random]
    #[arg(long, value_name = "POLICY")]
    wake: Option<String>,
    /// Maximum number of requests in flight [default: that of the device, 256 for fixed and flaky;
    /// chosen by the seed with --random]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = usage::number::<1, { QUEUE_DEPTH_MAX as u64 }>)]
    queue_depth: Option<u64>,
}

impl JobFile {
    /// Returns whether all jobs run for a fixed time, so that their shares of the I/Os are
    /// comparable.
    fn is_timed(&self) -> bool {
        self.jobs.iter().all(|job| job.time_based)
    }
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

/// The jobs of a file, and their disk.
#[derive(Debug)]
struct JobFile {
    path: PathBuf,
    jobs: Vec<Job>,
    disk: JobDisk,
    /// Further disks on which to run the jobs (`--compare`, `--sweep`); empty without either.
    variants: Vec<Variant>,
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
    let Some(path) = &args.job else {
        return random_plan(args, first_seed);
    };
    let (jobs, in_file) = read_jobs(path, args.device.is_some())?;
    let settings = in_file.then(&given(args)?);
    let variants = variants::of(&settings, &args.compare, args.sweep.as_deref())?;
    let disk = match variants.first() {
        Some(first) => first.disk.clone(),
        None => settings.disk().map_err(Failure::Usage)?,
    };
    let file = Some(JobFile { path: path.clone(), jobs, disk, variants });
    let options = Options::default();
    Ok(Plan { load: Load::Bios { file, options }, first_seed, nr_seeds: args.seeds })
}

/// Returns the random scenarios that the arguments select.
fn random_plan(args: &Args, first_seed: u64) -> Result<Plan, Failure> {
    if !args.random {
        let what = "nothing to simulate: give a fio job file, --random or --nbd";
        return Err(Failure::Usage(String::from(what)));
    }
    let wake = args
        .wake
        .as_deref()
        .map(|name| settings::wake_policy(name).map_err(|error| format!("--wake={name}: {error}")));
    let options = Options {
        wake: wake.transpose().map_err(Failure::Usage)?,
        queue_depth: args.queue_depth.map(|depth| depth as u32),
        ..Options::default()
    };
    Ok(Plan { load: Load::Bios { file: None, options }, first_seed, nr_seeds: args.seeds })
}

/// Returns the settings of the command line.
///
/// # Errors
/// All settings that are wrong or not simulated.
fn given(args: &Args) -> Result<Settings, Failure> {
    let mut given = Settings::default();
    let mut messages = Vec::new();
    let depth = args.queue_depth.map(|depth| depth.to_string());
    let named = [
        ("--device", settings::DEVICE, args.device.as_deref()),
        ("--wake", "wake", args.wake.as_deref()),
        ("--queue-depth", "queue_depth", depth.as_deref()),
    ];
    for (option, key, value) in named {
        let Some(value) = value else { continue };
        match settings::check(key, value) {
            Ok(()) => given.add(key, value),
            Err(error) => messages.push(format!("{option}={value}: {error}")),
        }
    }
    for text in &args.set {
        let checked = settings::pair(text).and_then(|(key, value)| {
            settings::check(&key, &value)?;
            if given.get(&key).is_some() {
                return Err(format!("{key} is given twice"));
            }
            given.add(&key, &value);
            Ok(())
        });
        messages.extend(checked.err().map(|error| format!("--set={text}: {error}")));
    }
    match messages.is_empty() {
        true => Ok(given),
        false => Err(Failure::Several { messages, usage: true }),
    }
}

/// Runs a scenario for each seed, and prints the results.
fn run(
    args: &Args,
    file: Option<&JobFile>,
    options: &Options,
    first: u64,
    nr_seeds: u64,
) -> Result<(), Failure> {
    if let Some(file) = file.filter(|file| !file.variants.is_empty()) {
        return run_variants(args, file, first);
    }
    let mut total = Total::new(nr_seeds);
    for nth in 0..nr_seeds {
        let seed = first.wrapping_add(nth);
        let replay = replay(args, seed);
        let summary = match file {
            None => run_seed(seed, options).map_err(|violation| {
                total.clear_line();
                broken(&violation, &replay)
            })?,
            Some(file) => run_file(file, &file.disk, seed, &replay)?,
        };
        if let Some(file) = file {
            output::stdout(&report(&summary, file, &replay))?;
        }
        total.add(&summary);
    }
    total.clear_line();
    match file {
        Some(_) => Ok(()),
        None => output::stdout(&total.report(first, &replay(args, first))),
    }
}

/// Runs the jobs of a file on each of several disks, and prints a table.
fn run_variants(args: &Args, file: &JobFile, seed: u64) -> Result<(), Failure> {
    let replay = replay(args, seed);
    let mut runs = Vec::new();
    let is_timed = file.is_timed();
    for Variant { name, disk } in &file.variants {
        let summary = run_file(file, disk, seed, &replay)
            .map_err(|failure| failure.with_context(&format!("{name}: ")))?;
        let has_times = disk.device.has_times();
        runs.push(Run { name: name.clone(), summary, has_times, is_timed });
    }
    output::stdout(&format!("{}replay with: {replay}\n", variants::table(&runs)))
}

/// Runs the jobs of a file on a disk.
fn run_file(file: &JobFile, disk: &JobDisk, seed: u64, replay: &str) -> Result<Summary, Failure> {
    let run = run_jobs(&file.jobs, seed, disk, None);
    let run = run.map_err(|error| Failure::Usage(format!("{}: {error}", file.path.display())))?;
    run.map_err(|violation| broken(&violation, replay))
}

fn broken(violation: &Violation, replay: &str) -> Failure {
    Failure::Run(format!("{violation}\nreplay with: {replay}"))
}

/// Reads a job file. Returns its jobs and its settings of the disk.
fn read_jobs(path: &Path, has_device: bool) -> Result<(Vec<Job>, Settings), Failure> {
    let command = jobfile::parse(path, &mut Machine).map_err(|errors| machine::failure(&errors))?;
    machine::tell_warnings(&command.warnings);
    machine::tell_job_warnings(&command.jobs);
    let settings = options::check(&command, has_device)?;
    Ok((command.jobs, settings))
}

/// Returns a random seed. The standard library's hashers are keyed by the system.
fn new_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// Returns the command that repeats the run.
fn replay(args: &Args, seed: u64) -> String {
    let mut text = match &args.job {
        None => String::from("forebay sim --random"),
        Some(path) => format!("forebay sim {}", quoted(&path.display().to_string())),
    };
    let depth = args.queue_depth.map(|depth| depth.to_string());
    let single = [
        ("--device", args.device.as_ref()),
        ("--wake", args.wake.as_ref()),
        ("--queue-depth", depth.as_ref()),
        ("--sweep", args.sweep.as_ref()),
    ];
    let single = single.into_iter().filter_map(|(option, value)| Some((option, value?)));
    let many = [("--set", &args.set), ("--compare", &args.compare)];
    let many =
        many.into_iter().flat_map(|(option, values)| values.iter().map(move |v| (option, v)));
    for (option, value) in single.chain(many) {
        // Writing into a String does not fail.
        let _ = write!(text, " {option} {}", quoted(value));
    }
    let _ = write!(text, " --seed {seed}");
    text
}

/// Returns the report of one run of a job file.
fn report(summary: &Summary, file: &JobFile, replay: &str) -> String {
    let Summary { stats, tally, now_ns, nr_bios, .. } = summary;
    let seconds = *now_ns as f64 / 1e9;
    let merges = summary.nr_merges();
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
    text += &match file.disk.device.has_times() {
        true => speed(summary, file.is_timed()),
        false => "  speed        : not shown: this device has random latencies\n".to_owned(),
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

/// Returns the lines of IOPS and latencies, for a device with realistic times.
fn speed(summary: &Summary, is_timed: bool) -> String {
    let latency = &summary.tally.latency;
    let us = |ns: u64| ns as f64 / 1e3;
    let fairness = match is_timed {
        true => format!(", fairness {:.2}", summary.fairness()),
        false => String::new(),
    };
    let flush = &summary.tally.flush_latency;
    let flushes = match flush.count() {
        0 => String::new(),
        _ => format!(
            "  flushes (us) : avg={:.1}, p50={:.1}, p99={:.1}, max={:.1}\n",
            us(flush.mean()),
            us(flush.percentile(500_000)),
            us(flush.percentile(990_000)),
            us(flush.max()),
        ),
    };
    format!(
        "  speed        : {:.0} IOPS, {:.1} MB/s\n  \
           latency (us) : avg={:.1}, p50={:.1}, p99={:.1}, max={:.1}\n  \
           threads      : {:.2} voluntary switches per I/O{fairness}\n{flushes}",
        summary.iops(),
        summary.mb_per_s(),
        us(latency.mean()),
        us(latency.percentile(500_000)),
        us(latency.percentile(990_000)),
        us(latency.max()),
        summary.switches_per_io(),
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
