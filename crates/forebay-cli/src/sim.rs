//! `forebay sim`: the layer in virtual time.
//!
//! It runs a job file or a recorded load on a modelled device, or random scenarios, one for each
//! seed. The output ends with the command that repeats the run. A broken rule is a failure of the
//! run.

mod comparison;
mod device;
mod front;
mod job_file;
mod json;
mod nbd;
mod notes;
mod options;
mod random;
mod reached;
mod recorded;
mod report;
mod rows;
mod run;
mod scenario;
mod seeds;
mod settings;
mod svg;
mod table;
mod threads;
mod total;
mod trace;
mod variants;

use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueHint};
use forebay_fio::arguments::quoted;
use forebay_fio::job::JobList;
use forebay_fio::jobfile;
use forebay_sim::{DeviceSpec, FaultRule, Options, QUEUE_DEPTH_MAX, Wake};

use self::comparison::Comparison;
use self::job_file::JobFile;
use self::notes::Kinds;
use self::recorded::Recorded;
use self::scenario::ScenarioFile;
use self::seeds::Seeds;
use self::settings::{Settings, Tasks};
use crate::bench::has_one_class;
use crate::completed_values::{any_text, completing};
use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::number;

/// The end of `forebay sim --help`.
const NOTES: &str = "\
A job file describes the load. It may also set keys of the disk (queue_depth=8) and name a modelled
device (filename=model:nvme?wake=batch). --device, --set, --wake and --queue-depth override these;
--device replaces the device of the filename with its constants, and keeps the other keys.
An option or key without effect on the disk is an error. To see what another setting would change:
  forebay sim JOB.fio --device nvme --set queue_depth=8 --compare wake=batch --compare plug=none
  forebay sim JOB.fio --sweep queue_depth=1,8,64,512 --seeds 5 --svg depth.svg
  forebay sim JOB.fio --sweep device=hdd,sata,ssd-sas,nvme
  forebay sim JOB.fio --device nvme --faults read:medium:rate=0.01 --json
A recorded load is a log of fio or of bench --write_iolog, or a trace (of bench --trace, serve
--trace, sim --write-trace or blktrace). Each I/O is submitted at its recorded time, however slow
the device is, and latencies count from that time. A * in the table marks the settings on the
front: no other one is better in throughput, p99, switches or fairness without being worse in
another of them:
  forebay sim --trace my.log --device my.model --sweep wake=fair,batch --sweep queue_depth=8,32
  forebay sim --trace DIR --device nvme --replay-no-stall --iodepth 32 --sweep plug=outermost,none
A setting that has an effect on the disk, but had none on this load, causes a note in the report.
A scenario file (.toml) describes tasks that draw random I/O, with faults, freezes and checks of
power failures; its keys are in docs/lab.md. All options apply to it too:
  forebay sim crates/forebay-cli/examples/flaky-log.toml
Processors cost almost nothing in virtual time, unless a cost is set: --set cpu_turn_ns=500, and
cpu_submit_ns, cpu_request_ns, cpu_complete_ns, cpu_reap_ns, cpu_wake_ns. One of them turns all on,
with the layer's own times as defaults (docs/lab.md). To run a modelled device in real time:
  forebay bench --filename=model:nvme --compare='?wake=batch' ...";

