//! `forebay bench`: fio's jobs, run through the layer.
//!
//! - [`plan`], [`filename`], [`files_in`]: the disks of each clone of a job, colons in file names,
//!   and the files of a directory;
//! - [`contradictions`], [`notes`]: options beside other values of the same key, and those without
//!   effect;
//! - [`in_use`], [`outputs`], [`open`], [`memory`]: checks before anything is written;
//! - [`compare`]: alternating runs against another side, and ratios;
//! - [`layout`], [`fill`], [`filling`], [`cache`]: creating and extending files, filling a file
//!   system, and dropping the page cache;
//! - [`run`]: one thread per clone, from start to result; with [`gauge`], the progress line,
//!   [`status`], intermediate reports, and [`stop`], the signals;
//! - [`steady`]: jobs that end in a steady state;
//! - [`contents`]: the data of blocks, generated and verified;
//! - [`worker`]: a clone's job; its I/O goes through a queue ([`queued`]: fio's main loop, with
//!   [`slots`]) or is blocking [`calls`]; with [`queues`] and [`file_buffers`], those of several
//!   files, [`tally`], its figures, [`pauses`], work between I/Os, [`written`] with [`block_set`],
//!   blocks to read back, and [`usage`], CPU time;
//! - [`placement`], [`thread_calls`], [`together`]: the processors and memory of clones, and
//!   jobs that depend on each other;
//! - [`log_files`]: the logs; [`trace`]: the stages of requests; [`pictures`]: the options for
//!   pictures, with [`series`], rates over time, and [`page`], the charts of a run;
//! - [`replay`]: logs of I/Os, read and written;
//! - [`sweep`]: the jobs with several values of an option;
//! - [`stages`]: jobs of other commands, one after another;
//! - [`zones`], [`early_end`]: emulated zones, and clones whose I/O they did not take;
//! - [`outcome`], [`layer`], [`user`]: the results of each clone, and the layer's own report on
//!   each disk and its jobs.

mod block_set;
mod cache;
mod calls;
mod compare;
mod contents;
mod contradictions;
mod dump;
mod early_end;
mod file_buffers;
mod filename;
mod files_in;
mod fill;
mod filling;
mod gauge;
mod host;
mod in_use;
mod layer;
mod layout;
mod log_files;
mod memory;
mod notes;
mod open;
mod outcome;
mod outputs;
mod owner;
mod page;
mod pictures;
mod placement;
mod plan;
mod priority;
mod queued;
mod queues;
mod registration;
mod removal;
mod replay;
mod run;
mod series;
mod slots;
mod stages;
mod status;
mod steady;
pub(crate) mod stop;
mod sweep;
mod tally;
mod thread_calls;
mod together;
mod trace;
pub(crate) mod usage;
mod worker;
mod workload;
mod written;
mod zones;

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_fio::arguments;
use forebay_fio::cmdline::{self, Parsed};
use forebay_fio::job::{Job, JobList};
use forebay_fio::options;
use forebay_fio::report::{JobError, JobReport, Report, header, json, normal, terse};
use forebay_insight::Insight;

pub(crate) use self::compare::{CompareOption, options as compare_options};
pub(crate) use self::contradictions::is_same;
pub(crate) use self::in_use::use_of;
use self::layer::Layer;
use self::layout::Layout;
pub(crate) use self::notes::has_one_class;
use self::outcome::{Outcome, Outcomes};
pub(crate) use self::pictures::all as picture_options;
use self::plan::Target;
pub(crate) use self::plan::file_below;
pub(crate) use self::stages::run_stages;
use self::stop::Stop;
use crate::failure::Failure;
use crate::fio_report::{self, Times, VERSION};
use crate::machine::{self, Machine};
use crate::output::{self, Sink};

/// Shows the disks at a socket, for `forebay top`, until the result is dropped.
fn listen(path: Option<&Path>) -> Result<Option<Insight>, Failure> {
    let insight = path.map(Insight::listen).transpose();
    insight.map_err(|error| Failure::Run(format!("--insight: {error}")))
}

