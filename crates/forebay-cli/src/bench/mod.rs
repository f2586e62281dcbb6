//! `forebay bench`: fio's jobs, run through the layer.
//!
//! - [`plan`]: which disk each clone of a job works on;
//! - [`layout`]: making files that are missing or too small;
//! - [`run`]: one thread per clone, from start to result, and the progress line;
//! - [`worker`]: fio's main loop; with [`written`] for reading back, and [`usage`] for CPU time;
//! - [`layer`]: what the layer itself says after the run.

mod layer;
mod layout;
mod plan;
mod run;
mod usage;
mod worker;
mod written;

use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_fio::cmdline::{self, CommandLine, Parsed};
use forebay_fio::job::OutputFormat;
use forebay_fio::options;
use forebay_fio::report::{JobReport, Report, header, json, normal};

use self::run::Outcome;
use crate::failure::Failure;
use crate::output::{self, Sink};

/// The name and version in reports.
const VERSION: &str = concat!("forebay-", env!("CARGO_PKG_VERSION"));

/// Runs the jobs that the arguments after `bench` describe, and prints the report.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let usage = |error: options::UsageError| Failure::Usage(format!("bench: {error}"));
    let command = match cmdline::parse(args).map_err(usage)? {
        Parsed::Help => return output::stdout(&help()),
        Parsed::Run(command) => command,
    };
    let targets = plan::plan(&command.jobs)?;
    let mut sink = Sink::open(command.run.output.as_deref())?;
    let is_json = command.run.format == OutputFormat::Json;
    if !is_json {
        let engines = plan::engine_names(&targets, &command.jobs);
        sink.write(&header::render(&command.jobs, VERSION, &engines))?;
    }
    let stop = run::watch_signals()?;
    for target in &targets {
        let job = &command.jobs[target.job];
        layout::prepare(job, target, &stop, |line| match is_json {
            true => {
                output::stderr(line);
                Ok(())
            }
            false => sink.write(line),
        })?;
    }
    let outcomes = run::run(&command, &targets, &stop)?;
    let failed = outcomes.iter().any(|outcome| outcome.report.error.is_some());
    tell_errors(&outcomes);
    let report = report(&command, outcomes);
    sink.write(&if is_json { json::render(&report) } else { normal::render(&report) })?;
    if failed || run::was_stopped(&stop) {
        return Err(Failure::Told { usage: false });
    }
    Ok(())
}

fn report(command: &CommandLine, outcomes: Vec<Outcome>) -> Report {
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
    // The entry that grouped jobs join: fio's group is all jobs, since there is no stonewall yet.
    let mut group: Option<usize> = None;
    for outcome in outcomes {
        let job = &command.jobs[outcome.job];
        layer::add_disk_util(&mut report.disk_util, &outcome);
        report.forebay.push(layer::json_of(&outcome));
        report.extra.extend(layer::lines_of(&outcome));
        let entry = JobReport { options: owned(&job.options), ..outcome.report };
        match group.filter(|_| job.group_reporting) {
            Some(first) => report.jobs[first].merge(entry),
            None => {
                if job.group_reporting {
                    group = Some(report.jobs.len());
                }
                report.jobs.push(entry);
            }
        }
    }
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
         Usage: forebay bench [--option=value]... [--name=job [--option=value]...]...\n\n\
         Options before the first --name are defaults for all jobs. Without any --name there is\n\
         one job: random reads of 4k at depth 32 for 5 seconds, on ram:1G unless --filename is\n\
         given.\n\n\
         Options [default]:\n{}",
        options::help()
    )
}