/// The arguments after `sim`.
#[derive(Debug, Default, ClapArgs)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// A fio job file, or a scenario: a file whose name ends with .toml
    #[arg(value_name = "JOB.fio|SCENARIO.toml")]
    job: Option<PathBuf>,
    /// Run random scenarios instead of a job file
    #[arg(long, conflicts_with = "job")]
    random: bool,
    /// Run random NBD sessions: clients that follow the protocol, clients that break it, a server
    #[arg(long, conflicts_with_all = ["job", "random"])]
    nbd: bool,
    /// Run a recorded load: an iolog, or a file or directory of blktrace. Repeat the option for
    /// several iologs, one for each thread
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["job", "random", "nbd"])]
    trace: Vec<PathBuf>,
    /// With --trace: submit each I/O as soon as --iodepth allows, and ignore the recorded times
    #[arg(long)]
    replay_no_stall: bool,
    /// With --trace: the speed as a percentage of the recorded speed, 1 to 1000000 [default: 100]
    #[arg(long, value_name = "PERCENT")]
    #[arg(value_parser = number::parse::<1, 1_000_000>)]
    replay_time_scale: Option<u64>,
    /// With --trace: maximum I/Os in flight per thread; others wait, and are late [default: 256]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = number::parse::<1, 65_536>)]
    iodepth: Option<u64>,
    /// The first seed [default: a random one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of seeds to run, at least 1. With --compare or --sweep, the table shows the median
    /// over the seeds and the range of each figure
    /// [default: that of the scenario, else 1]
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = number::parse::<1, { u64::MAX }>)]
    seeds: Option<u64>,
    /// The device: hdd, sata, ssd-sas, nvme, virtio-ram, fixed (one latency) or flaky (random
    /// latencies, failed requests). Constants follow a colon: nvme:latency_ns=9000,size=2g. Or a
    /// file of forebay calibrate: a path with a / or the ending .model
    /// [default: that of the job file, else fixed]
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]|FILE", value_hint = ValueHint::AnyPath)]
    #[arg(hide_possible_values = true, value_parser = completing(any_text, DeviceSpec::names()))]
    device: Option<String>,
    /// Set a key of the disk (forebay help policies, max_sectors_kb) or a processor cost
    /// (cpu_turn_ns, see below); may be repeated. Overrides the job file
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Inject faults into the device, by a rule of the fault: driver (forebay help specs), such as
    /// read:medium:rate=0.01, write:short=4k:nth=10, any:busy:rate=0.2, any:offline:after=1000,
    /// flush:delay=5ms (devices with a cache: fixed, flaky, sata), or, with --set
    /// io_timeout_ms=30, read:hang:nth=100; may be repeated. The first rule that matches a request
    /// applies
    #[arg(long, value_name = "OPS:EFFECT[:WHEN...]")]
    faults: Vec<String>,
    /// Also run with this setting, and print a table of all runs; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "sweep")]
    compare: Vec<String>,
    /// Run once for each of these values, and print a table of the runs; may be repeated for all
    /// combinations
    #[arg(long, value_name = "KEY=A,B,C")]
    sweep: Vec<String>,
    /// Which waiter a freed tag wakes: fair, batch, stash, single, or stash-v1, which is known to
    /// hang [default: fair; chosen by the seed with --random]
    #[arg(long, value_name = "POLICY")]
    #[arg(hide_possible_values = true, value_parser = completing(any_text, Wake::names()))]
    wake: Option<String>,
    /// Maximum number of requests in flight, 1 to 10240 [default: that of the device, 256 for fixed
    /// and flaky; chosen by the seed with --random]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = number::parse::<1, { QUEUE_DEPTH_MAX as u64 }>)]
    queue_depth: Option<u64>,
    /// Print one JSON value: fio's keys for each job, and the layer's figures under "forebay"
    #[arg(long)]
    json: bool,
    /// Write a trace of the run to this new directory, for blkparse and forebay trace report
    #[arg(long, value_name = "DIR", conflicts_with_all = ["compare", "sweep"])]
    write_trace: Option<PathBuf>,
    /// Also write a figure of the runs of --compare or --sweep to this file, whose name ends in
    /// .svg: IOPS, p99, switches and fairness; with --trace, p99 at each throughput, with the front
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
}

/// A simulation: a scenario for each seed.
#[derive(Debug)]
pub(crate) struct Plan {
    load: Load,
    seeds: Seeds,
}

/// The scenarios.
#[derive(Debug)]
enum Load {
    /// NBD sessions.
    Nbd,
    /// Random bios.
    Random(Options),
    /// The scenario of a file.
    Scenario(Box<ScenarioFile>),
    /// The bios of a job file.
    Jobs(Box<JobFile>),
    /// The bios of a recording.
    Recorded(Box<Recorded>),
}

/// Runs the simulation that the arguments select.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let Plan { load, seeds } = plan(args)?;
    match load {
        Load::Nbd => nbd::main(args, seeds),
        Load::Random(options) => random::main(args, &options, seeds),
        Load::Scenario(file) => scenario::main(args, &file, seeds),
        Load::Jobs(file) => job_file::main(args, &file, seeds),
        Load::Recorded(recorded) => recorded::main(args, &recorded, seeds),
    }
}