/// Runs the jobs that the arguments after `bench` describe, and prints the report.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let started = Instant::now();
    let taken = compare::take(args);
    let compared = taken.asked;
    let mut taken = pictures::take(taken.rest).after(taken.errors);
    if compared.is_some() {
        taken.refuse_comparison();
    }
    let asked = taken.asked;
    let Some(command) = parse(taken.rest, taken.errors)? else { return Ok(()) };
    // A comparison refuses replays, and a sweep reads the log with each value.
    let command = match compared.is_some() || asked.sweep.is_some() {
        true => command,
        false => replay::loaded(&command)?,
    };
    let jobs = &command.jobs;
    let targets = plan::plan(jobs)?;
    machine::print_job_warnings(jobs);
    notes::notes(jobs, &targets).iter().for_each(note);
    if let Some(compared) = compared {
        return compare::main(&command, &targets, &compared);
    }
    let _insight = listen(command.run.insight.as_deref())?;
    if let Some(sweep) = &asked.sweep {
        let files = sweep::Files { svg: asked.svg.as_deref(), html: asked.html.as_deref() };
        return sweep::main(&command, sweep, files);
    }
    trace::check(command.run.trace.as_deref())?;
    outputs::check(jobs, &targets, asked.outputs(command.run.output.as_deref(), &command.files))?;
    let stop = Stop::on_signals()?;
    let (layout, notices) = prepare(jobs, &targets, command.run.readonly)?;
    notices.iter().for_each(note);
    let mut sink = Sink::open(command.run.output.as_deref())?;
    page::prepare(&asked)?;
    let format = command.run.format;
    if format.is_normal() {
        let engines = plan::engine_names(&targets, jobs);
        sink.write(&header::render(jobs, VERSION, &engines))?;
    }
    let filling = layout.run(&stop, |line| match format.is_normal() {
        true => sink.write(line),
        false => {
            output::stderr(line);
            Ok(())
        }
    })?;
    let mut show = |outcomes: Outcomes| {
        // A failed intermediate report does not end the run; further reports follow.
        if let Err(error) = print(&mut sink, &command, outcomes, started.elapsed()) {
            output::stderr(&format!("forebay: --status-interval: {error}\n"));
        }
    };
    let mut outcomes =
        run::run(&command, &targets, &filling, &stop, asked.has_series(), &mut show)?;
    drop(filling);
    let failed = outcomes.clones.iter().any(|outcome| outcome.report.error.is_some());
    print_errors(&outcomes.clones);
    let logged = log_files::write(&mut outcomes.clones);
    let pages = page::Pictures::of(&command, &targets, &mut outcomes);
    let report = print(&mut sink, &command, outcomes, started.elapsed())?;
    pages.write(&asked, &normal::render(&report))?;
    if failed || !logged || stop.is_set() {
        return Err(Failure::Told { usage: false });
    }
    Ok(())
}

/// Prints the report in all its formats, in fio's order, and returns it.
fn print(
    sink: &mut Sink,
    command: &JobList,
    outcomes: Outcomes,
    elapsed: Duration,
) -> Result<Report, Failure> {
    let format = command.run.format;
    let report = report(command, outcomes, elapsed);
    if format.is_terse() {
        sink.write(&terse::render(&report, command.run.terse_version))?;
    }
    if format.is_json() {
        sink.write(&json::render(&report, format.has_bins()))?;
    }
    if format.is_normal() {
        sink.write(&normal::render(&report))?;
    }
    Ok(report)
}

fn note(text: &String) {
    output::stderr(&format!("forebay: {text}\n"));
}

/// Refuses what can be refused before anything is written. Returns the files to lay out, and
/// messages about the disks.
fn prepare(
    jobs: &[Job],
    targets: &[Target],
    readonly: bool,
) -> Result<(Layout, Vec<String>), Failure> {
    zones::check(jobs, targets)?;
    in_use::check(jobs, targets)?;
    placement::check(jobs)?;
    steady::check(jobs)?;
    let mut layout = Layout::plan(jobs, targets)?;
    if readonly {
        layout.check_read_only()?;
    }
    let notices = layout.rehearse(|| {
        let opened = open::open(jobs, targets)?;
        memory::check(jobs, targets, &opened.regions)?;
        let of_disks = opened.disks.iter().flat_map(|disk| output::notices(disk.info()));
        Ok(of_disks.chain(notes::of_schedulers(jobs, targets, &opened.disks)).collect())
    })?;
    Ok((layout, notices))
}

