//! `forebay bench --compare`: runs the same jobs alternately with fio, or on another device.
//!
//! - [`options`]: the options; [`checks`]: options that are refused or have no effect;
//! - [`side`], with [`fio`]: the jobs of the two sides;
//! - [`measure`], with [`child`] and [`progress`]: the runs, pair by pair;
//! - [`comparison`], with [`metric`] and [`spread`]: ratios, their confidence, and verdicts;
//! - [`text`], [`json`], [`svg`]: reports.

mod checks;
mod child;
mod comparison;
mod fio;
mod json;
mod measure;
mod metric;
mod options;
mod progress;
#[cfg(test)]
mod samples;
mod side;
mod spread;
mod svg;
mod text;

use forebay_fio::job::{Job, JobList, OutputFormat};

use self::comparison::Comparison;
use self::options::Format;
pub(crate) use self::options::{CompareOption, all as options};
pub(super) use self::options::{CompareOptions, help, help_of, take};
use self::progress::Progress;
pub(super) use self::side::with_keys;
use self::side::{FIO, Side};
use super::outputs::{self, Outputs};
use super::plan::Target;
use super::stop::Stop;
use super::{host, notes, workload};
use crate::failure::Failure;
use crate::output::{self, Sink};

/// Compares, and prints the result.
pub(super) fn main(
    command: &JobList,
    targets: &[Target],
    asked: &CompareOptions,
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
        machine: host::describe(),
        notes: sides.iter().flat_map(|side| side.notes.clone()).collect(),
        rows: comparison::rows(&measured),
    };
    // Other formats are refused.
    let format = asked.format.unwrap_or(match command.run.format {
        OutputFormat::JSON => Format::Json,
        _ => Format::Text,
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

/// Returns both sides. Makes every refusal that is possible before the first run.
fn sides(
    command: &JobList,
    targets: &[Target],
    asked: &CompareOptions,
) -> Result<[Side; 2], Failure> {
    let planned = planned(command, targets, asked)?;
    let (job_files, report) = (&command.files[..], command.run.output.as_deref());
    let outputs = Outputs { job_files, report, ..Outputs::default() };
    outputs::check(&command.jobs, targets, outputs)?;
    let (_, notices) = super::prepare(&command.jobs, targets, command.run.readonly)?;
    notices.iter().for_each(super::note);
    if let Some((jobs, targets)) = &planned.other {
        outputs::check(jobs, targets, outputs).map_err(|error| side::about(&asked.with, error))?;
        let (_, more) = super::prepare(jobs, targets, command.run.readonly)
            .map_err(|error| side::about(&asked.with, error))?;
        let more = more.iter().filter(|notice| !notices.contains(notice));
        more.for_each(|notice| super::note(&format!("--compare={}: {notice}", asked.with)));
    }
    planned.notes.iter().for_each(super::note);
    Ok(planned.sides)
}

/// Both sides before their disks are opened.
#[derive(Debug)]
struct Planned {
    sides: [Side; 2],
    /// The jobs of side B and their disks, if they are Forebay's.
    other: Option<(Vec<Job>, Vec<Target>)>,
    /// Notes about options without effect.
    notes: Vec<String>,
}

fn planned(
    command: &JobList,
    targets: &[Target],
    asked: &CompareOptions,
) -> Result<Planned, Failure> {
    let jobs = &command.jobs;
    checks::run(&command.run, asked)?;
    checks::jobs(jobs)?;
    side::check_word(&asked.with)?;
    let mut noted = checks::notes(jobs);
    let ours = Side::ours(jobs, targets)?;
    if asked.with == FIO {
        return Ok(Planned { sides: [ours, Side::fio(jobs, targets)?], other: None, notes: noted });
    }
    let with = asked.with.as_str();
    let other = side::on_other(jobs, with)?;
    side::check_exists(with)?;
    let other_targets = side::plan_other(&other, with)?;
    checks::sides((jobs, targets), (&other, &other_targets), with)?;
    let known = notes::notes(jobs, targets);
    let more = notes::notes(&other, &other_targets).into_iter().filter(|it| !known.contains(it));
    noted.extend(more.map(|note| format!("--compare={with}: {note}")));
    let sides = [ours, Side::ours(&other, &other_targets)?];
    Ok(Planned { sides, other: Some((other, other_targets)), notes: noted })
}

#[cfg(test)]
mod tests;