/// Returns the simulation that the arguments select.
pub(crate) fn plan(args: &Args) -> Result<Plan, Failure> {
    let seeds = Seeds::new(args.seed.unwrap_or_else(new_seed), args.seeds.unwrap_or(1));
    refuse_beside_seeds(args)?;
    if !args.trace.is_empty() {
        if args.seeds.is_some_and(|nr| nr > 1) {
            refuse_trace(args, "several seeds")?;
        }
        return Ok(Plan { load: Load::Recorded(Box::new(recorded::plan(args)?)), seeds });
    }
    recorded::refuse_without_trace(args)?;
    if args.nbd {
        return Ok(Plan { load: Load::Nbd, seeds });
    }
    let Some(path) = &args.job else {
        return Ok(Plan { load: Load::Random(random::options(args)?), seeds });
    };
    if scenario::is_scenario(path) {
        refuse_trace(args, "a scenario file")?;
        return scenario_plan(path, args);
    }
    if args.seeds.is_some_and(|nr| nr > 1) {
        refuse_trace(args, "several seeds")?;
    }
    let (command, in_file) = read_jobs(path, args.device.is_some())?;
    let settings = in_file.then(&given(args, Tasks::Jobs)?);
    check_swept(&args.sweep, &given(args, Tasks::Jobs)?)?;
    let faults = fault_rules(&args.faults)?;
    let mut variants = variants::of(&settings, Tasks::Jobs, &args.compare, &args.sweep)?;
    let kinds = Kinds {
        has_priorities: command.jobs.iter().any(|job| job.priorities.is_given()),
        has_classes: !has_one_class(command.jobs.iter()),
        ..Kinds::default()
    };
    for variant in &mut variants {
        variant.disk.faults.clone_from(&faults);
        variant.disk.is_traced = args.write_trace.is_some();
        variant.kinds = kinds;
    }
    let comparison = Comparison::new(path, &command.files, variants, args)?;
    let file = JobFile { command, comparison };
    Ok(Plan { load: Load::Jobs(Box::new(file)), seeds })
}

/// Refuses a trace where no single run of a job file is traced.
fn refuse_trace(args: &Args, beside: &str) -> Result<(), Failure> {
    match args.write_trace {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!(
            "--write-trace: expected a job file or a recording and one seed, found {beside}: leave \
             one of them out"
        ))),
    }
}

/// Returns the scenario of a file. Seeds of the command line override those of the file.
fn scenario_plan(path: &Path, args: &Args) -> Result<Plan, Failure> {
    let file = scenario::read(path, args, fault_rules(&args.faults)?)?;
    let first_seed = args.seed.or(file.first_seed).unwrap_or_else(new_seed);
    let seeds = Seeds::new(first_seed, args.seeds.or(file.nr_seeds).unwrap_or(1));
    Ok(Plan { load: Load::Scenario(Box::new(file)), seeds })
}

/// Refuses options that have no effect beside `--random` or `--nbd`, where the seed decides.
fn refuse_beside_seeds(args: &Args) -> Result<(), Failure> {
    let (with, what) = match (args.random, args.nbd) {
        (true, _) => ("--random", "the disk and its faults"),
        (_, true) => ("--nbd", "the sessions and the server"),
        _ => return Ok(()),
    };
    let given = [
        ("--device", args.device.is_some()),
        ("--set", !args.set.is_empty()),
        ("--faults", !args.faults.is_empty()),
        ("--compare", !args.compare.is_empty()),
        ("--sweep", !args.sweep.is_empty()),
        ("--write-trace", args.write_trace.is_some()),
        ("--svg", args.svg.is_some()),
        ("--wake", args.nbd && args.wake.is_some()),
        ("--queue-depth", args.nbd && args.queue_depth.is_some()),
        ("--json", args.nbd && args.json),
    ];
    let refused = given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| {
        let why = match option {
            "--json" => "the report has only sums; leave it out".to_owned(),
            _ => format!(
                "the seed chooses {what}; leave the option out, or give a job file or a scenario \
                 file"
            ),
        };
        format!("{option} has no effect with {with}: {why}")
    });
    match refused.collect::<Vec<_>>() {
        messages if messages.is_empty() => Ok(()),
        messages => Err(Failure::Several { messages, usage: true }),
    }
}

