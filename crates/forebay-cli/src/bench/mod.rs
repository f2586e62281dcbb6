//! `forebay bench`: fio's jobs, run through the layer.
//!
//! - [`plan`], [`filename`]: which disk each clone of a job works on, and what a colon means;
//! - [`in_use`], [`open`], [`memory`]: what is refused before anything is written;
//! - [`compare`]: the same jobs in turn with another side, and ratios;
//! - [`layout`], [`fill`], [`cache`]: making files that are missing or too small, and forgetting
//!   what is in memory of them;
//! - [`run`]: one thread per clone, from start to result; with [`gauge`], the progress line,
//!   [`status`], reports meanwhile, and [`stop`], the signals;
//! - [`contents`]: what is in the blocks that are written and read;
//! - [`worker`]: a clone's job; its I/O goes through a queue ([`queued`]: fio's main loop) or is
//!   blocking [`calls`]; with [`tally`], what it has done, [`pauses`], what is done between its
//!   I/Os, [`written`], what is to be read back,
//!   and [`usage`], CPU time;
//! - [`log_files`]: what was logged;
//! - [`outcome`], [`layer`], [`user`]: what came of a clone, and what the layer itself says after
//!   the run, of each disk and of those who used it.

mod cache;
mod calls;
mod compare;
mod contents;
mod filename;
mod fill;
mod gauge;
mod in_use;
mod layer;
mod layout;
mod log_files;
mod memory;
mod open;
mod outcome;
mod pauses;
mod plan;
mod queued;
mod run;
mod status;
pub(crate) mod stop;
mod tally;
pub(crate) mod usage;
mod user;
mod worker;
mod written;

use std::ffi::OsString;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_fio::arguments;
use forebay_fio::cmdline::{self, CommandLine, Parsed};
use forebay_fio::job::Job;
use forebay_fio::options;
use forebay_fio::report::{JobReport, Report, header, json, normal};

use self::layer::Layer;
use self::layout::Layout;
use self::outcome::{Outcome, Outcomes};
use self::plan::Target;
use self::stop::Stop;
use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::output::{self, Sink};

/// The name and version in reports.
const VERSION: &str = concat!("forebay-", env!("CARGO_PKG_VERSION"));

/// Runs the jobs that the arguments after `bench` describe, and prints the report.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let started = Instant::now();
    let (comparison, args) = compare::take(args)?;
    let Some(command) = parse(args)? else { return Ok(()) };
    if let Some(asked) = comparison {
        return compare::main(&command, &asked);
    }
    let jobs = &command.jobs;
    let targets = plan::plan(jobs)?;
    for (job, warning) in jobs.iter().flat_map(|job| job.warnings.iter().map(move |w| (job, w))) {
        output::stderr(&format!("forebay: {}: {warning}\n", job.name));
    }
    let stop = Stop::on_signals()?;
    let layout = prepare(jobs, &targets)?;
    let mut sink = Sink::open(command.run.output.as_deref())?;
    let format = command.run.format;
    if format.is_normal() {
        let engines = plan::engine_names(&targets, jobs);
        sink.write(&header::render(jobs, VERSION, &engines))?;
    }
    layout.run(&stop, |line| match format.is_normal() {
        true => sink.write(line),
        false => {
            output::stderr(line);
            Ok(())
        }
    })?;
    let mut show = |outcomes: Outcomes| {
        // There may be further reports, and there is the last.
        if let Err(error) = print(&mut sink, &command, outcomes, started.elapsed()) {
            output::stderr(&format!("forebay: --status-interval: {error}\n"));
        }
    };
    let mut outcomes = run::run(&command, &targets, &stop, &mut show)?;
    let failed = outcomes.clones.iter().any(|outcome| outcome.report.error.is_some());
    tell_errors(&outcomes.clones);
    let logged = log_files::write(&mut outcomes.clones);
    print(&mut sink, &command, outcomes, started.elapsed())?;
    if failed || !logged || stop.is_set() {
        return Err(Failure::Told { usage: false });
    }
    Ok(())
}

