//! `forebay sim`: the layer in virtual time.
//!
//! A job file is run on a modelled device, or random scenarios are, one for each seed. What is
//! printed says how to see the same run again. A broken rule is a failure of the run.

mod nbd;

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

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::output;

/// Between two updates of the progress line.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

/// The arguments after `sim`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// A job file of fio
    #[arg(value_name = "JOB.fio")]
    job: Option<PathBuf>,
    /// Run random scenarios instead of a job file
    #[arg(long, conflicts_with_all = ["job", "model"])]
    random: bool,
    /// Run random NBD clients, good and bad ones, and a server of their sessions
    #[arg(long, conflicts_with_all = ["job", "random", "model", "wake", "queue_depth"])]
    nbd: bool,
    /// The first seed [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many seeds, one after another
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The device: fixed[:latency_ns=80000,channels=8], or flaky[:fail=1000,...], which reorders
    /// and fails
    #[arg(long, default_value = "fixed")]
    model: String,
    /// Who waits for a tag, and whom a free one wakes: fair, batch, stash, single, or stash-v1,
    /// which is known to hang [default: fair; by the seed with --random]
    #[arg(long, value_name = "POLICY")]
    wake: Option<String>,
    /// How many requests may be at the device at once [default: 256; by the seed with --random]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUE_DEPTH_MAX)))]
    queue_depth: Option<u32>,
}

/// Runs what the arguments ask for.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    if args.nbd {
        return nbd::run(args.seed.unwrap_or_else(new_seed), args.seeds);
    }
    let model: ModelSpec = args
        .model
        .parse()
        .map_err(|error| Failure::Usage(format!("sim: --model={}: {error}", args.model)))?;
    if args.job.is_none() && !args.random {
        let what = "sim: name a job file of fio to run, or say --random";
        return Err(Failure::Usage(String::from(what)));
    }
    let options = Options {
        wake: args.wake.as_deref().map(wake_policy).transpose()?,
        queue_depth: args.queue_depth,
        ..Options::default()
    };
    let jobs = args.job.as_deref().map(|path| Ok((path, read_jobs(path)?))).transpose()?;
    let first = args.seed.unwrap_or_else(new_seed);
    let mut total = Total::new(args.seeds);
    for nth in 0..args.seeds {
        let seed = first.wrapping_add(nth);
        let summary = match &jobs {
            None => run_seed(seed, &options),
            Some((path, jobs)) => run_jobs(jobs, seed, &model, &options)
                .map_err(|error| Failure::Usage(format!("sim: {}: {error}", path.display())))?,
        };
        let summary = summary.map_err(|violation| {
            total.clear_line();
            Failure::Run(format!("sim: {violation}\nreplay with: {}", replay(args, seed)))
        })?;
        if jobs.is_some() {
            output::stdout(&report(&summary, &replay(args, seed)))?;
        }
        total.add(&summary);
    }
    total.clear_line();
    if jobs.is_none() {
        output::stdout(&total.report(first, &replay(args, first)))?;
    }
    Ok(())
}

/// The policy of a name. Here alone there is one that hangs.
fn wake_policy(name: &str) -> Result<WakePolicy, Failure> {
    let mut policies = WakePolicy::ALL.into_iter().chain([WakePolicy::StashV1]);
    policies.find(|policy| policy.name() == name).ok_or_else(|| {
        let what = "there are fair, batch, stash, single and stash-v1";
        Failure::Usage(format!("sim: --wake={name}: {what}"))
    })
}

fn read_jobs(path: &Path) -> Result<Vec<Job>, Failure> {
    let command =
        jobfile::parse(path, &mut Machine).map_err(|error| machine::failure("sim", &error))?;
    machine::tell_warnings(&command.warnings);
    match command.jobs.iter().find(|job| job.stage > 0) {
        None => Ok(command.jobs),
        Some(job) => Err(Failure::Usage(format!(
            "sim: {}: {}: stonewall: simulated jobs run all at once; write it into a file of its \
             own",
            path.display(),
            job.name
        ))),
    }
}

/// A seed that nobody has chosen. The standard library's hashers are keyed by the system.
fn new_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// The command that does the same again.
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

/// What came of one run of a job file.
fn report(summary: &Summary, replay: &str) -> String {
    let Summary { stats, tally, now_ns, nr_bios, .. } = summary;
    let seconds = *now_ns as f64 / 1e9;
    let iops = if *now_ns == 0 { 0.0 } else { *nr_bios as f64 / seconds };
    let merges: u64 = forebay::MergeKind::ALL.iter().map(|&kind| stats.merges(kind)).sum();
    let us = |ns: u64| ns as f64 / 1e3;
    let percentile = |share| us(tally.latency.percentile(share));
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = writeln!(text, "seed {}: no rule is broken", summary.seed);
    let _ = writeln!(
        text,
        "  virtual time : {seconds:.6} s, {} steps\n  \
           bios         : {nr_bios}, {} failed; {iops:.0} IOPS, {:.1} MB/s\n  \
           latency (us) : avg={:.1}, p50={:.1}, p99={:.1}, max={:.1}",
        summary.nr_steps,
        tally.nr_failed,
        tally.bytes as f64 / 1e6 / seconds.max(1e-9),
        us(tally.latency.mean()),
        percentile(500_000),
        percentile(990_000),
        us(tally.latency.max()),
    );
    let _ = writeln!(
        text,
        "  requests     : issued={}, commits={}, merges={merges}, splits={}, requeues={}, \
           retries={}\n  \
           tag waits    : {}, {:.1} us in all\n  \
           runs         : {}, {} of them left to others\n  \
           turns        : {}, {} of them empty\n  \
           flushes      : asked={}, issued={}, joined={}, elided={}\n  \
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

/// All seeds together.
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
            output::stderr(&format!("\r{nr} seeds ({percent} %), {bios} bios checked"));
        }
    }

    fn clear_line(&self) {
        if self.shown.is_some() {
            output::stderr("\r\x1b[K");
        }
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