/// Parses the arguments. Returns `None` if nothing is left to do. `errors` are those of options
/// that were removed from the arguments before.
fn parse(args: Vec<OsString>, errors: Vec<String>) -> Result<Option<JobList>, Failure> {
    // Scripts use this option to check options, so a wrong option is a result, not wrong usage.
    let only = args.iter().any(|arg| arg == "--parse-only" || arg == "--parse_only");
    let parsed = cmdline::parse_with(args, &mut Machine);
    let failure = match (&parsed, errors.is_empty()) {
        (Ok(Parsed::Help(_)), _) | (Ok(_), true) => None,
        (Ok(_), false) => Some(Failure::Several { messages: errors, usage: true }),
        (Err(more), _) => Some(machine::failure(more).after(errors)),
    };
    if let Some(failure) = failure {
        return Err(if only { failure.of_run() } else { failure });
    }
    match parsed.map_err(|errors| machine::failure(&errors))? {
        Parsed::Help(None) => output::stdout(&help()).map(|()| None),
        Parsed::Help(Some(name)) => {
            output::stdout(&help_of(&name)?)?;
            Ok(None)
        }
        Parsed::Run(command) => {
            machine::print_warnings(&command.warnings);
            if command.run.showcmd {
                output::stdout(&format!("forebay bench {}\n", arguments::line(&command.jobs)))?;
            }
            let is_run = !command.run.parse_only && !command.run.showcmd;
            Ok(is_run.then_some(*command))
        }
    }
}

/// Builds the report. `elapsed` is the time since the start of the program.
fn report(command: &JobList, outcomes: Outcomes, elapsed: Duration) -> Report {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (end_ms, elapsed_s) = (since_epoch.as_millis() as u64, elapsed.as_millis().div_ceil(1000));
    let times = Times { end_ms, elapsed_s: elapsed_s as u64 };
    let (mut disk_util, mut forebay, mut extra) = (Vec::new(), Vec::new(), Vec::new());
    for layer in Layer::all(&outcomes, &command.jobs) {
        disk_util.push(layer.disk_util());
        forebay.push(layer.json());
        extra.extend(layer.lines());
    }
    let clones = outcomes.clones.into_iter().map(|outcome| (outcome.job, outcome.report));
    Report { disk_util, forebay, extra, ..fio_report::assemble(command, clones, times) }
}

fn print_errors(outcomes: &[Outcome]) {
    for report in outcomes.iter().map(|outcome| &outcome.report) {
        if let Some(error) = &report.error {
            output::stderr(&format!("forebay: {}: {}\n", report.name, error.message));
        } else if let Some((total, first)) = continued(report) {
            let (name, noun) = (&report.name, if total == 1 { "error" } else { "errors" });
            output::stderr(&format!(
                "forebay: {name}: {total} {noun} did not end the job; the first: {}\n",
                first.message
            ));
        }
    }
}

/// Returns the number of errors that did not end a job, and the first of them.
fn continued(report: &JobReport) -> Option<(u64, &JobError)> {
    let errors = report.errors.as_ref()?;
    Some((errors.total(), errors.first()?))
}

/// The forms of the command line.
pub(crate) const USAGE: &str = "forebay bench [--option=value]... [job.fio]... \
                                [--name=job [--option=value]...]...";

/// The text before the options.
pub(crate) const INTRODUCTION: &str = "\
Options before the first --name are defaults for all jobs, also those of job files.
A job file - is standard input. Without --name and job file there is one job: random
reads of 4k at depth 32 for 5 seconds, on ram:1G unless --filename is given.
--help=OPTION explains one option; forebay help report explains the report.";

fn help() -> String {
    format!(
        "Measure a disk through the block layer, with fio's options and report.\n\n\
         Usage: {USAGE}\n\n{INTRODUCTION}\n\n{}\nComparison with another run:\n{}\n\
         Pictures and sweeps:\n{}",
        options::help(),
        compare::help(),
        pictures::help()
    )
}

/// Returns the help text of one option.
fn help_of(name: &str) -> Result<String, Failure> {
    let compared = compare::help_of(name).or_else(|| pictures::help_of(name));
    let text = compared.map_or_else(|| options::help_of(name), Ok);
    text.map_err(|error| Failure::Usage(format!("--help={name}: {error}")))
}

#[cfg(test)]
mod tests;