/// Returns the settings of the command line.
///
/// # Errors
/// All settings that are wrong or not simulated.
fn given(args: &Args, tasks: Tasks) -> Result<Settings, Failure> {
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
        match settings::check(key, value, tasks) {
            Ok(()) => given.add(key, value),
            Err(error) => messages.push(format!("{option}={value}: {error}")),
        }
    }
    for text in &args.set {
        let checked = settings::pair(text).and_then(|(key, value)| {
            settings::check(&key, &value, tasks)?;
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

/// Checks that the command line does not also set a swept key, which would have no effect.
fn check_swept(sweeps: &[String], given: &Settings) -> Result<(), Failure> {
    for sweep in sweeps {
        let key = sweep.split('=').next().unwrap_or_default();
        if let Some(value) = given.get(key) {
            return Err(Failure::Usage(format!(
                "--sweep={sweep}: the command line also sets {key}={value}; leave one of the two \
                 out"
            )));
        }
    }
    Ok(())
}

/// Parses the fault rules of the command line.
///
/// # Errors
/// All rules that are wrong.
fn fault_rules(texts: &[String]) -> Result<Vec<FaultRule>, Failure> {
    let (mut rules, mut messages) = (Vec::new(), Vec::new());
    for text in texts {
        match FaultRule::parse(text) {
            Ok(rule) => rules.push(rule),
            Err(expected) => messages.push(format!("--faults={text}: expected {expected}")),
        }
    }
    match messages.is_empty() {
        true => Ok(rules),
        false => Err(Failure::Several { messages, usage: true }),
    }
}

/// Reads a job file. Returns its jobs and its settings of the disk.
fn read_jobs(path: &Path, has_device: bool) -> Result<(JobList, Settings), Failure> {
    let command = jobfile::parse(path, &mut Machine).map_err(|errors| machine::failure(&errors))?;
    machine::print_warnings(&command.warnings);
    machine::print_job_warnings(&command.jobs);
    let settings = options::check(&command, has_device)?;
    Ok((command, settings))
}

/// Returns a random seed. The standard library's hashers are keyed by the system.
fn new_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// Returns the command that repeats the runs of these seeds.
fn replay(args: &Args, seed: u64, nr_seeds: u64) -> String {
    let mut text = match &args.job {
        None if args.nbd => String::from("forebay sim --nbd"),
        None if !args.trace.is_empty() => String::from("forebay sim"),
        None => String::from("forebay sim --random"),
        Some(path) => format!("forebay sim {}", quoted(&path.display().to_string())),
    };
    for path in &args.trace {
        // Writing into a String does not fail.
        let _ = write!(text, " --trace {}", quoted(&path.display().to_string()));
    }
    if args.replay_no_stall {
        text += " --replay-no-stall";
    }
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let (depth, speed) = (number(args.queue_depth), number(args.replay_time_scale));
    let iodepth = number(args.iodepth);
    let single = [
        ("--replay-time-scale", speed.as_ref()),
        ("--iodepth", iodepth.as_ref()),
        ("--device", args.device.as_ref()),
        ("--wake", args.wake.as_ref()),
        ("--queue-depth", depth.as_ref()),
    ];
    let single = single.into_iter().filter_map(|(option, value)| Some((option, value?)));
    let many = [
        ("--sweep", &args.sweep),
        ("--set", &args.set),
        ("--faults", &args.faults),
        ("--compare", &args.compare),
    ];
    let many =
        many.into_iter().flat_map(|(option, values)| values.iter().map(move |v| (option, v)));
    for (option, value) in single.chain(many) {
        let _ = write!(text, " {option} {}", quoted(value));
    }
    let _ = write!(text, " --seed {seed}");
    if nr_seeds > 1 {
        let _ = write!(text, " --seeds {nr_seeds}");
    }
    text
}