/// Prints the report in all its formats, in fio's order.
fn print(
    sink: &mut Sink,
    command: &CommandLine,
    outcomes: Outcomes,
    elapsed: Duration,
) -> Result<(), Failure> {
    let format = command.run.format;
    let report = report(command, outcomes, elapsed);
    if format.is_json() {
        sink.write(&json::render(&report, format.has_bins()))?;
    }
    if format.is_normal() {
        sink.write(&normal::render(&report))?;
    }
    Ok(())
}

/// Refuses what can be refused before anything is written. What has to be laid out comes back.
fn prepare(jobs: &[Job], targets: &[Target]) -> Result<Layout, Failure> {
    in_use::check(jobs, targets)?;
    let mut layout = Layout::plan(jobs, targets)?;
    layout.rehearse(|| memory::check(jobs, targets, &open::open(jobs, targets)?.regions))?;
    Ok(layout)
}

/// What the arguments say. `None` if there is nothing left to do.
fn parse(args: Vec<OsString>) -> Result<Option<CommandLine>, Failure> {
    // Scripts ask with it whether options are right: that they are not is an answer.
    let only = args.iter().any(|arg| arg == "--parse-only" || arg == "--parse_only");
    let parsed = cmdline::parse_with(args, &mut Machine).map_err(|error| {
        match machine::failure("bench", &error) {
            Failure::Usage(message) if only => Failure::Run(message),
            failure => failure,
        }
    });
    match parsed? {
        Parsed::Help => output::stdout(&help()).map(|()| None),
        Parsed::Run(command) => {
            machine::tell_warnings(&command.warnings);
            if command.run.showcmd {
                output::stdout(&format!("forebay bench {}\n", arguments::line(&command.jobs)))?;
            }
            let is_run = !command.run.parse_only && !command.run.showcmd;
            Ok(is_run.then_some(command))
        }
    }
}

/// `elapsed` is the time since the program began, which is what fio gives for every job.
fn report(command: &CommandLine, outcomes: Outcomes, elapsed: Duration) -> Report {
    let owned = |options: &[(&'static str, String)]| {
        options.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect()
    };
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut report = Report {
        version: VERSION.to_owned(),
        timestamp_ms: since_epoch.as_millis() as u64,
        global_options: owned(&command.global_options),
        ..Report::default()
    };
    for layer in Layer::all(&outcomes, &command.jobs) {
        report.disk_util.push(layer.disk_util());
        report.forebay.push(layer.json());
        report.extra.extend(layer.lines());
    }
    let mut last_group = None;
    for outcome in outcomes.clones {
        let job = &command.jobs[outcome.job];
        let options = owned(&job.options);
        let elapsed_s = elapsed.as_millis().div_ceil(1000) as u64;
        let entry = JobReport { options, elapsed_s, group_id: job.group, ..outcome.report };
        // As in fio, a grouped clone joins the entry before it, whatever that is, in its group.
        match report.jobs.last_mut() {
            Some(last) if job.group_reporting && last_group == Some(job.group) => last.merge(entry),
            _ => report.jobs.push(entry),
        }
        last_group = Some(job.group);
    }
    report.jobs.iter_mut().for_each(JobReport::unify);
    report
}

fn tell_errors(outcomes: &[Outcome]) {
    for report in outcomes.iter().map(|outcome| &outcome.report) {
        if let Some(error) = &report.error {
            output::stderr(&format!("forebay: {}: {}\n", report.name, error.message));
        }
    }
}

fn help() -> String {
    format!(
        "Measure a disk through the block layer, with fio's options and report.\n\n\
         Usage: forebay bench [--option=value]... [job.fio]... \
         [--name=job [--option=value]...]...\n\n\
         Options before the first --name are defaults for all jobs, those of job files too;\n\
         - is standard input. Without any --name or file there is one job: random reads of 4k\n\
         at depth 32 for 5 seconds, on ram:1G unless --filename is given.\n\n\
         Options [default]:\n{}\n\
         Comparing, in pairs of runs [default]:\n{}",
        options::help(),
        compare::HELP
    )
}
