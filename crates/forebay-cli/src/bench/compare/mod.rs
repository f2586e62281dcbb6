//! `forebay bench --compare`: the same jobs in turn with fio's engine, or on another device.
//!
//! - [`asked`]: the options; [`side`], with [`fio`]: what the two sides run; [`workload`]: the load
//!   in a line;
//! - [`measure`], with [`child`] and [`progress`]: the runs, pair by pair;
//! - [`comparison`], with [`metric`] and [`spread`]: ratios, their confidence, and verdicts;
//! - [`text`], [`json`], [`svg`] with [`axis`]: reports; [`machine`]: the machine's name.

mod asked;
mod axis;
mod child;
mod comparison;
mod fio;
mod json;
mod machine;
mod measure;
mod metric;
mod progress;
#[cfg(test)]
mod samples;
mod side;
mod spread;
mod svg;
mod text;
mod workload;

use forebay_fio::cmdline::CommandLine;
use forebay_fio::job::{Job, OutputFormat};

use self::asked::Format;
pub(super) use self::asked::{Asked, help, help_of, take};
use self::comparison::Comparison;
use self::progress::Progress;
use self::side::{FIO, Side};
use super::plan::Target;
use super::stop::Stop;
use crate::failure::Failure;
use crate::output::{self, Sink};

/// Compares, and prints the result.
pub(super) fn main(
    command: &CommandLine,
    targets: &[Target],
    asked: &Asked,
) -> Result<(), Failure> {
    let stop = Stop::on_signals()?;
    let sides = sides(command, targets, asked)?;
    let mut sink = Sink::open(command.run.output.as_deref())?;
    let mut progress = Progress::new(command.run.eta);
    let measured = measure::measure(&sides, asked.pairs, asked.limit, &stop, &mut progress);
    progress.clear();
    let measured = measured?;
    if measured.was_stopped {
        let (done, all) = (measured.pairs.len(), asked.pairs);
        output::stderr(&format!(
            "\nforebay: stopped early by a signal: {done} of {all} pairs are complete\n"
        ));
    }
    if measured.pairs.is_empty() {
        return Err(Failure::Told { usage: false });
    }
    let comparison = Comparison {
        titles: sides.each_ref().map(|side| side.title.clone()),
        workload: workload::describe(&command.jobs, targets, asked.limit),
        commands: sides.each_ref().map(|side| side.command(asked.limit)),
        nr_asked: asked.pairs,
        nr_pairs: measured.pairs.len(),
        is_counted: measured.before.iter().all(|before| before.syscalls.is_some()),
        machine: machine::describe(),
        notes: sides.iter().filter_map(|side| side.note.clone()).collect(),
        rows: comparison::rows(&measured),
    };
    let format = asked.format.unwrap_or(match command.run.format {
        OutputFormat::Json | OutputFormat::JsonPlus => Format::Json,
        OutputFormat::Normal | OutputFormat::NormalJson | OutputFormat::NormalJsonPlus => {
            Format::Text
        }
    });
    sink.write(&match format {
        Format::Text => text::render(&comparison, sink.has_colours()),
        Format::Markdown => text::markdown(&comparison),
        Format::Json => json::render(&comparison),
        Format::Svg => svg::render(&comparison),
    })?;
    if measured.was_stopped || (asked.fail && comparison.is_worse()) {
        return Err(Failure::Told { usage: false });
    }
    Ok(())
}

/// Refuses jobs that cannot be compared, whatever the sides are.
fn check(jobs: &[Job]) -> Result<(), Failure> {
    let refuse =
        |job: &Job, reason: &str| Err(Failure::Usage(format!("--compare: {}: {reason}", job.name)));
    if let Some(job) = jobs.iter().find(|job| job.group != jobs[0].group) {
        return refuse(
            job,
            "it starts another group (stonewall, new_group, or a second job file), and only one \
             group can be compared; compare the groups one by one with --section",
        );
    }
    let has_logs =
        |job: &&Job| [&job.logs.bw, &job.logs.lat, &job.logs.iops].iter().any(|log| log.is_some());
    match jobs.iter().find(has_logs) {
        None => Ok(()),
        Some(job) => refuse(
            job,
            "each run would overwrite the logs of the one before; leave out write_bw_log, \
             write_lat_log and write_iops_log",
        ),
    }
}

/// Returns both sides. Whatever can be refused before the first run is refused here.
fn sides(command: &CommandLine, targets: &[Target], asked: &Asked) -> Result<[Side; 2], Failure> {
    let jobs = &command.jobs;
    check(jobs)?;
    side::check_word(&asked.with)?;
    super::prepare(jobs, targets)?;
    let ours = Side::ours(jobs, targets)?;
    if asked.with == FIO {
        return Ok([ours, Side::fio(jobs, targets)?]);
    }
    let with = asked.with.as_str();
    let other = side::on_other(jobs, with)?;
    let targets = side::plan_other(&other, with)?;
    super::prepare(&other, &targets).map_err(|error| side::about(with, error))?;
    Ok([ours, Side::ours(&other, &targets)?])
}
